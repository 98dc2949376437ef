"""In what the ledgers of other ranks differ from that of the rank that decides. In: the ledgers, that one first. Out:
ranks that differ alike, together: eight nearly equal ledgers hide the figure in which one is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..rank_names import in_order
from ..terms import Role
from ..units import Quantity
from .ledger import Entry, Ledger, Name

Key = tuple[Name, Role, int]  # the number: of entries with one name, as the graphs of several captures


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Ranks whose ledger is the first one's but for `differs`."""

    ranks: tuple[str, ...]
    differs: Mapping[Key, Quantity | None]  # None: not logged there, and logged in the first one


def others(ledgers: Sequence[Ledger]) -> tuple[Others, ...]:
    """In the order of the ranks. What differs by no more than the rounding of both figures is alike. () of one rank."""
    if not ledgers:
        return ()
    first = by_key(ledgers[0])
    groups: dict[tuple[tuple[Key, Quantity | None], ...], list[str]] = {}
    of_rank = {ledger.rank: ledger for ledger in ledgers[1:]}
    for rank in in_order(of_rank):
        groups.setdefault(tuple(_differing(first, by_key(of_rank[rank])).items()), []).append(rank)
    return tuple(Others(ranks=tuple(ranks), differs=dict(differs)) for differs, ranks in groups.items())


def by_key(ledger: Ledger) -> dict[Key, Entry]:
    """Its entries. What a log adds up to by itself has no rest: 0 would be no figure of it."""
    found: dict[Key, Entry] = {}
    for entry in ledger.entries:
        if entry.term == "unexplained" and ledger.total_of == "accounted":
            continue
        number = sum((term, role) == (entry.term, entry.role) for term, role, _ in found)
        found[entry.term, entry.role, number] = entry
    return found


def _differing(first: Mapping[Key, Entry], other: Mapping[Key, Entry]) -> dict[Key, Quantity | None]:
    found: dict[Key, Quantity | None] = {}
    for key in (*first, *(key for key in other if key not in first)):
        one, two = (None if entry is None else entry.size for entry in (first.get(key), other.get(key)))
        if one is None or two is None:
            if one is not two:
                found[key] = two
        elif abs(two.bytes - one.bytes) > one.resolution_bytes + two.resolution_bytes:
            found[key] = two
    return found
