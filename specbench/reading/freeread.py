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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..budget_types import FreeMemory
from ..engines.contract import PoolReport, ServerLog
from ..engines.sglang.logs import read as read_log
from ..engines.sglang.metrics import AVAILABLE_AFTER_START
from ..errors import RecordError
from ..rank_names import is_first
from ..records.record import RunRecord
from ..units import GIB, Interval, Quantity, format_gib
from .freeread_rank import Rank
from .gputrace import Trace
from .pools import report as pool_report
from .rank_gpus import UnknownError, gpu_of_rank

#: Said of a record in a sentence.
_UNTIMED = (
    "this record does not hold when each line of its log came (it was made before specbench timed log lines, or "
    "somebody else started the server)"
)


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
        return self.pre.shifted(-self.logged_pre.bytes)

    @property
    def post_offset(self) -> Interval:
        """To take from the printed figure."""
        return Interval.exact(self.logged_post.bytes).minus(self.post)

    @property
    def exact(self) -> bool:
        return self.pre.is_exact and self.post.is_exact

    @property
    def free(self) -> FreeMemory:
        """What a prediction is fed with."""
        return FreeMemory(pre=self.pre, post=self.post, source=self.source, watched=True)


def measured_offsets(record: RunRecord) -> MeasuredOffsets | str:
    """Of a record of a real start; else why not, in one sentence."""
    try:
        log = read_log(record.log_path, name=record.log_path.name, version=record.config.engine.version)
        return read_free(record, log, pool_report(log, record.server_info()))
    except RecordError as damaged:
        return damaged.clause


def read_free(record: RunRecord, log: ServerLog, pools: PoolReport) -> MeasuredOffsets | str:
    """The same, where the log is read already."""
    try:
        return _measured(record, log, pools)
    except UnknownError as unknown:
        return str(unknown)
    except RecordError as damaged:  # the log and the prediction from it are worth having all the same
        return damaged.clause


def _measured(record: RunRecord, log: ServerLog, pools: PoolReport) -> MeasuredOffsets:
    arrivals = {arrival.line: arrival for arrival in record.log_arrivals()}
    if not arrivals:
        raise UnknownError(_UNTIMED)
    capture = record.env.get("capture")
    if not isinstance(capture, Mapping) or not capture.get("memory_watched"):
        raise UnknownError("GPU memory was not sampled closely enough while the server started")
    logged_pre, logged_post = pools.least(pools.pre), pools.least(pools.post)
    if logged_pre is None or logged_post is None:
        raise UnknownError("the log does not print the free memory before and after loading of every rank")
    samples = record.gpu_samples()
    sampled = sorted({sample.gpu for sample in samples})
    gpus = {rank: gpu_of_rank(record, sampled, rank) for rank in pools.post}
    unrounded = next((s.value for s in record.metric_samples() if s.name == AVAILABLE_AFTER_START), None)
    ranks = [
        Rank(rank, Trace(samples, gpu), arrivals, log, unrounded if is_first(rank) else None).found()
        for rank, gpu in gpus.items()
    ]
    difference = ranks[0].difference
    checked = sum(rank.checked for rank in ranks)
    pre, post = _least([rank.pre for rank in ranks]), _least([rank.post for rank in ranks])
    return MeasuredOffsets(
        pre=pre,
        post=post,
        logged_pre=logged_pre,
        logged_post=logged_post,
        difference=difference,
        checked=checked,
        source=(
            f"measured by NVML in this start: {_words(pre)} free before loading, {_words(post)} when the pools were "
            f"sized; {checked} figures of the engine agree"
        ),
    )


def _least(intervals: Sequence[Interval]) -> Interval:
    """The solver takes the least over the ranks."""
    return Interval(*(min(ends) for ends in zip(*((i.low, i.point, i.high) for i in intervals), strict=True)))


def _words(interval: Interval) -> str:
    if interval.is_exact:
        return format_gib(interval.low, digits=4)
    return f"{interval.low / GIB:.4f} to {format_gib(interval.high, digits=4)}"
