"""One rank's free memory as its solver read it: the levels of its GPU, the moments of its lines, and the rules by which
one of the levels is chosen.

In: a `Trace`, arrivals, the log. Out: a `Found`, or UnknownError with the reason. See `freeread` for what it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..engines.contract import ServerLog
from ..records.types import LogArrival
from ..units import GIB, MIB, Interval, Quantity, format_gib
from .gputrace import Level, Trace
from .pools import distributed_inits
from .rank_gpus import UnknownError

#: From the reading of free memory to the line about it: two calls to the driver and the writing of a line.
_READ_TO_LINE_S = 0.02
#: A change that is not placed more exactly than this may hide a level that the engine read …
_SPARSE_S = 0.1
#: … in so much time before it was read.
_LOOK_BACK_S = 0.5
#: From the end of loading to the first pool a level that is read stands for 4 ms and more: a longer gap may hide one.
#: When nothing has happened for a second the sampler itself looks only every 10 ms.
_CLOSE_S, _AT_REST_S, _AT_REST_GAP_S = 0.004, 1.0, 0.013
#: A distributed init is over in so much time.
_INIT_S = 60.0
#: Beside the first pool: request tables (a segment of 20 MiB), and 2 MiB for each tensor that the allocator rounds up.
#: A state pool has a few tensors, a KV pool two a layer.
_BESIDE_STATE, _BESIDE_KV = 64 * MIB, 256 * MIB
#: Between two allocations of one pool less passes than the first of these; a level that stood longer than the second
#: is no step on the way down. What stood for a time in between may have been either.
_STEP_S, _RESTS_S = 0.004, 0.05
#: Between the end of loading and the sizing workspaces are set up, a few hundred MiB at most.
_TAKEN_AFTER_LOADING = GIB
#: … and what loading left over is freed: less than that.
_FREED_AFTER_LOADING = 256 * MIB
#: Memory is allocated by 2 MiB: what is less than this is a difference of counting, not an allocation in between.
_COUNTING = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    pre: Interval
    post: Interval
    difference: Interval
    checked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """The distributed init by NVML."""

    before_bytes: int  # free before it
    after: Interval  # free after it, as the engine read it

    @property
    def taken(self) -> Interval:
        return Interval(*(self.before_bytes - end for end in (self.after.high, self.after.point, self.after.low)))


class Rank:
    """One rank: its GPU's memory and its lines."""

    def __init__(
        self,
        rank: str,
        trace: Trace,
        arrivals: Mapping[int, LogArrival],
        log: ServerLog,
        unrounded_gib: float | None,
    ) -> None:
        self._rank, self._trace, self._arrivals, self._log = rank, trace, arrivals, log
        self._unrounded_gib = unrounded_gib

    def found(self) -> Found:
        loaded, first_pool = self._loaded_and_first_pool()
        ready = self._distributed_ready()
        for line in (ready[0], first_pool):
            self._closely_sampled(self._at(line).t_s)
        difference, checked = self._difference(first_pool)
        pre = self._pre(*ready)
        post = self._post(loaded, first_pool).plus(difference)
        told = self._told(loaded)
        if told is not None and not (
            told.bytes - _TAKEN_AFTER_LOADING <= post.low <= post.high <= told.bytes + _FREED_AFTER_LOADING
        ):
            raise UnknownError(
                f"what NVML shows just before the pools ({format_gib(post.low, digits=2)}) is far from what the log "
                f"prints after loading ({format_gib(told.bytes, digits=2)}): the reading in between was not seen"
            )
        return Found(pre=pre.plus(difference), post=post, difference=difference, checked=checked)

    def init(self) -> Init:
        """What the distributed init took. The engine reads memory as soon as its context stands, then begins: before
        it is the first level that fits what the log says was used."""
        line, used = self._distributed_ready()
        at_s = self._at(line).t_s
        self._closely_sampled(at_s)
        after = self._pre(line, used)
        before = next(
            level
            for level in self._trace.between(at_s - _INIT_S, at_s)
            if any(used.interval.contains(level.free_bytes - end) for end in (after.low, after.point, after.high))
        )
        self._closely_sampled(before.begin_s)
        return Init(before_bytes=before.free_bytes, after=after)

    def _closely_sampled(self, read_s: float) -> None:
        if self._trace.widest_gap_s(read_s - _LOOK_BACK_S, read_s) > _SPARSE_S:
            raise UnknownError(f"NVML was sampled with gaps of more than {_SPARSE_S:g} s when memory was read")

    # ── lines and their moments ──────────────────────────────────────────────────────────────────────────────────────

    def _at(self, line: int) -> LogArrival:
        arrival = self._arrivals.get(line)
        if arrival is None:
            raise UnknownError(f"when line {line} of the log came was not recorded")
        return arrival

    def _stood(self, line: int) -> tuple[Level, ...]:
        """The levels of which one was read for the figure in this line."""
        arrival = self._at(line)
        levels = self._trace.between(arrival.t_s - arrival.within_s - _READ_TO_LINE_S, arrival.t_s)
        if not levels:
            raise UnknownError("the GPU was not sampled when the log's lines about memory came")
        return levels

    def _distributed_ready(self) -> tuple[int, Quantity]:
        """The line that ends the distributed init of the target, and the memory that it says was used for that."""
        init = distributed_inits(self._log).get(self._rank)
        if init is None:
            raise UnknownError("the log has no line about the end of the distributed init, where `pre` is read")
        return init.line, init.values["used"]

    def _loaded_and_first_pool(self) -> tuple[int, int]:
        """The last line about loading before the first pool, and the first pool's line."""
        pools = [pool.line for rows in (self._log.state_pools, self._log.kv_pools) for pool in rows if self._mine(pool)]
        if not pools:
            raise UnknownError("no pool was allocated, so when memory was read for sizing is not known")
        first = min(pools)
        loads = [load.line for load in self._log.weights if self._mine(load) and load.line < first]
        if not loads:
            raise UnknownError("the log has no line about the end of loading before the first pool")
        return max(loads), first

    def _mine(self, row: object) -> bool:
        return getattr(row, "rank", None) == self._rank

    # ── what was read ────────────────────────────────────────────────────────────────────────────────────────────────

    def _pre(self, line: int, used: Quantity) -> Interval:
        """The level before the line; of several that which is as much below an earlier one as the line says."""
        levels = self._stood(line)
        earlier = self._trace.between(self._at(line).t_s - _INIT_S, self._at(line).t_s)
        fitting = [
            level
            for level in levels
            if any(used.interval.contains(before.free_bytes - level.free_bytes) for before in earlier)
        ]
        if not fitting:
            raise UnknownError("no level of memory fits what the log says the distributed init used")
        # What was sampled once, on the way down, stood after the reading: two driver calls and a line take longer.
        standing = [level for level in fitting if level.held_s >= _STEP_S] or fitting
        last, at = standing[-1], self._at(line)
        if at.t_s - at.within_s - last.begin_s >= _STEP_S:  # … and it stood already while the line was made
            return Interval.exact(last.free_bytes)
        return _interval([level.free_bytes for level in standing], last.free_bytes)

    def _post(self, loaded: int, first_pool: int) -> Interval:
        """The level just before the first pool: the last at rest from which the pool's bytes could still be taken."""
        pool_at = self._at(first_pool)
        left = self._stood(first_pool)
        pool, beside = self._pool(first_pool)
        taken = Interval(pool.bytes - pool.resolution_bytes, pool.bytes, pool.bytes + pool.resolution_bytes + beside)
        told_s = self._told_at(loaded)
        levels = self._trace.between(told_s, pool_at.t_s)
        # What lies further below is the pool on its way: no level before it, however the sizes fit by chance.
        told = self._told(loaded)
        lowest = 0 if told is None else told.bytes - _TAKEN_AFTER_LOADING
        near = [level for level in levels if level.free_bytes >= lowest] or levels
        # SGLang empties its allocator's cache when it reads: what was free before that was not read. The first such
        # reading is the one for the line about loading.
        freed = [later for level, later in pairwise(levels) if later.free_bytes > level.free_bytes]
        # What was seen once, on the way down, may fit the sizes by chance.
        became = [level for level in near if _became(level, taken, left)]
        passed = [level for level in near if _passed(level, taken, left)]
        self._nothing_hidden(told_s, [*became, *passed])
        candidates = [level for level in became if level.held_s >= _STEP_S or level in freed]
        if not candidates:
            candidates = _before_steps(passed, freed)
        read_before = self._sized(loaded, first_pool)
        if read_before is not None:
            known = {level.free_bytes for level in self._stood(read_before)}
            candidates = [level for level in candidates if level.free_bytes in known] or candidates
        if not candidates:
            raise UnknownError("no level of memory fits the sizes that the log gives for the first pool")
        candidates = [level for level in candidates if level.begin_s >= _last_of(freed, candidates)]
        emptied = [level for level in freed if level.begin_s > told_s]
        standing = [level for level in candidates if level.held_s >= _STEP_S or level in emptied] or candidates
        last = standing[-1]
        if len(standing) == 1 or last.held_s >= _RESTS_S:
            return Interval.exact(last.free_bytes)
        rested = max((n for n, level in enumerate(standing) if level.held_s >= _RESTS_S), default=0)
        return _interval([level.free_bytes for level in standing[rested:]], last.free_bytes)

    def _nothing_hidden(self, told_s: float, before_pool: Sequence[Level]) -> None:
        """UnknownError when a level may have passed unseen from `told_s` until what followed the last of the levels
        that may have stood before the pool."""
        end_s = max((level.end_s for level in before_pool), default=told_s)
        for level, later in pairwise(self._trace.between(told_s, float("inf"))):
            if level.begin_s > end_s:
                return
            gap_s = later.begin_s - level.end_s
            if gap_s > (_AT_REST_GAP_S if level.held_s >= _AT_REST_S else _CLOSE_S):
                raise UnknownError(
                    f"NVML was sampled with a gap of {1000 * gap_s:.0f} ms while memory changed before the pools, so a "
                    "level may have passed unseen"
                )

    def _told(self, loaded: int) -> Quantity | None:
        """What the line about loading prints."""
        return next((load.available for load in self._log.weights if load.line == loaded), None)

    def _told_at(self, loaded: int) -> float:
        """When memory stood at what the line about loading prints: what stood before that was not read after it."""
        arrival, told = self._at(loaded), self._told(loaded)
        seen = [] if told is None else [s for s in self._stood(loaded) if told.interval.contains(s.free_bytes)]
        return seen[0].begin_s if seen else arrival.t_s - arrival.within_s

    def _pool(self, line: int) -> tuple[Quantity, int]:
        """Bytes of the pool that a line is about, and how many more may be allocated with it."""
        parts: list[Quantity | None] = []
        for state in self._log.state_pools:
            if state.line == line:
                parts += [state.conv, state.ssm, state.scratch_ssm, state.scratch_conv]
        parts += [pool.kv for pool in self._log.kv_pools if pool.line == line]
        known = [part for part in parts if part is not None]
        if not known:
            raise UnknownError("the log does not give the size of the first pool")
        beside = _BESIDE_STATE if any(state.line == line for state in self._log.state_pools) else _BESIDE_KV
        return Quantity.total(known), beside

    def _sized(self, loaded: int, first_pool: int) -> int | None:
        """A line that is written between the sizing and the first allocation; None: this start has none."""
        kinds = ("requests_reduced", "requests_capped_by_state")
        lines = [n.line for n in self._log.notices if n.kind in kinds and n.rank == self._rank]
        return next((line for line in lines if loaded < line < first_pool), None)

    # ── do NVML and the engine count the same? ───────────────────────────────────────────────────────────────────────

    def _difference(self, first_pool: int) -> tuple[Interval, int]:
        """Engine's free bytes less NVML's: what the printed figures allow, and how many figures there are.

        A figure from after the pools that fits no constant is left out: graphs are captured while others allocate.
        """
        low, high, checked = -(2**62), 2**62, 0
        for figure, line in sorted(self._figures(), key=lambda pair: pair[1]):
            levels = [level.free_bytes for level in self._stood(line)]
            least = figure.bytes - figure.resolution_bytes - max(levels)
            most = figure.bytes + figure.resolution_bytes - min(levels)
            if max(low, least) <= min(high, most):
                low, high, checked = max(low, least), min(high, most), checked + 1
            elif line < first_pool:
                raise UnknownError("NVML and the engine disagree about free memory: another process moved it")
        if not checked:
            raise UnknownError("the log prints no free memory to compare NVML's with")
        exact = self._unrounded_difference()
        if exact is not None and low <= exact <= high:
            return Interval.exact(exact), checked + 1
        if low <= 0 <= high:
            return Interval.exact(0), checked
        return Interval(low, (low + high) // 2, high), checked

    def _figures(self) -> Iterator[tuple[Quantity, int]]:
        for load in self._log.weights:
            if self._mine(load) and load.available is not None:
                yield load.available, load.line
        for end in self._log.pool_ends:
            if self._mine(end):
                yield end.available, end.line
        for capture in self._log.graphs:
            if self._mine(capture) and capture.available is not None and capture.used is not None:
                yield capture.available, capture.line
        for row in self._log.resolved:
            if self._mine(row) and row.available is not None:
                yield row.available, row.line

    def _unrounded_difference(self) -> int | None:
        """From /metrics, which gives the last of these figures with all its digits; None: not told."""
        lines = [row.line for row in self._log.resolved if self._mine(row) and row.available is not None]
        if self._unrounded_gib is None or not lines:
            return None
        read = round(self._unrounded_gib * GIB)
        nearest = min((read - level.free_bytes for level in self._stood(lines[-1])), key=abs)
        return nearest if abs(nearest) < _COUNTING else None


def _last_of(freed: Sequence[Level], candidates: Sequence[Level]) -> float:
    """When the last of `candidates` began that is in `freed`; before all time: none is."""
    return max((level.begin_s for level in candidates if level in freed), default=float("-inf"))


def _became(level: Level, taken: Interval, left: Sequence[Level]) -> bool:
    """Whether one of the levels that were left is this one less `taken`."""
    return any(taken.low <= level.free_bytes - stood.free_bytes <= taken.high for stood in left)


def _passed(level: Level, taken: Interval, left: Sequence[Level]) -> bool:
    """Whether memory passed this level less `taken` on its way down, unseen: the next pool came before a sample."""
    later = [stood.free_bytes for stood in left if stood.begin_s >= level.begin_s]
    return any(
        second <= level.free_bytes - taken.low and level.free_bytes - taken.high <= first <= level.free_bytes
        for first, second in pairwise(later)
    )


def _before_steps(passed: Sequence[Level], freed: Sequence[Level]) -> list[Level]:
    """Of levels from which a pool was taken unseen: every step on the way down may have been the last before the pool,
    so rather one at rest; and where memory was freed after it, what stood from then on."""
    rested = next((n for n in reversed(range(len(passed))) if passed[n].held_s >= _RESTS_S), None)
    if rested is None or any(level in freed for level in passed[rested + 1 :]):
        return list(passed[rested or 0 :])
    return [passed[rested]]


def _interval(values: Sequence[int], point: int) -> Interval:
    return Interval(min(values), point, max(values))
