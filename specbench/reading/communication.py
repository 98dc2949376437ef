"""What the distributed init took of each rank's card, by NVML: its free memory before less its free memory after.

In: a record, its log, and the samples of each rank's card. Out: an `Init` for each rank of which that is known. The log
prints the same figure, rounded to 0.01 GiB; NVML's is exact, or leaves a few MiB open where memory moved
as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engines.contract import ServerLog
from ..errors import RecordError
from ..records.record import RunRecord
from .freeread_rank import Init, Rank
from .gputrace import Trace
from .rank_gpus import Cards, UnknownError


def inits_by_nvml(record: RunRecord, log: ServerLog, cards: Cards) -> dict[str, Init]:
    """Empty of a record whose start was not watched closely enough."""
    capture = record.env.get("capture")
    if not isinstance(capture, Mapping) or not capture.get("memory_watched"):
        return {}
    try:
        arrivals = {arrival.line: arrival for arrival in record.log_arrivals()}
    except RecordError:  # a damaged table costs NVML's side, not the diagnosis
        return {}
    found: dict[str, Init] = {}
    for rank, samples in cards.samples.items():
        if not samples:
            continue
        try:
            found[rank] = Rank(rank, Trace(samples, samples[0].gpu), arrivals, log, None).init()
        except UnknownError:
            continue
    return found
