"""The ledgers of a log, one per rank. In: a log, its pools, and what else tells a card's total. Out: `Ledger`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engines.contract import PoolReport, ServerLog
from ..terms import Term
from .account import Account
from .chain import events, oom_total
from .ledger import Card, Ledger, TotalOf

_KNOWN: tuple[TotalOf, ...] = ("card", "free_before_loading", "accounted")


def ledgers(
    log: ServerLog,
    pools: PoolReport,
    *,
    sampled: Mapping[str, Card] | None = None,
    table: Card | None = None,
    expected: frozenset[Term] | None = None,
    on_host: bool = False,
) -> tuple[Ledger, ...]:
    """One per rank that tells a figure, the deciding rank first; where none is known to decide, those whose total is
    known best. Empty: nothing about memory was logged.

    `sampled`: the card of a rank by NVML. `table`: the card of every rank by the GPU table. `expected`: terms that the
    configuration has; None: what the log's own lines let expect.
    """
    ranks = _ranks(log, pools)
    found = []
    for rank in ranks:
        card = None if on_host else (sampled or {}).get(rank) or _of_torch(log, rank, ranks) or table
        account = Account(log, rank, events(log, rank, alone=len(ranks) == 1), expected)
        if (ledger := account.ledger(card, pools, on_host=on_host)) is not None:
            found.append(ledger)
    decides = pools.deciding_rank
    return tuple(sorted(found, key=lambda one: (one.rank != decides, _KNOWN.index(one.total_of))))


def _ranks(log: ServerLog, pools: PoolReport) -> tuple[str, ...]:
    """Those with pools, then those that only tell free memory; a failure that names no rank is one where none is."""
    ends = (end.rank for end in log.pool_ends)
    failed = [one.rank for one in log.failures if oom_total(one) is not None]
    named = dict.fromkeys((*(one.rank for one in pools.ranks), *log.memory_before, *ends, *filter(None, failed)))
    return tuple(named) or ("",)


def _of_torch(log: ServerLog, rank: str, ranks: Sequence[str]) -> Card | None:
    """The card's total as torch prints it; of another rank too, since the cards of one server are alike."""
    told = [(failure, total) for failure in log.failures if (total := oom_total(failure)) is not None]
    own = [one for one in told if one[0].rank == rank or len(ranks) == 1]
    alike = told if len({total.bytes for _, total in told}) == 1 else []
    for failure, total in own or alike:
        return Card(bytes=total.bytes, source=f"CUDA's total capacity, log {log.where(failure.line)}")
    return None
