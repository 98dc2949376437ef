"""One rank's memory in the order of its log: figures of free memory, and what was taken between them.

In: a `ServerLog` and a rank. Out: events in the log's own order: `Point` (so much was free) and `Taken` (that much went
to a named pool; None: the line tells no size). The order is the log's because versions differ: up to 0.5.13 pools and
graphs of the target stand before the draft loads, later ones load both first. A line that tells used and available
memory tells what was free before it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..engines.contract import Failure, GraphCapture, KvPool, Notice, ServerLog, StatePool, WeightsLoaded
from ..reading.pools import standing
from ..terms import Role, Term
from ..units import GIB, MIB, Quantity

#: torch, when memory runs out.
_GPU = re.compile(r"GPU (\d{1,3}) has a total capacity")

#: What has a place on the card: the terms, and pools that only some servers have.
Pool = Literal[Term, "kv_window", "int8_checkpoints", "replay_rings"]

#: Where a point was read: only a pool's end tells that the pools of a role stand.
PointKind = Literal["before_loading", "loaded", "pools_stand", "graphs", "summary", "other", "failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Free memory at a line."""

    line: int
    free: Quantity
    kind: PointKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Memory that went to a pool."""

    line: int
    term: Pool
    role: Role
    size: Quantity | None  # None: the line tells no size, or what it began was never logged to end


Event = Point | Taken


def events(log: ServerLog, rank: str, *, alone: bool) -> tuple[Event, ...]:
    """In the log's order. `alone`: the rank is the only one, so that a failure that names none is its own."""
    found: list[tuple[int, int, Event]] = []
    for load in log.weights:
        if load.rank == rank:
            found += _placed(load.line, _loaded(load))
    for state in log.state_pools:
        if state.rank == rank:
            found += _placed(state.line, _state(state))
    for role in ("target", "draft"):
        for pool in standing([pool for pool in log.kv_pools if (pool.rank, pool.role) == (rank, role)], role):
            found += _placed(pool.line, _kv(pool))
    for end in log.pool_ends:
        if end.rank == rank:
            found += _placed(end.line, [Point(line=end.line, free=end.available, kind="pools_stand")])
    for capture in log.graphs:
        if capture.rank == rank:
            found += _placed(capture.line, _graphs(capture))
    for row in log.resolved:
        if row.rank == rank and row.available is not None:
            found += _placed(row.line, [Point(line=row.line, free=row.available, kind="summary")])
    for notice in log.notices:
        if notice.rank == rank:
            found += _placed(notice.line, _notice(notice))
    for failure in log.failures:
        if failure.rank == rank if failure.rank else alone and _may_be_of(rank, failure):
            found += _placed(failure.line, _failure(failure))
    return tuple(event for _, _, event in sorted(found, key=lambda one: one[:2]))


def _may_be_of(rank: str, failure: Failure) -> bool:
    """Whether a failure that names no rank can be this one's: torch names the GPU, by default the rank's number."""
    gpu = _GPU.search(failure.text)
    number = rank.rpartition("TP")[2]
    return gpu is None or not number.isdecimal() or gpu[1] == number


def oom_total(failure: Failure) -> Quantity | None:
    """The card's total as torch tells it when memory runs out: CUDA's, without what the driver keeps for itself."""
    return _printed(failure.values.get("total_bytes"))


def _placed(line: int, told: list[Event]) -> Iterator[tuple[int, int, Event]]:
    return ((line, order, event) for order, event in enumerate(told))


def _before(available: Quantity | None, used: Quantity | None) -> Quantity | None:
    if available is None or used is None:
        return None
    return Quantity.total((available, used))


def _loaded(load: WeightsLoaded) -> list[Event]:
    term: Pool = "draft_weights" if load.role == "draft" else "weights"
    told: list[Event] = []
    before = load.before or _before(load.available, load.used)
    if before is not None:
        told.append(Point(line=load.line, free=before, kind="before_loading" if load.role == "target" else "other"))
    told.append(Taken(line=load.line, term=term, role=load.role, size=load.used))
    if load.available is not None:
        told.append(Point(line=load.line, free=load.available, kind="loaded"))
    return told


def _state(pool: StatePool) -> list[Event]:
    sizes: dict[Pool, Quantity | None] = {"state_conv": pool.conv, "state_ssm": pool.ssm}
    if pool.scratch_ssm is not None or pool.scratch_conv is not None:
        sizes |= {"scratch_ssm": pool.scratch_ssm, "scratch_conv": pool.scratch_conv}
    return [Taken(line=pool.line, term=term, role=pool.role, size=size) for term, size in sizes.items()]


def _kv(pool: KvPool) -> list[Event]:
    target: Pool = "kv_window" if pool.label == "SWA" else "kv"
    return [Taken(line=pool.line, term="draft_kv" if pool.role == "draft" else target, role=pool.role, size=pool.kv)]


def _graphs(capture: GraphCapture) -> list[Event]:
    taken = Taken(line=capture.line, term="graphs", role=capture.role, size=capture.used)
    if capture.available is None:
        return [taken]
    after = Point(line=capture.line, free=capture.available, kind="graphs")
    before = _before(capture.available, capture.used)
    if before is None:  # begun, and never logged to end
        return [after, taken]
    return [Point(line=capture.line, free=before, kind="graphs"), taken, after]


def _notice(notice: Notice) -> list[Event]:
    told: list[Event] = []
    match notice.kind:
        case "int8_checkpoint_pool":
            size = notice.values.get("size")
            told.append(Taken(line=notice.line, term="int8_checkpoints", role="target", size=size))
            free = notice.values.get("free")
            if isinstance(free, Quantity):
                told.append(Point(line=notice.line, free=free, kind="other"))
        case "replayssm_buffers":
            parts = [notice.values.get(name) for name in ("d", "k", "g", "rawv", "rawk", "beta")]
            sizes = [part for part in parts if isinstance(part, Quantity)]
            told.append(Taken(line=notice.line, term="replay_rings", role="target", size=Quantity.total(sizes)))
    return told


def _failure(failure: Failure) -> list[Event]:
    free = _printed(failure.values.get("free_bytes"))
    return [] if free is None else [Point(line=failure.line, free=free, kind="failure")]


def _printed(value: object) -> Quantity | None:
    """torch prints two decimals of the unit that leaves at least 1 before the point (c10: format_size)."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = next((unit for unit in (GIB, MIB, 2**10) if value >= unit), 1)
    return Quantity(value, 0 if unit == 1 else max(1, unit // 200))
