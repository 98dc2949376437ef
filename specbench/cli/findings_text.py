"""Findings for the terminal: cause, proof, fix. Log text is untrusted: it is printed as `Text`, never as markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..configuration.config import RunConfig
from ..diagnose.catalogue import lost_text, title
from ..diagnose.finding import Finding, Remedy, was_words
from ..diagnose.remedy_words import dropped_flags, environment, on_server
from ..engines.contract import Line
from ..units import counted
from .remedies_text import bounds_text, effect, remedies_text, set_options, sources, told_by, usual_source

_SEVERITY = {"fatal": "bold red", "costly": "bold yellow", "notice": "bold cyan"}
#: The time of a line; ranks stay.
_TIME = re.compile(r"\A\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?((?: [A-Z_]{1,12}\d{1,5})*)\] ?")
#: A line of evidence may be 10 kB (server_args).
_LONGEST = 320
_FURTHER = 1  # lines of a finding after the first


def finding_text(
    finding: Finding,
    number: int,
    measured: str,
    *,
    everything: bool,
    above: Sequence[Line] = (),
    before: RunConfig | None = None,
) -> Iterator[RenderableType]:
    """Cause, proof, and the best fix; with `everything` all of them, and the whole lines. `above`: lines that are shown
    already. Of findings after the first one line proves enough.
    """
    head = Text(f"{number}. {finding.severity}: {title(finding.id)}", style=_SEVERITY[finding.severity])
    head.append(f" ({finding.id})", style="dim")
    yield head
    cause = Text(finding.cause)
    if finding.lost is not None and finding.lost > 0 and finding.severity != "fatal":  # that costs all
        cause.append(f" {lost_text(finding.id, finding.lost)}.", style="bold")
    yield Padding(cause, (0, 0, 0, 3))
    evidence = [line for line in finding.evidence if everything or line not in above]
    if evidence:
        shown = evidence if everything or number == 1 else evidence[:_FURTHER]
        yield Padding(_evidence(shown, everything=everything), (0, 0, 0, 3))
    if len(evidence) > _FURTHER and number > 1 and not everything:
        more = len(evidence) - _FURTHER
        yield Padding(Text(f"and {counted(more, 'line')} more: --all", style="dim"), (0, 0, 0, 3))
    if finding.remedies and everything:
        yield Padding(remedies_text(finding.remedies, measured=measured), (0, 0, 0, 3))
    elif finding.remedies:
        yield from _fix(finding.remedies[0], measured, before)
    elif number == 1 and finding.severity != "notice":
        yield Padding(Text("fix: none that can be proven from this log", style="dim"), (0, 0, 0, 3))


def _evidence(evidence: Sequence[Line], *, everything: bool) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for line in evidence:
        grid.add_row(
            line.where,
            Text((f"({line.about}) " if line.about else "") + (line.text if everything else shortened(line.text))),
        )
    return grid


def shortened(text: str) -> str:
    """Without its time, and ended between two words where it is very long: a figure is never cut."""
    short = _TIME.sub(lambda found: f"[{found[1].strip()}] " if found[1] else "", text)
    if len(short) <= _LONGEST:
        return short
    kept = short[:_LONGEST].rpartition(" ")[0] or short[:_LONGEST]
    return f"{kept} … ({len(short) - len(kept):,} more characters: --all)"


def _fix(remedy: Remedy, measured: str, before: RunConfig | None) -> Iterator[RenderableType]:
    flags, how = remedy.flags, "fix: start the server with"
    if not flags:
        flags, how = dropped_flags(remedy), "fix: start the server without"
    variables = environment(remedy)
    if not flags and variables:
        flags, how = variables, "fix: in the server's environment (of a params file: engine.env)"
    elif variables:
        how = how.replace("the server", f"the server with {variables} in its environment, and", 1)
    if not flags:
        flags, how = set_options(remedy), "fix: in the params file"
    was = was_words(remedy, before)
    yield Padding(Text(f"{how}{f' (it had {was})' if was else ''}", style="bold green"), (0, 0, 0, 3))
    yield Flags(flags)
    mark = " This changes results." if remedy.changes_results else ""
    yield Padding(Text(f"{effect(remedy, measured)}: {remedy.note}.{mark}"), (0, 0, 0, 3))


class Flags(Text):
    """Printed on one line however narrow the terminal is, so that it can be copied."""

    def __init__(self, flags: str) -> None:
        super().__init__(f"   {flags}", style="green")


def listed_remedies(remedies: Sequence[Remedy], measured: str) -> Iterator[RenderableType]:
    """What else would do, where a terminal has no room for a table."""
    yield Text("\nother fixes for 1", style="bold")
    for remedy in remedies:
        yield Flags(on_server(remedy) or set_options(remedy))
        mark = "; changes results" if remedy.changes_results else ""
        yield Padding(Text(f"{effect(remedy, measured)}{mark}", style="dim"), (0, 0, 0, 3))


def further_remedies(remedies: Sequence[Remedy], measured: str) -> Iterator[RenderableType]:
    """What else would do, in a few words each; below it what is predicted from something else than most are."""
    table = Table(title=f"\nother fixes for 1{told_by(remedies, measured)}", box=SIMPLE_HEAD, pad_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    table.add_column("flags", overflow="fold", style="green")
    for header in ("requests", "slots", "KV tokens"):
        table.add_column(header, justify="right", no_wrap=True)
    changes = any(remedy.changes_results for remedy in remedies)
    if changes:
        table.add_column("results")
    for remedy in remedies:
        figures = [
            bounds_text(remedy, limit, unknown="·") for limit in ("running_requests", "state_slots", "kv_tokens")
        ]
        cells: list[RenderableType] = [Text(on_server(remedy) or set_options(remedy)), *figures]
        if changes:
            cells.append("change" if remedy.changes_results else "")
        table.add_row(*cells)
    yield table
    told = usual_source(remedies, measured) if told_by(remedies, measured) else None
    for source, those in sources(remedies, measured).items():
        if source != told:
            which = ", ".join(on_server(remedy) or set_options(remedy) for remedy in those)
            yield Text(f"{which}: predicted from {source}", style="dim")
