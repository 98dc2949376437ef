"""Where each rank's memory went, pool by pool, adding up to the card. In: a `Seen`. Out: `Shown`.

One ledger, that of the rank that decides; a row for those that differ from it in more than the log's rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..judging.ledger import Entry, Ledger
from ..judging.ledger_ranks import Key, Others, by_key, others
from ..rank_names import in_words
from ..studies.seen import Seen
from ..units import MIB, format_gib
from .figures import amount_cell, logged_cell
from .shown import Cell, Shown, Value, joined, paragraph, table

_TOTALS = {
    "card": "the whole card",
    "free_before_loading": "free before loading",
    "accounted": "what the log accounts for (it begins later)",
}
_NO_TOTAL = " (the card's total is not known)"


def ledger(study: Seen) -> Shown:
    """The ledger of the rank that failed, else of the one that decides; below it in what others differ. What is not
    logged says where it lies.
    """
    ledgers = study.diagnosis.shown_ledgers
    if not ledgers:
        return paragraph("No ledger: the log has no figure of memory.", tone="muted")
    groups = others(ledgers)
    same = [rank for group in groups if not group.differs for rank in group.ranks]
    parts = [_table(ledgers[0], [ledgers[0].rank, *same], study)]
    if why := study.diagnosis.why_shown:
        parts.append(paragraph(f"{why[:1].upper()}{why[1:]}.", tone="muted"))
    if differing := [group for group in groups if group.differs]:
        parts.append(_differing(ledgers[0], same, differing))
    return joined(parts)


def _differing(first: Ledger, same: Sequence[str], groups: Sequence[Others]) -> Shown:
    """A row per group of ranks, a column for each entry in which one of them differs."""
    mine = by_key(first)
    keys = sorted({key for group in groups for key in group.differs}, key=[*mine, *_further(mine, groups)].index)
    rows: list[list[Value]] = [[in_words([first.rank, *same]), *(_size(mine.get(key)) for key in keys)]]
    for group in groups:
        rows.append([in_words(group.ranks), *(_other(group, key) for key in keys)])
    names = [_label(key, keys) for key in keys]
    caption = f"Where other ranks differ from {first.rank or 'it'} by more than rounding; all else is the same"
    return table(["rank", *names], rows, caption=caption)


def _other(group: Others, key: Key) -> Cell:
    if key not in group.differs:
        return Cell(text="the same", tone="muted")
    size, unknown = group.differs[key], "not known" if key[0] == "unexplained" else "not logged"
    return amount_cell(None, "bytes", unknown=unknown) if size is None else logged_cell(size)


def _further(mine: Mapping[Key, Entry], groups: Sequence[Others]) -> list[Key]:
    """What the first one's ledger does not have."""
    return list(dict.fromkeys(key for group in groups for key in group.differs if key not in mine))


def _size(entry: Entry | None) -> Cell:
    return amount_cell(None, "bytes") if entry is None or entry.size is None else logged_cell(entry.size)


def _label(key: Key, keys: Sequence[Key]) -> str:
    term, role, _ = key
    both = {other for name, other, _ in keys if name == term}
    return str(term).replace("_", " ") + (f", {role}" if len(both) > 1 else "")


def _table(found: Ledger, ranks: list[str], study: Seen) -> Shown:
    whose = " of the host" if found.on_host else ""
    rows: list[list[Value]] = [
        [_what(entry, found), _size(entry), _source(entry)]
        for entry in found.entries
        if not (found.total_of == "accounted" and entry.term == "unexplained")  # it has none: 0 is no figure of the log
    ]
    without_card = found.total_of == "free_before_loading" and not found.on_host
    name = f"= {_TOTALS[found.total_of]}{whose}{_NO_TOTAL if without_card else ''}"
    rows.append([Cell(text=name), logged_cell(found.total), Cell(text=found.total_source, wide=True)])
    named = in_words(rank for rank in ranks if rank)
    of_rank = f" of {named}" if named else ""
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


def _what(entry: Entry, found: Ledger) -> Cell:
    name = _label((entry.term, entry.role, 0), [(one.term, one.role, 0) for one in found.entries])
    return Cell(text=name, title=entry.label, below=None if entry.label == name else entry.label)


def _source(entry: Entry) -> Cell:
    if entry.lies_in is not None:
        return Cell(text=f"lies in {str(entry.lies_in).replace('_', ' ')}", tone="muted")
    return Cell(text=entry.source, wide=len(entry.source) > 22)
