"""The ledgers of a diagnosis: whose card it is. In: a case, with a record's samples or what a person told. Out: a
`Ledger` per rank.
"""

from __future__ import annotations

from ..errors import SpecbenchError
from ..gpus import GpuSpec, load_gpu
from ..judging.accounting import ledgers
from ..judging.ledger import Card, Ledger
from ..reading.rank_gpus import Cards
from ..terms import Term
from .case import Case
from .told import Told

#: More than this is never gone of a card before an engine loads: then it is another card than assumed, or one whose
#: memory is the host's. The most that was found are 3.7 GiB (gpus.py); the rest is for a display.
_MOST_GONE_BYTES = 6 * 2**30


def of_record(case: Case, cards: Cards) -> tuple[Ledger, ...]:
    """The card is NVML's where it was sampled, else the one that the configuration names."""
    gpu = None if case.config is None else _gpu(case.config.gpu.name)
    sampled = {
        rank: Card(bytes=samples[0].total_bytes, source=f"NVML, GPU {samples[0].gpu}")
        for rank, samples in cards.samples.items()
        if samples
    }
    return ledgers(
        case.log,
        case.pools,
        sampled=sampled,
        table=_table(gpu, "as configured"),
        expected=_expected(case),
        on_host=gpu is not None and gpu.is_host,
    )


def of_log(case: Case, told: Told) -> tuple[Ledger, ...]:
    """The card is the told one, else the one that is assumed, if the free memory before loading speaks for it."""
    on_host = (case.log.server_args or {}).get("device") == "cpu"
    if told.gpu is not None:
        gpu = _gpu(told.gpu)
        on_host = on_host or (gpu is not None and gpu.is_host)
        return ledgers(case.log, case.pools, table=_table(gpu, "as told"), expected=_expected(case), on_host=on_host)
    gpu = None if case.config is None else _gpu(case.config.gpu.name)
    free = max((size.bytes for size in case.pools.pre.values()), default=None)
    if gpu is not None and (free is None or not 0 <= (gpu.card_bytes or 0) - free <= _MOST_GONE_BYTES):
        gpu = None
    return ledgers(case.log, case.pools, table=_table(gpu, "assumed"), expected=_expected(case), on_host=on_host)


def _gpu(name: str) -> GpuSpec | None:
    try:
        return load_gpu(name)
    except SpecbenchError:
        return None


def _table(gpu: GpuSpec | None, how: str) -> Card | None:
    if gpu is None or gpu.card_bytes is None or "unified" in gpu.title:
        return None
    return Card(bytes=gpu.card_bytes, source=f"GPU table, {gpu.words} ({how})")


def _expected(case: Case) -> frozenset[Term] | None:
    """Terms that the configuration has by its budget, those among them that it cannot predict; None: no budget."""
    if case.budget is None:
        return None
    return frozenset(term for term, one in case.budget.terms.items() if one.bytes is None or one.bytes.high > 0)
