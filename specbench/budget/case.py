"""A configuration with its pools solved over the interval of free memory: what a budget is read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..engines.sglang.demand import multimodal_reserve_gib
from ..engines.sglang.per_worker import requests_of_worker
from ..engines.sglang.resolve import Settings
from ..engines.sglang.sizing.allocation import Allocation, allocate
from ..engines.sglang.sizing.cell import Cell, Slot
from ..engines.sglang.sizing.contract import Demand, Pools
from ..engines.sglang.sizing.span import Solved, Span
from ..terms import Verdict
from ..units import GIB, Interval
from .freememory import Start

#: What else is gone when the last pool stands: tensors rounded up to 2 MiB, workspaces at first use. 28 H200 runs lack
#: -0.01 to 0.09 GiB; up to 0.5.13, where the target's graphs come before the draft, 0.06 to 0.18 GiB.
_UNSEEN_BYTES = GIB // 10
_UNSEEN_WITH_GRAPHS_BYTES = GIB // 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A configuration, solved."""

    settings: Settings
    slot: Slot
    cell: Cell
    demand: Demand
    start: Start
    span: Span
    #: By the identity of the pools (many rows at once have no hash); the pools beside theirs, so that it stays theirs.
    _allocations: dict[int, tuple[Pools, Allocation]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def asked(self) -> int | None:
        """Requests asked of one data-parallel worker; None: not asked, whatever fits is fine."""
        config = self.settings.config
        return requests_of_worker(config, config.memory.max_running_requests)

    def allocation(self, pools: Pools) -> Allocation:
        if id(pools) not in self._allocations:
            self._allocations[id(pools)] = pools, allocate(self.settings, self.slot, self.cell, pools)
        return self._allocations[id(pools)][1]

    def slack_bytes(self, solved: Solved, pre: int, draft_weights: int) -> int:
        """Free when every pool stands: `post` less the pools, and less the draft where it loads later."""
        kept_back = multimodal_reserve_gib(self.settings)
        post = (solved.rest_gib + kept_back) * GIB + pre * (1 - self.settings.fraction)
        later = 0 if self.settings.rule.draft_loads_first else draft_weights
        return round(post) - self.allocation(solved.pools).total_bytes - later

    def slack(self) -> Interval | None:
        """Over every point whose pools stand; None when those of the likely one do not.

        None also for a host: what it has free changes with everything that runs there.
        """
        if self.span.point.pools.refusal is not None or self.start.draft_weights is None:
            return None
        if self.settings.gpu.is_host:
            return None
        pre, draft = self.start.free.pre, self.start.draft_weights
        standing = [solved for solved in self.span.all if solved.pools.refusal is None]
        unseen = _UNSEEN_BYTES if self.settings.rule.draft_loads_first else _UNSEEN_WITH_GRAPHS_BYTES
        return Interval(
            min(self.slack_bytes(solved, pre.low, draft.high) for solved in standing) - unseen,
            self.slack_bytes(self.span.point, pre.point, draft.point),
            max(self.slack_bytes(solved, pre.high, draft.low) for solved in standing),
        )

    def verdict(self, solved: Solved) -> Verdict:
        pools = solved.pools
        if pools.refusal is not None or self.overflows(solved):
            return "refused"
        served = pools.requests or 0
        return "capped" if self.asked is not None and served < self.asked else "serves"

    def overflows(self, solved: Solved) -> bool:
        pre, draft = self.start.free.pre, self.start.draft_weights
        return draft is not None and self.slack_bytes(solved, pre.point, draft.point) < 0


def over(case: Case, figure: Callable[[Pools], int | None]) -> Interval | None:
    """A figure over the span; None when the likely point has none."""
    point = figure(case.span.point.pools)
    if point is None:
        return None
    return hull((value for value in (figure(s.pools) for s in case.span.all) if value is not None), point)


def hull(values: Iterable[int], point: int) -> Interval:
    """The likely figure with the least and the most that it may be."""
    everything = [point, *values]
    return Interval(min(everything), point, max(everything))
