"""docs/exactness.md: how exact predictions are, as a page. In: compared figures. Out: Markdown.

Everything on the page is computed from the rows, but for the words around the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..diagnose.diagnosis import of_record
from ..records.record import RunRecord
from ..units import GIB, format_spread
from .cases import Case, read_cases, read_not_compared
from .compared import BASES, FIGURES, Compared, farthest, missed_by, shares
from .exactness import compared

_HEAD = """# How exact is it

Predictions against what {starts} starts logged: {recordings} recordings (`tests/records`: H200s, of which the
ranks of `tp8-quarters_*` have a quarter each; SGLang 0.5.12 and 0.5.16),
{measured} measured starts (`tests/starts.yaml`: other models and settings on H200s) and {cases} public cases
(`tests/cases.yaml`: other models, cards and versions, from logs of others).
Made by `make docs`; a test asserts that it is up to date.

A figure is **exact** when the prediction's point is the logged figure (a size: within the rounding of the log),
**inside** when only the interval holds it, and **off** when not. What was known beforehand decides what that is worth:

{bases}
"""
_SHORT = """Before a start, from the configuration alone, all sources together. Most are H200s, whose free memory
before loading is in the GPU table as measured, in part in these very starts; on a card that was not measured the
interval is wider and its point farther off. Why a figure is not exact: a section below.
"""
_READING = """Each source by itself, by what was known. *rows*: figures compared, one of each start that logged it.
*farthest points*: by how much the worst one misses, in its unit, and as a share of what was logged; of two
starts, where two are named. Of recordings, *measured* adds to a logged free memory the offset of
`specbench/data/offsets.yaml`, which was measured or fitted in recordings of this page (of ranks that share a card, in
the very start): exact says there that the arithmetic is right, not that another start's tokens would be foreseen.
"""
_RECORDINGS = """Slots, requests and tokens of each start as logged, and the prediction from the configuration alone and
from the free memory of the start. `=`: exact; otherwise the point with its interval.
"""


def page(rows: Sequence[Compared], cases: Sequence[Case], not_compared: Mapping[str, str]) -> str:
    """The whole page."""
    recordings = {row.name for row in rows if row.source == "recording"}
    head = _HEAD.format(
        starts=len(recordings) + len(cases),
        recordings=len(recordings),
        cases=sum(case.source == "public case" for case in cases),
        measured=sum(case.source == "measured start" for case in cases),
        bases="\n".join(f"- *{basis}*: {words}" for basis, words in BASES.items()),
    )
    parts = [head, "## In short\n", _SHORT, _short(rows), "## Shares\n", _READING, _shares(rows)]
    parts += ["## Not exact, and why\n", "Recordings:\n", _inexact_recordings(rows)]
    parts += ["Measured starts:\n", _inexact_cases(rows, "measured start")]
    parts += ["Public cases:\n", _inexact_cases(rows, "public case")]
    parts += ["## Every public case\n", _cases(rows, [case for case in cases if case.source == "public case"])]
    parts += ["Of these nothing is compared:\n", _table(("case", "why"), sorted(not_compared.items()))]
    parts += ["## Every measured start\n", _cases(rows, [case for case in cases if case.source == "measured start"])]
    parts += ["## Every recording\n", _RECORDINGS, _recordings(rows)]
    return "\n".join(parts)


def _short(rows: Sequence[Compared]) -> str:
    """A line per figure: what somebody who has not started a server yet can count on."""
    mine = [row for row in rows if row.basis == "configuration"]
    body = []
    for figure, words in FIGURES.items():
        verdicts = [row.verdict for row in mine if row.figure == figure]
        if not verdicts:
            continue
        exact, inside = verdicts.count("exact"), verdicts.count("inside")
        off = len(verdicts) - exact - inside
        body.append((words, f"{exact} of {len(verdicts)}", inside, off, _worst(mine, figure)))
    return _table(("figure", "exact", "inside the interval", "off", "farthest point, of what was logged"), body)


def _worst(rows: Sequence[Compared], figure: str) -> str:
    found = farthest(row for row in rows if row.figure == figure)
    return "" if found is None else _percent(found[1])


def _percent(row: Compared) -> str:
    return f"{100 * missed_by(row) / max(row.logged, 1):.2g} %"


def _shares(rows: Sequence[Compared]) -> str:
    counted = shares(rows)
    body = [
        (source, basis, FIGURES[figure], total, exact, inside, off, f"{exact / total:.0%}", _farthest(rows, key))
        for source in ("recording", "measured start", "public case")
        for basis in BASES
        for figure in FIGURES
        if (key := (source, basis, figure)) in counted
        for total, exact, inside, off in [counted[key]]
    ]
    heads = ("of", "known beforehand", "figure", "rows", "exact", "inside", "off", "share exact", "farthest points")
    return _table(heads, body)


def _farthest(rows: Sequence[Compared], key: tuple[str, str, str]) -> str:
    """'104 (q35b_nextn_r16); 0.017 % (h200_story-8)': by how much the worst points miss, and as a share."""
    found = farthest(row for row in rows if (row.source, row.basis, row.figure) == key)
    if found is None:
        return ""
    size, share = found
    words = f"{missed_by(size) / GIB:.2f} GiB" if size.unit == "bytes" else f"{missed_by(size):,}"
    percent = _percent(share)
    return f"{words}, {percent} ({size.name})" if size == share else f"{words} ({size.name}); {percent} ({share.name})"


def _inexact_recordings(rows: Sequence[Compared]) -> str:
    """Of each kind those that are not exact, with what the point is off by."""
    kinds: dict[tuple[str, str, str, str], list[Compared]] = {}
    for row in rows:
        if row.source == "recording" and row.verdict != "exact":
            kinds.setdefault((row.what, row.basis, row.verdict, row.why), []).append(row)
    body = []
    for (what, basis, verdict, why), mine in kinds.items():
        apart: dict[str, list[str]] = {}
        for row in mine:
            apart.setdefault("" if row.predicted is None else _less(row.predicted.point, row), []).append(row.name)
        each = "; ".join(f"{less}: {', '.join(names)}" for less, names in apart.items())
        body.append((what, basis, verdict, len(mine), why, each))
    return _table(("figure", "known beforehand", "", "starts", "why", "point less logged: recordings"), body)


def _inexact_cases(rows: Sequence[Compared], source: str) -> str:
    body = [
        (row.name, row.what, row.basis, _predicted(row), _logged(row), row.verdict, row.why)
        for row in rows
        if row.source == source and row.verdict != "exact"
    ]
    return _table(("case", "figure", "known", "predicted", "logged", "", "why"), body)


def _cases(rows: Sequence[Compared], cases: Sequence[Case]) -> str:
    body = []
    for case in cases:
        mine = [row for row in rows if (row.source, row.name) == (case.source, case.name)]
        twice = len({row.basis for row in mine if row.what in _TWICE}) > 1
        exact = [_named(row, twice) for row in mine if row.verdict == "exact"]
        other = [f"{_named(row, twice)} {row.verdict}" for row in mine if row.verdict != "exact"]
        body.append((case.name, case.config.model, case.known, ", ".join(exact), ", ".join(other)))
    return _table(("case", "model", "known beforehand", "exact", "not exact"), body)


#: Figures that a measured start has from the configuration alone, and once more from its own free memory.
_TWICE = ("state_slots", "running_requests", "kv_tokens")


def _named(row: Compared, twice: bool) -> str:
    return f"{row.what} ({row.basis})" if twice and row.what in _TWICE else row.what


def _recordings(rows: Sequence[Compared]) -> str:
    limits = ("state_slots", "running_requests", "kv_tokens")
    mine: dict[str, dict[tuple[str, str], Compared]] = {}
    for row in rows:
        if row.source == "recording":
            mine.setdefault(row.name, {})[row.what, row.basis] = row
    body = []
    for name, found in mine.items():
        cells = [name, next(iter(found.values())).version]
        for limit in limits:
            of = [found.get((limit, basis)) for basis in ("configuration", "measured")]
            logged = next((row for row in of if row is not None), None)
            cells.append("not logged" if logged is None else f"{logged.logged:,}")
            cells += ["" if row is None else "=" if row.verdict == "exact" else _predicted(row) for row in of]
        body.append(tuple(cells))
    pairs = ("from configuration", "from its free memory")
    names = ("slots", "requests", "tokens")
    return _table(("recording", "SGLang", *(head for name in names for head in (name, *pairs))), body)


def _predicted(row: Compared) -> str:
    value = row.predicted
    if value is None:
        return "not predicted"
    if row.unit == "bytes":
        point = f"{value.point / GIB:.2f} GiB"
        return point if value.is_exact else f"{point} ({value.low / GIB:.2f} to {value.high / GIB:.2f})"
    return format_spread(value)


def _logged(row: Compared) -> str:
    return f"{row.logged / GIB:.2f} GiB" if row.unit == "bytes" else f"{row.logged:,}"


def _less(point: int, row: Compared) -> str:
    return f"{(point - row.logged) / GIB:+.2f} GiB" if row.unit == "bytes" else f"{point - row.logged:+,}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are text of this project and names of cases; a bar would end one."""
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    lines += [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def markdown(records: Path, files: Sequence[Path]) -> str:
    """The page of a folder of recordings and files of cases."""
    folders = sorted(folder for folder in records.iterdir() if folder.is_dir())
    recordings = (of_record(RunRecord.open(folder)) for folder in folders)
    cases = [case for file in files for case in read_cases(file)]
    left = {name: why for file in files for name, why in read_not_compared(file).items()}
    return page(compared(recordings, cases), cases, left)


if __name__ == "__main__":
    print(markdown(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]), end="")
