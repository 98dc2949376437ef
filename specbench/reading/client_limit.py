"""Whether the client itself was the limit of what it measured. In: a record and its latency rows. Out: sentences.

A client reads the clock when its event loop comes to it. Where that is late by a good part of what is measured, or
where its thread fills a core, the figures are its own and no longer the server's. Only of measured runs: the times of a
replay are recorded ones, and one at instant speed fills a core on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records.record import RunRecord
from ..records.types import ClientCost
from .latency import StepLatency

#: Of a core. From here on chunks wait for the thread that reads them.
BUSY = 0.8
#: Of the median gap between chunks: a chunk in a hundred is stamped late by more than this part of it.
LATE_OF_GAP = 0.25
#: Of the median time to first token.
LATE_OF_TTFT = 0.05
#: Timers are this coarse on an idle machine.
_COARSE_S = 0.005


def limits(record: RunRecord, rows: Sequence[StepLatency]) -> tuple[str, ...]:
    """A sentence per step and reason; none: nothing speaks against the figures, or the client's cost is not known."""
    if record.origin != "measured":
        return ()
    told = []
    for row in rows:
        cost = record.status.client.get(row.step)
        if row.phase == "measured" and cost is not None:
            told += [f"{row.step}: {reason}" for reason in _reasons(cost, row)]
    return tuple(told)


def _reasons(cost: ClientCost, row: StepLatency) -> list[str]:
    reasons = []
    if cost.cpu_share is not None and cost.cpu_share > BUSY:
        reasons.append(f"the client's thread used {cost.cpu_share:.0%} of a core")
    gap_s = row.itl_s.p50 if row.itl_s is not None else None
    late_s, latest_s = cost.lag_p99_s, cost.lag_max_s
    if gap_s and late_s is not None and late_s > max(_COARSE_S, LATE_OF_GAP * gap_s):
        reasons.append(
            f"its event loop was up to {late_s * 1e3:.1f} ms late (99th percentile), while chunks came every "
            f"{gap_s * 1e3:.1f} ms"
        )
    ttft_s = row.ttft_s.p50 if row.ttft_s is not None else None
    if ttft_s and latest_s is not None and latest_s > max(_COARSE_S, LATE_OF_TTFT * ttft_s):
        reasons.append(
            f"its event loop once stood still for {latest_s * 1e3:.0f} ms, while the time to first token is "
            f"{ttft_s * 1e3:.0f} ms"
        )
    return reasons
