"""What measuring cost the client, and a warning where that was the limit. In: a record and its steps. Out: `Shown`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..reading.client_limit import limits
from ..reading.latency import StepLatency
from ..records.record import RunRecord
from ..records.types import ClientCost
from ..studies.study import Study
from .shown import Cell, Shown, Value, banner, joined, table


def client_cost(name: str, record: RunRecord, measured: Iterable[StepLatency]) -> Shown:
    """A row per step; nothing where it was not recorded."""
    costs = record.status.client
    steps = [row for row in measured if row.step in costs]
    if not steps:
        return Shown("", "")
    headers = ["step", "chunks", "CPU per chunk µs", "CPU of a core"]
    headers += ["times looked", "late ms", "late ms, p99", "late ms, most"]
    whose = ", measured on this machine by the client that replayed, not by the one that recorded"
    caption = (
        f"What measuring cost the client{whose if record.replayed else ''}: CPU of its thread, and how late its "
        "event loop was. The client asks its loop a hundred times a second; this costs CPU as well, which is counted, "
        "and is most of it where few chunks come"
    )
    rows = [_row(row.step + (" (warm-up)" if row.phase == "warmup" else ""), costs[row.step]) for row in steps]
    limit = _warning([(name, told) for told in limits(record, steps)])
    return joined([limit, table(headers, rows, caption=caption, unknown="not measured")])


def client_warning(studies: Iterable[Study]) -> Shown:
    """Where the client itself was the limit; nothing when it never was."""
    return _warning([(study.name, told) for study in studies for told in limits(study.record, study.latency.rows)])


def _warning(found: Sequence[tuple[str, str]]) -> Shown:
    if not found:
        return Shown("", "")
    told = "; ".join(f"{name}, {words}" for name, words in found)
    return banner(f"The client itself was the limit, so times are partly its own: {told}.")


def _row(name: str, cost: ClientCost) -> list[Value]:
    per_chunk_s, share = cost.cpu_per_chunk_s, cost.cpu_share
    return [
        name,
        cost.chunks,
        None if per_chunk_s is None else Cell(text=f"{per_chunk_s * 1e6:,.0f}", number=True),
        None if share is None else Cell(text=f"{share:.1%}", number=True),
        cost.ticks,
        *(_ms(seconds) for seconds in (cost.lag_p50_s, cost.lag_p99_s, cost.lag_max_s)),
    ]


def _ms(seconds: float | None) -> Value:
    return None if seconds is None else Cell(text=f"{seconds * 1e3:,.1f}", number=True)
