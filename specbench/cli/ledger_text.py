"""The ledger for the terminal: what each pool got of the card, each with its share and a bar where it lies.

Figures are never cut: where a terminal is narrow the bars go first, then the lines of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..engines.contract import ServerLog
from ..judging.ledger import Entry, Ledger, Name
from ..judging.ledger_ranks import Others, by_key, others
from ..rank_names import in_words
from ..terms import Role
from ..units import GIB, Quantity

_NAMES: dict[Name, str] = {
    "before": "driver, context, others",
    "communication": "communication",
    "weights": "target weights",
    "draft_weights": "draft weights",
    "state_conv": "state, conv",
    "state_ssm": "state, ssm",
    "scratch_ssm": "scratch, ssm",
    "scratch_conv": "scratch, conv",
    "kv": "KV",
    "kv_window": "KV, sliding window",
    "draft_kv": "draft KV",
    "int8_checkpoints": "int8 checkpoints",
    "replay_rings": "replay rings",
    "graphs": "CUDA graphs",
    "given_back": "given back",
    "until_failure": "until memory ran out",
    "left": "left free",
}
_TOTALS = {
    "card": "whole card",
    "free_before_loading": "free before loading",
    "accounted": "told by the log",
}
_STYLES: dict[Name, str] = {"left": "green", "unexplained": "yellow", "until_failure": "red"}
_WITH_LINES = 76  # columns of a terminal that has room for the numbers of lines
_FIXED = 50  # columns beside the bar
_LEAST_BAR = 8


def ledger_text(ledger: Ledger, log: ServerLog, origin: str, width: int) -> Table:
    """One rank's, read from that log. `width`: of the terminal, in columns."""
    whose = f" of {ledger.rank}" if ledger.rank else ""
    place = "host's memory" if ledger.on_host else "card's memory" if ledger.total_of == "card" else "memory"
    table = Table(
        title=f"\nwhere the {place}{whose} went, in GiB (2^30 B, {origin})",
        box=SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        show_footer=False,
    )
    bar = min(width - _FIXED - (7 if width >= _WITH_LINES else 0), 40)
    lines, bars = width >= _WITH_LINES, bar >= _LEAST_BAR and ledger.total.bytes > 0
    table.add_column("", min_width=24 if bars else None)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    if lines:
        table.add_column("line", justify="right", no_wrap=True, style="dim")
    if bars:
        table.add_column("", no_wrap=True, width=bar)
    # What the log adds up to by itself has no rest: 0 would be no figure of it.
    summed = ledger.total_of == "accounted"
    for entry in (one for one in ledger.entries if not (summed and one.term == "unexplained")):
        cells: list[RenderableType] = [Text(_name(entry, ledger)), _size(entry), _share(entry.size, ledger.total)]
        if lines:
            cells.append("" if entry.line is None else f"{log.at(entry.line, '').line:,}")
        if bars:
            cells.append(_bar(entry, ledger.total.bytes, bar))
        table.add_row(*cells)
    table.add_section()
    table.add_row(Text(_TOTALS[ledger.total_of]), Text(_gib(ledger.total)), "100%" if ledger.total.bytes else "")
    lead = f"{_TOTALS['card']} by " if ledger.total_of == "card" else ""
    table.caption = Text(f"{lead}{ledger.total_source}")
    table.caption_justify, table.caption_style = "left", "dim"
    return table


def _name(entry: Entry, ledger: Ledger) -> str:
    if entry.term == "unexplained":
        return entry.label
    name = _NAMES.get(entry.term, entry.label)
    both = {one.role for one in ledger.entries if one.term == entry.term} == {"target", "draft"}
    mark: dict[Role, str] = {"target": ", target", "draft": ", draft"}
    if both or (entry.role == "draft" and "draft" not in name):
        name += mark[entry.role]
    if entry.size is None and entry.lies_in in ("before", "left", "until_failure"):
        name += f" (within {_NAMES[entry.lies_in]})"
    return name


def _size(entry: Entry) -> Text:
    if entry.size is None:
        return Text("not logged" if entry.term != "unexplained" else "not known", style="dim")
    rounding = f" ±{entry.size.resolution_bytes / GIB:.2f}" if entry.term == "unexplained" else ""
    return Text(_gib(entry.size) + rounding)


def _gib(size: Quantity) -> str:
    return f"{size.bytes / GIB:z,.2f}"


def _share(size: Quantity | None, total: Quantity) -> str:
    if size is None or total.bytes <= 0:
        return ""
    share = size.bytes / total.bytes
    return f"{share:.1%}" if abs(share) >= 0.0005 or share == 0 else "<0.1%"


def _bar(entry: Entry, total: int, width: int) -> RenderableType:
    """At least an eighth of a cell, which is the least that can be seen."""
    if entry.size is None or entry.size.bytes <= 0:
        return ""
    end = min(total, max(entry.size.bytes, -(-total // (8 * width))))
    return Bar(size=total, begin=0, end=end, width=width, color=_STYLES.get(entry.term, "blue"))


def other_ranks(ledgers: Sequence[Ledger]) -> Iterator[str]:
    """What the other ranks have otherwise than the first, a sentence each; ranks alike are named together."""
    for group in others(ledgers):
        yield f"{in_words(group.ranks)}: {_differs(group, ledgers[0])}"


def _differs(group: Others, first: Ledger) -> str:
    of_first, parts = by_key(first), []
    for key, size in group.differs.items():
        term, _, _ = key
        name = "rest" if term == "unexplained" else _NAMES.get(term, str(term))
        if term != "unexplained" and key in of_first:  # graphs are of the target or of the draft
            name = _name(of_first[key], first)
        known = of_first[key].size if key in of_first else None
        other = f" ({first.rank or 'the first rank'}: {_gib(known)})" if known is not None and size is not None else ""
        unknown = "not known" if term == "unexplained" else "not logged"
        parts.append(f"{name} {unknown if size is None else f'{_gib(size)} GiB'}{other}")
    return "; ".join(parts) if parts else f"the same as {first.rank or 'the first rank'}, within rounding"


def beside(ledger: Ledger) -> Iterator[str]:
    """Slack, which predictions name, and pools in the host's memory."""
    if ledger.slack_words:
        yield ledger.slack_words
    for entry in ledger.beside:
        if entry.size is not None:
            yield f"beside the card: {entry.label} {_gib(entry.size)} GiB ({entry.source})"
