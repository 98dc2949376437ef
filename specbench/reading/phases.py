"""What happened when, on the axis of a log: steps of a workload, start, idle time, prefill bursts, retractions.

In: a log, and the requests that were sent where a record has them. Out: `Phase`s on the log's own axis (`Clock`).
The axis is seconds by the lines' own stamps (resolution mostly 1 s), or line numbers where lines have none. The
non-obvious thing: a log's stamps are a local time without a zone, a request's are of the world's clock; zones differ by
quarters of an hour, so the quarter under which every step meets batch lines is the zone.
"""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ..engines.contract import ServerLog
from ..records.types import RequestTrace

Kind = Literal["step", "start", "serving", "idle", "drained", "ended", "prefill", "retraction"]
Unit = Literal["s", "line"]

_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?")
_QUARTER_S = 900
#: Stamps have a resolution of one second; a request is sent a moment before its prefill.
_SLOP_S = 1.5
#: No batch line for so long is idle time, when nothing runs after it; else for so many times the usual distance too.
_IDLE_S, _IDLE_TIMES = 5.0, 10
#: Prefill lines one after the other, without a decode line between them.
_BURST = 3
_MOST_RETRACTIONS = 200
_COLUMNS = ("line", "time", "running_requests", "queued_requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the axis, or a mark on it (begin is end)."""

    name: str
    kind: Kind
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The axis of a log. Zero is its first batch line; lines count from 1."""

    unit: Unit
    zero_s: float  # of the stamps, as if they were UTC; 0 for lines

    def at(self, line: int, stamp: str | None) -> float | None:
        """Where a line lies; None: it has no stamp, and the axis is of seconds."""
        if self.unit == "line":
            return float(line)
        seconds = stamp_s(stamp)
        return None if seconds is None else seconds - self.zero_s


@dataclass(frozen=True, slots=True)
class _Batch:
    line: int
    at: float
    is_prefill: bool
    running: int | None
    queued: int | None


def clock_of(log: ServerLog) -> Clock:
    """By stamps when most batch lines have one."""
    stamps = [stamp_s(time) for table in (log.decode, log.prefill) for time in table.get("time", ())]
    known = [stamp for stamp in stamps if stamp is not None]
    if 2 * len(known) < len(stamps) or not known:
        return Clock(unit="line", zero_s=0.0)
    return Clock(unit="s", zero_s=min(known))


def stamp_s(stamp: Any) -> float | None:
    """A log line's stamp as seconds, read as UTC; None when there is none, or none that is a time."""
    if stamp is None or isinstance(stamp, (int, float)):
        return stamp
    try:
        moment = datetime.datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    return moment.replace(tzinfo=datetime.UTC).timestamp()


def phases(log: ServerLog, requests: Sequence[RequestTrace] = ()) -> tuple[Phase, ...]:
    """In the order of their beginnings. Without a batch line: the start alone, or nothing."""
    clock = clock_of(log)
    batches = _batches(log, clock)
    found = [*_start(log, clock), *_stretches(log, clock, batches), *_bursts(batches), *_retractions(log, clock)]
    found += _steps(clock, batches, requests)
    return tuple(sorted(found, key=lambda phase: (phase.begin, phase.end)))


def _batches(log: ServerLog, clock: Clock) -> list[_Batch]:
    """All batch lines that have a place on the axis, in the order of the lines."""
    found = [
        _Batch(line, at, is_prefill, running, queued)
        for table, is_prefill in ((log.decode, False), (log.prefill, True))
        for line, time, running, queued in zip(*(table.get(name, ()) for name in _COLUMNS), strict=True)
        if (at := clock.at(line, time)) is not None
    ]
    return sorted(found, key=lambda batch: batch.line)


def _place(log: ServerLog, clock: Clock, line: int | None) -> float | None:
    """Of any line that was kept as evidence."""
    if line is None:
        return None
    stamp = _STAMP.search((log.evidence.get(line) or "")[:200])
    return clock.at(line, stamp.group() if stamp else None)


def _start(log: ServerLog, clock: Clock) -> Iterator[Phase]:
    """From the first line that is known to when the server was ready."""
    early = [log.server_args_line, *(load.line for load in log.weights), *(pool.line for pool in log.kv_pools)]
    begins = [at for line in early if (at := _place(log, clock, line)) is not None]
    ready = _place(log, clock, log.ready_line)
    if begins and ready is not None and ready >= min(begins):
        yield Phase(name="start", kind="start", begin=min(begins), end=ready)


def _stretches(log: ServerLog, clock: Clock, batches: Sequence[_Batch]) -> Iterator[Phase]:
    """Serving, and where no batch line was written, in turns; then what follows the last one.

    It is idle time where a prefill then finds nothing running; else nobody says what the server did. Lines without
    times cannot tell either.
    """
    if not batches:
        return
    gaps = [later.at - one.at for one, later in pairwise(batches) if later.at > one.at]
    usual = statistics.median(gaps) if gaps and clock.unit == "s" else float("inf")
    begin = batches[0].at
    for one, later in pairwise(batches):
        idle = later.is_prefill and later.running == 0
        if later.at - one.at > (_IDLE_S if idle else max(_IDLE_S, _IDLE_TIMES * usual)) and clock.unit == "s":
            yield Phase(name="serving", kind="serving", begin=begin, end=one.at)
            yield Phase(name="idle" if idle else "no batch line", kind="idle", begin=one.at, end=later.at)
            begin = later.at
    last = batches[-1]
    yield Phase(name="serving", kind="serving", begin=begin, end=last.at)
    after = [failure.line for failure in log.failures if failure.line > last.line]
    lines = [*after, *(notice.line for notice in log.notices if notice.line > last.line)]
    ends = [at for line in lines if (at := _place(log, clock, line)) is not None]
    if ends and max(ends) >= last.at:
        how: Kind = "ended" if after or last.queued else "drained"
        yield Phase(name=how, kind=how, begin=last.at, end=max(ends))


def _bursts(batches: Sequence[_Batch]) -> Iterator[Phase]:
    run: list[_Batch] = []
    for batch in (*batches, None):
        if batch is not None and batch.is_prefill:
            run.append(batch)
            continue
        if len(run) >= _BURST:
            yield Phase(name=f"{len(run)} prefill lines", kind="prefill", begin=run[0].at, end=run[-1].at)
        run = []


def _retractions(log: ServerLog, clock: Clock) -> Iterator[Phase]:
    found = [notice for notice in log.notices if notice.kind == "retracted"]
    for notice in found[:_MOST_RETRACTIONS]:
        at = _place(log, clock, notice.line)
        if at is not None:
            yield Phase(name="retraction", kind="retraction", begin=at, end=at)


def _steps(clock: Clock, batches: Sequence[_Batch], requests: Sequence[RequestTrace]) -> list[Phase]:
    """The steps of the workload, where the requests' clock and the log's can be brought together; else none."""
    spans: dict[str, tuple[float, float]] = {}
    for request in requests:
        if request.sent_unix_s is None or not request.chunks:
            continue
        end = request.sent_unix_s + (request.end_s if request.end_s is not None else request.chunks[-1][0])
        first, last = spans.get(request.step, (request.sent_unix_s, end))
        spans[request.step] = min(first, request.sent_unix_s), max(last, end)
    if not spans or not batches or clock.unit != "s":
        return []
    places = [batch.at for batch in batches]
    middle = round((min(first for first, _ in spans.values()) - clock.zero_s) / _QUARTER_S)
    for quarters in sorted(range(middle - 8, middle + 9), key=lambda count: abs(count - middle)):
        shift = clock.zero_s + quarters * _QUARTER_S
        moved = {step: (first - shift, last - shift) for step, (first, last) in spans.items()}
        if all(any(a - _SLOP_S <= at <= b + _SLOP_S for at in places) for a, b in moved.values()):
            return [Phase(name=step, kind="step", begin=a, end=b) for step, (a, b) in moved.items()]
    return []
