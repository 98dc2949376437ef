"""Where each rank's memory went, pool by pool, adding up to the card. In: a `Seen`. Out: `Shown`.

Ranks whose ledgers are alike in every figure share a table; the first is that of the rank that decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..judging.ledger import Entry, Ledger
from ..studies.seen import Seen
from ..units import MIB, format_gib
from .figures import amount_cell
from .shown import Cell, Shown, Value, joined, paragraph, table

_TOTALS = {
    "card": "the whole card",
    "free_before_loading": "free before loading (the card's total is not known)",
    "accounted": "what the log accounts for (it begins later)",
}


def ledger(study: Seen) -> Shown:
    """A table per rank whose figures differ; what is not logged says in which entry it lies."""
    parts = [_table(found, names, study) for found, names in _grouped(study.diagnosis.ledgers)]
    if not parts:
        return paragraph("No ledger: the log has no figure of memory.", tone="muted")
    return joined(parts)


def _grouped(ledgers: tuple[Ledger, ...]) -> Iterator[tuple[Ledger, list[str]]]:
    groups: dict[object, tuple[Ledger, list[str]]] = {}
    for one in ledgers:
        key = (one.total, tuple((entry.term, entry.role, entry.size) for entry in one.entries))
        groups.setdefault(key, (one, []))[1].append(one.rank)
    yield from groups.values()


def _table(found: Ledger, ranks: list[str], study: Seen) -> Shown:
    whose = " of the host" if found.on_host else ""
    rows: list[list[Value]] = [
        [_what(entry), amount_cell(None if entry.size is None else entry.size.bytes, "bytes"), _source(entry)]
        for entry in found.entries
        if not (found.total_of == "accounted" and entry.term == "unexplained")  # it has none: 0 is no figure of the log
    ]
    total = amount_cell(found.total.bytes, "bytes")
    rows.append([Cell(text=f"= {_TOTALS[found.total_of]}{whose}"), total, Cell(text=found.total_source, wide=True)])
    named = [rank for rank in ranks if rank]
    of_rank = f" of {', '.join(named)}" if named else ""
    rounding = (
        f"rounding of all figures together ±{found.rest.size.resolution_bytes / MIB:,.0f} MiB"
        if found.rest.size
        else ""
    )
    caption = f"Ledger{of_rank} ({study.origin}), per rank: the entries add up to the last line" + (
        f"; {rounding}" if rounding else ""
    )
    beside = [
        paragraph(f"In the host's memory: {entry.label}, {format_gib(entry.size.bytes)} ({entry.source}).")
        for entry in found.beside
        if entry.size is not None
    ]
    slack = [] if found.slack_words is None else [paragraph(f"Beside it {found.slack_words}.")]
    return joined([table(["what", study.origin, "from"], rows, caption=caption), *slack, *beside])


def _what(entry: Entry) -> Cell:
    name = str(entry.term).replace("_", " ")
    return Cell(text=name, title=entry.label, below=None if entry.label == name else entry.label)


def _source(entry: Entry) -> Cell:
    if entry.lies_in is not None:
        return Cell(text=f"lies in {str(entry.lies_in).replace('_', ' ')}", tone="muted")
    return Cell(text=entry.source, wide=len(entry.source) > 22)
