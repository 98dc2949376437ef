"""Memory from four sides, as a table: predicted, log, /server_info, NVML. In: a `Seen`. Out: `Shown`.

Ranks of which every side tells the same share a row; where many differ, those with the least and with the most have
one, and all others together; /server_info, which answers for one rank, is shown there with its
name. A side that tells nothing at all has no column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from ..judging.side import TOTALS, Side, Sides, Told
from ..judging.sides import ranks_of
from ..rank_names import in_words, numbers_in_words
from ..studies.seen import Seen
from ..terms import LIMITS, TERMS
from ..units import format_gib
from .figures import interval_cell, range_cell
from .shown import Cell, Shown, Value, joined, paragraph, table

_MEANINGS: dict[str, str] = {name: text for table in (TERMS, LIMITS, TOTALS) for name, text in table.items()}
_PLURALS = {"log line": "log lines"}
#: Of more groups of ranks than these a table shows the ends, and what lies in between as one.
_MOST_GROUPS = 3


def four_sides(study: Seen) -> Shown:
    """Predicted, log, /server_info and NVML side by side, each cell with its source; where the engine contradicts
    itself is said below."""
    found = study.diagnosis.sides
    if found is None or not found.rows:
        return Shown("", "")
    origin, every = study.origin, ranks_of(study.diagnosis.pools)
    groups = _grouped(found.rows)
    on = measured_words(study) if study.basis == "measured" else "from the configuration"
    columns: list[tuple[str, bool, Callable[[Sequence[Side]], Cell]]] = [
        (f"predicted ({on})", _tells(found, "predicted"), _predicted_cell),
        (f"log ({origin})", _tells(found, "log"), lambda rows: _told_cell(rows, "log")),
        (f"/server_info ({origin})", _tells(found, "server_info"), lambda rows: _told_cell(rows, "server_info")),
        (f"NVML ({origin})", _tells(found, "nvml"), lambda rows: _told_cell(rows, "nvml")),
    ]
    shown: list[list[Value]] = [
        [
            _name_cell(group[0]),
            rank_text([side.rank for side in group], every),
            *(make(group) for _, told, make in columns if told),
        ]
        for group in groups
    ]
    headers = ["term", "rank", *(name for name, told, _ in columns if told)]
    parts = [table(headers, shown, caption="From four sides: GiB per rank or counts, each with its source")]
    parts += [paragraph(text) for text in _remarks(study, found)]
    differ = (*found.disagreements, *study.diagnosis.pools.disagreements)
    parts += [paragraph(f"The engine contradicts itself: {text}.", tone="bad") for text in differ]
    return joined(parts)


def _remarks(study: Seen, found: Sides) -> Iterator[str]:
    origin, replayed = study.origin, study.record is not None and study.record.replayed
    if found.deciding is not None:
        least = found.of("free_before_loading", found.deciding).log
        size = "" if least is None else f" ({format_gib(least.value)}, {origin})"
        free = [row for row in found.rows if row.name == "free_before_loading"]
        ranks = in_words(row.rank for row in free if _value(row.log) == _value(least)) or found.deciding
        verb, goes = ("has", "it") if ranks == found.deciding else ("have", "that")
        yield f"{ranks} {verb} least free before loading{size}: the server goes by {goes}."
    silent = [name for name, side in (("The log", "log"), ("/server_info", "server_info")) if not _tells(found, side)]
    for name in silent:
        yield f"{name} tells nothing."
    if not _tells(found, "nvml") and replayed:
        yield "NVML tells nothing: not sampled, a replay."
    elif found.not_sampled is not None:
        yield f"NVML tells nothing of a rank: {found.not_sampled}."
    elif not _tells(found, "nvml"):
        yield "NVML tells nothing."
    agreed = any(side.log is not None and side.server_info is not None for side in found.rows)
    if agreed and not found.disagreements and not study.diagnosis.pools.disagreements:
        yield "The log and /server_info agree."


def rank_text(ranks: Sequence[str], every: Sequence[str]) -> str:
    """'TP0, TP1', 'TP0 to TP3'; of what holds for all of them (`""`) all, as in the rows that are told per rank."""
    named = [rank for rank in ranks if rank] or [rank for rank in every if rank]
    return in_words(named) or "all"


def _grouped(rows: Sequence[Side]) -> list[list[Side]]:
    """Rows of one name with the same figures, one group below the other."""
    groups: list[list[Side]] = []
    for name in dict.fromkeys(row.name for row in rows):
        mine: list[list[Side]] = []
        for row in (row for row in rows if row.name == name):
            group = next((group for group in mine if all(_alike(row, other) for other in group)), None)
            if group is None:
                mine.append([row])
            else:
                group.append(row)
        groups += mine if len(mine) <= _MOST_GROUPS else _ends(mine)
    return groups


def _ends(groups: Sequence[list[Side]]) -> list[list[Side]]:
    """Ranks with the least, all others, ranks with the most, by what tells most exactly; then those untold."""
    known = [group for group in groups if _size(group[0]) is not None]
    known.sort(key=lambda group: _size(group[0]) or 0)
    between = [row for group in known[1:-1] for row in group]
    silent = [group for group in groups if _size(group[0]) is None]
    return [group for group in [*known[:1], between, *known[1:][-1:], *silent] if group]


def _size(row: Side) -> int | None:
    told = row.nvml or row.log or row.server_info
    return None if told is None else told.value


def _alike(one: Side, other: Side) -> bool:
    """/server_info answers for the first rank only, and some lines are logged by it alone: that such a side tells
    nothing of another rank is no difference, where a side that tells of both says the same."""
    if (one.predicted, one.disagreement) != (other.predicted, other.disagreement):
        return False
    if not _agree(one.nvml, other.nvml):
        return False
    logged = {_value(one.log), _value(other.log)}
    return len(logged) == 1 or (None in logged and one.nvml is not None)


def _value(told: Told | None) -> int | None:
    return None if told is None else told.value


def _agree(one: Told | None, other: Told | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one.value - other.value) <= min(one.tolerance, other.tolerance)


def _tells(found: Sides, side: str) -> bool:
    return any(_of(row, side) is not None for row in found.rows)


def _of(row: Side, side: str) -> object:
    told = {"predicted": row.predicted, "log": row.log, "server_info": row.server_info, "nvml": row.nvml}
    return told[side]


def _name_cell(side: Side) -> Cell:
    return Cell(text=side.name.replace("_", " ") if side.name in TOTALS else side.name, title=_MEANINGS[side.name])


def _predicted_cell(group: Sequence[Side]) -> Cell:
    return dataclasses.replace(interval_cell(group[0].predicted, group[0].unit), below=group[0].predicted_from)


def _told_cell(group: Sequence[Side], side: str) -> Cell:
    told = [(row.rank, one) for row in group if isinstance(one := _of(row, side), Told)]
    if not told:
        return Cell(text="not told", tone="muted")
    whose = "" if len(told) == len(group) else f", of {in_words(rank for rank, _ in told)}"
    source = merged_source([one for _, one in told])
    values = [one.value for _, one in told]
    return dataclasses.replace(range_cell(min(values), max(values), group[0].unit), below=f"{source}{whose}")


def merged_source(told: Sequence[Told]) -> str:
    """'NVML, GPU 0 and 1, before the start', 'log lines 30 and 31'; one after the other where more differs."""
    sources = list(dict.fromkeys(one.source for one in told))
    if len(sources) == 1:
        return sources[0]
    before, _, after = told[0].source.partition(told[0].place)
    if not all(one.place and one.source == f"{before}{one.place}{after}" for one in told):
        if len(sources) < _MOST_GROUPS or not all(one.place and one.source.startswith(before) for one in told):
            return "; ".join(sources)
        after = ""  # what is said of each is more than a cell holds
    word = told[0].place.rpartition(" ")[0]
    numbers = [int(one.place.rpartition(" ")[2]) for one in told]
    listed = numbers_in_words(numbers)
    if word in _PLURALS and listed.count(",") > 1:  # eight places in a log tell less than where they begin and end
        return f"{before}{len(set(numbers))} {_PLURALS[word]} from {min(numbers)} to {max(numbers)}{after}"
    return f"{before}{_PLURALS.get(word, word)} {listed}{after}"


def measured_words(study: Seen) -> str:
    """What a prediction on the measured basis rests on."""
    budget = study.diagnosis.budgets.get("measured")
    return f"from {budget.free.words}" if budget is not None else "from logged free memory"
