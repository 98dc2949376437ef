"""The free memory that the solver read, measured: by NVML, in the start itself, without fitting anything.

In: a record's GPU samples, the arrival times of its log's lines, and the log. Out: `pre` and `post` in bytes, or in one
sentence why they are not known. What the solver reads is printed nowhere: `pre` is taken inside the distributed init,
just before the line that ends it, `post` when the pools are sized, just before the first of them is allocated. (SGLang
0.5.12: init_torch_distributed, _profile_available_bytes; 0.5.16: distributed/bootstrap.py, kv_cache_configurator.py.)

The non-obvious thing: cudaMemGetInfo, which the engine asks, and NVML count the same free bytes. That is not taken for
granted: every figure of free memory that the log prints is compared with NVML's at that moment, and one unrounded
figure that /metrics gives. Where they disagree, another process moved memory and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .budget_types import FreeMemory
from .engines.contract import PoolReport, ServerLog
from .engines.sglang.logs import read as read_log
from .engines.sglang.metrics import AVAILABLE_AFTER_START
from .errors import RecordError
from .gputrace import Level, Trace
from .pools import report as pool_report
from .record import RunRecord
from .record_types import LogArrival
from .units import GIB, MIB, Interval, Quantity, format_gib

#: From the reading of free memory to the line about it: two calls to the driver and the writing of a line.
_READ_TO_LINE_S = 0.02
#: A change that is not placed more exactly than this may hide a level that the engine read …
_SPARSE_S = 0.1
#: … in so much time before it was read.
_LOOK_BACK_S = 0.5
#: Beside the first pool: request tables (a segment of 20 MiB), and 2 MiB for each tensor that the allocator rounds up.
#: A state pool has a few tensors, a KV pool two a layer.
_BESIDE_STATE, _BESIDE_KV = 64 * MIB, 256 * MIB
#: Between two allocations of one pool less passes than the first of these; a level that stood longer than the second
#: is no step on the way down. What stood for a time in between may have been either.
_STEP_S, _RESTS_S = 0.004, 0.05
#: Memory is allocated by 2 MiB: what is less than this is a difference of counting, not an allocation in between.
_COUNTING = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOffsets:
    """Bytes per rank, the least over all ranks, as the solver takes it."""

    pre: Interval  # free memory as the solver read it before loading
    post: Interval  # … and when it sized the pools
    logged_pre: Quantity  # what the log prints instead, smallest rank
    logged_post: Quantity
    difference: Interval  # of the engine's count of free bytes and NVML's, from the checks
    checked: int  # figures of the log and of /metrics that agree with it
    source: str

    @property
    def pre_offset(self) -> Interval:
        """To add to the printed figure."""
        return _moved(self.pre, -self.logged_pre.bytes)

    @property
    def post_offset(self) -> Interval:
        """To take from the printed figure."""
        return Interval(*(self.logged_post.bytes - end for end in (self.post.high, self.post.point, self.post.low)))

    @property
    def exact(self) -> bool:
        return self.pre.is_exact and self.post.is_exact

    @property
    def free(self) -> FreeMemory:
        """What a prediction is fed with."""
        return FreeMemory(pre=self.pre, post=self.post, source=self.source, watched=True)


def measured_offsets(record: RunRecord) -> MeasuredOffsets | str:
    """Of a record of a real start; else why not, in one sentence."""
    log = read_log(record.log_path, name=record.log_path.name, version=record.config.engine.version)
    return read_free(record, log, pool_report(log, record.server_info()))


def read_free(record: RunRecord, log: ServerLog, pools: PoolReport) -> MeasuredOffsets | str:
    """The same, where the log is read already."""
    try:
        return _measured(record, log, pools)
    except _UnknownError as unknown:
        return str(unknown)
    except RecordError as damaged:  # the log and the prediction from it are worth having all the same
        return str(damaged).partition("\n")[0]


class _UnknownError(Exception):
    """Why nothing is said."""


def _measured(record: RunRecord, log: ServerLog, pools: PoolReport) -> MeasuredOffsets:
    arrivals = {arrival.line: arrival for arrival in record.log_arrivals()}
    if not arrivals:
        raise _UnknownError("when the log's lines came was not recorded")
    capture = record.env.get("capture")
    if not isinstance(capture, Mapping) or not capture.get("memory_watched"):
        raise _UnknownError("GPU memory was not sampled closely enough while the server started")
    if record.config.parallel.pp_size > 1:
        raise _UnknownError("pipeline stages: which GPU a rank has is not known")
    if not pools.pre or not pools.post:
        raise _UnknownError("the log does not print the free memory before and after loading")
    samples = record.gpu_samples()
    gpus = _gpus(record, sorted({sample.gpu for sample in samples}), list(pools.post))
    unrounded = next((s.value for s in record.metric_samples() if s.name == AVAILABLE_AFTER_START), None)
    ranks = [
        _Rank(rank, Trace(samples, gpu), arrivals, log, unrounded if rank in ("", "TP0") else None).found()
        for rank, gpu in gpus.items()
    ]
    difference = ranks[0].difference
    checked = sum(rank.checked for rank in ranks)
    pre, post = _least([rank.pre for rank in ranks]), _least([rank.post for rank in ranks])
    return MeasuredOffsets(
        pre=pre,
        post=post,
        logged_pre=min(pools.pre.values(), key=lambda quantity: quantity.bytes),
        logged_post=min(pools.post.values(), key=lambda quantity: quantity.bytes),
        difference=difference,
        checked=checked,
        source=(
            f"measured by NVML in this start: {_words(pre)} free before loading, {_words(post)} when the pools were "
            f"sized; {checked} figures of the engine agree"
        ),
    )


def _gpus(record: RunRecord, seen: Sequence[int], ranks: Sequence[str]) -> dict[str, int]:
    """Rank -> GPU. On one machine tensor-parallel rank n has the n-th visible GPU."""
    if not seen:
        raise _UnknownError(f"no GPU was sampled: {record.env.get('gpu_telemetry')}")
    visible = record.config.engine.env.get("CUDA_VISIBLE_DEVICES", _inherited(record))
    if visible is None:
        listed = list(seen)
    elif all(part.strip().isdecimal() for part in visible.split(",")):
        listed = [int(part) for part in visible.split(",")]
    elif len(seen) == 1:
        listed = list(seen)
    else:
        raise _UnknownError("CUDA_VISIBLE_DEVICES names GPUs in another way than by number")
    found = {}
    for rank in ranks:
        number = rank.removeprefix("TP") if rank else "0"
        if not number.isdecimal() or int(number) >= len(listed) or listed[int(number)] not in seen:
            raise _UnknownError(f"which GPU rank {rank or '0'} has is not known")
        found[rank] = listed[int(number)]
    return found


def _inherited(record: RunRecord) -> str | None:
    variables = record.env.get("inherited_environment")
    value = variables.get("CUDA_VISIBLE_DEVICES") if isinstance(variables, Mapping) else None
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    pre: Interval
    post: Interval
    difference: Interval
    checked: int


class _Rank:
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

    def found(self) -> _Found:
        loaded, first_pool = self._loaded_and_first_pool()
        ready = self._distributed_ready()
        for line in (ready[0], first_pool):
            read_s = self._at(line).t_s
            if self._trace.widest_gap_s(read_s - _LOOK_BACK_S, read_s) > _SPARSE_S:
                raise _UnknownError(f"NVML was sampled with gaps of more than {_SPARSE_S:g} s when memory was read")
        difference, checked = self._difference(first_pool)
        pre = self._pre(*ready)
        post = self._post(loaded, first_pool)
        return _Found(pre=_sum(pre, difference), post=_sum(post, difference), difference=difference, checked=checked)

    # ── lines and their moments ──────────────────────────────────────────────────────────────────────────────────────

    def _at(self, line: int) -> LogArrival:
        arrival = self._arrivals.get(line)
        if arrival is None:
            raise _UnknownError(f"when line {line} of the log came was not recorded")
        return arrival

    def _stood(self, line: int) -> tuple[Level, ...]:
        """The levels of which one was read for the figure in this line."""
        arrival = self._at(line)
        levels = self._trace.between(arrival.t_s - arrival.within_s - _READ_TO_LINE_S, arrival.t_s)
        if not levels:
            raise _UnknownError("the GPU was not sampled when the log's lines about memory came")
        return levels

    def _distributed_ready(self) -> tuple[int, Quantity]:
        """The line that ends the distributed init of the target, and the memory that it says was used for that."""
        for notice in self._log.notices:
            if notice.kind == "distributed_ready" and notice.rank == self._rank:
                return notice.line, notice.values["used"]
        raise _UnknownError("the log has no line about the end of the distributed init, where `pre` is read")

    def _loaded_and_first_pool(self) -> tuple[int, int]:
        """The last line about loading before the first pool, and the first pool's line."""
        pools = [pool.line for rows in (self._log.state_pools, self._log.kv_pools) for pool in rows if self._mine(pool)]
        if not pools:
            raise _UnknownError("no pool was allocated, so when memory was read for sizing is not known")
        first = min(pools)
        loads = [load.line for load in self._log.weights if self._mine(load) and load.line < first]
        if not loads:
            raise _UnknownError("the log has no line about the end of loading before the first pool")
        return max(loads), first

    def _mine(self, row: object) -> bool:
        return getattr(row, "rank", None) == self._rank

    # ── what was read ────────────────────────────────────────────────────────────────────────────────────────────────

    def _pre(self, line: int, used: Quantity) -> Interval:
        """The level before the line; of several that which is as much below an earlier one as the line says."""
        levels = self._stood(line)
        earlier = self._trace.between(self._at(line).t_s - 60.0, self._at(line).t_s)
        fitting = [
            level
            for level in levels
            if any(used.interval.contains(before.free_bytes - level.free_bytes) for before in earlier)
        ]
        if not fitting:
            raise _UnknownError("no level of memory fits what the log says the distributed init used")
        # What was sampled once, on the way down, stood after the reading: two driver calls and a line take longer.
        standing = [level for level in fitting if level.held_s >= _STEP_S] or fitting
        return _interval([level.free_bytes for level in standing], standing[-1].free_bytes)

    def _post(self, loaded: int, first_pool: int) -> Interval:
        """The level just before the first pool: the last at rest from which the pool's bytes could still be taken."""
        pool_at = self._at(first_pool)
        left = self._stood(first_pool)
        pool, beside = self._pool(first_pool)
        taken = Interval(pool.bytes - pool.resolution_bytes, pool.bytes, pool.bytes + pool.resolution_bytes + beside)
        levels = self._trace.between(self._told_at(loaded), pool_at.t_s)
        candidates = [level for level in levels if _became(level, taken, left)] or [
            level for level in levels if _passed(level, taken, left)
        ]
        read_before = self._sized(loaded, first_pool)
        if read_before is not None:
            known = {level.free_bytes for level in self._stood(read_before)}
            candidates = [level for level in candidates if level.free_bytes in known] or candidates
        if not candidates:
            raise _UnknownError("no level of memory fits the sizes that the log gives for the first pool")
        standing = [level for level in candidates if level.held_s >= _STEP_S] or candidates
        last = standing[-1]
        if len(standing) == 1 or last.held_s >= _RESTS_S:
            return Interval.exact(last.free_bytes)
        rested = max((n for n, level in enumerate(standing) if level.held_s >= _RESTS_S), default=0)
        return _interval([level.free_bytes for level in standing[rested:]], last.free_bytes)

    def _told_at(self, loaded: int) -> float:
        """When memory stood at what the line about loading prints: what stood before that was not read after it."""
        arrival = self._at(loaded)
        told = next((load.available for load in self._log.weights if load.line == loaded), None)
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
            raise _UnknownError("the log does not give the size of the first pool")
        beside = _BESIDE_STATE if any(state.line == line for state in self._log.state_pools) else _BESIDE_KV
        return Quantity(sum(part.bytes for part in known), sum(part.resolution_bytes for part in known)), beside

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
                raise _UnknownError("NVML and the engine disagree about free memory: another process moved it")
        if not checked:
            raise _UnknownError("the log prints no free memory to compare NVML's with")
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


def _became(level: Level, taken: Interval, left: Sequence[Level]) -> bool:
    """Whether one of the levels that were left is this one less `taken`."""
    return any(taken.low <= level.free_bytes - stood.free_bytes <= taken.high for stood in left)


def _passed(level: Level, taken: Interval, left: Sequence[Level]) -> bool:
    """Whether memory passed this level less `taken` on its way down, unseen: the next pool came before a sample."""
    later = [stood.free_bytes for stood in left if stood.begin_s >= level.begin_s]
    return any(
        second <= level.free_bytes - taken.low and level.free_bytes - taken.high <= first < level.free_bytes
        for first, second in pairwise(later)
    )


def _interval(values: Sequence[int], point: int) -> Interval:
    return Interval(min(values), point, max(values))


def _sum(first: Interval, second: Interval) -> Interval:
    return Interval(first.low + second.low, first.point + second.point, first.high + second.high)


def _moved(interval: Interval, by: int) -> Interval:
    return Interval(interval.low + by, interval.point + by, interval.high + by)


def _least(intervals: Sequence[Interval]) -> Interval:
    """The solver takes the least over the ranks."""
    return Interval(*(min(ends) for ends in zip(*((i.low, i.point, i.high) for i in intervals), strict=True)))


def _words(interval: Interval) -> str:
    if interval.is_exact:
        return format_gib(interval.low, digits=4)
    return f"{interval.low / GIB:.4f} to {format_gib(interval.high, digits=4)}"
