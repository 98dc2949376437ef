"""Rules about how requests were served: slow first requests, prefix hits."""

from __future__ import annotations

import statistics

from ..engines.contract import Line
from ..reading.intervals import intervals
from ..records.types import RequestTrace
from ..units import counted
from .case import Case
from .finding import Finding

#: The first request of a shape compiles kernels: it is called slow from this factor on, and from this many seconds.
_SLOW_FACTOR, _SLOW_S = 3.0, 0.3
#: A smaller share of cached input tokens changes no latency that anyone could measure.
_HITS = 0.01
#: A line misleads that reads so many times slower than the others of as many requests, where it spoils a mean by this.
_MANY_TIMES, _SPOILED = 10.0, 0.1


def slow_first(case: Case) -> tuple[Finding, ...]:
    """The first request of a run that pays for compilation. Only told: a warm-up keeps it out of the figures."""
    ok = [request for request in case.requests if request.ok and request.ttft_s is not None]
    if len(ok) < 3:
        return ()
    first = ok[0]
    # Only requests that ran alone compare with the first one: others also waited in the queue.
    alone = [r.ttft_s for r in ok[1:] if r.concurrency == 1 and r.ttft_s is not None]
    if not alone or first.ttft_s is None:
        return ()
    usual = statistics.median(alone)
    if first.ttft_s < usual * _SLOW_FACTOR or first.ttft_s - usual < _SLOW_S:
        return ()
    measured = first.phase == "measured"
    where = "in the measured part: raise workload.warmup" if measured else "in the warm-up, so not in the figures"
    text = (
        f"step {first.step}, request {first.index}: TTFT {first.ttft_s:.3f} s for {first.input_tokens:,} input tokens"
    )
    return (
        Finding(
            id="slow-first-request",
            cause=(
                f"The first request took {first.ttft_s:.2f} s to its first token, later single ones {usual:.2f} s: "
                f"kernels are compiled on first use ({where})."
            ),
            severity="costly" if measured else "notice",
            evidence=(Line(line=None, text=text),),
        ),
    )


def prefix_hits(case: Case) -> tuple[Finding, ...]:
    """Prompts that were found in the prefix cache: then TTFT says nothing about prefill."""
    measured = [request for request in case.requests if request.phase == "measured" and request.ok]
    hits = [(request, _cached(request)) for request in measured]
    found = [(request, cached) for request, cached in hits if cached > 0]
    if found:
        share = sum(cached for _, cached in found) / max(1, sum(request.input_tokens for request in measured))
        if share < _HITS:
            return ()
        request, cached = found[0]
        line = Line(line=None, text=f"step {request.step}, request {request.index}: cached_tokens {cached}")
        return (_hits(f"{len(found)} of {len(measured)} measured requests", share, (line,)),)
    if case.requests:
        return ()
    columns = (case.log.prefill.get(name, ()) for name in ("new_tokens", "cached_tokens"))
    # A line that tells only one of them says nothing of their share.
    both = [(new, cached) for new, cached in zip(*columns, strict=True) if new is not None and cached is not None]
    new, cached_total = sum(new for new, _ in both), sum(cached for _, cached in both)
    if cached_total < _HITS * (new + cached_total) or cached_total == 0:
        return ()
    at = next(i for i, value in enumerate(case.log.prefill["cached_tokens"]) if value)
    number = case.log.prefill["line"][at]
    return (_hits("Prompts", cached_total / (new + cached_total), case.line(number)),)


def _hits(who: str, share: float, evidence: tuple[Line, ...]) -> Finding:
    return Finding(
        id="prefix-cache-hits",
        cause=(
            f"{who} were found in the prefix cache ({share:.0%} of their input tokens): "
            "time to first token is shorter than without the cache."
        ),
        severity="notice",
        evidence=evidence,
    )


def _cached(request: RequestTrace) -> int:
    value = request.meta_info.get("cached_tokens")
    return value if isinstance(value, int) else 0


def throughput_spans_idle(case: Case) -> tuple[Finding, ...]:
    """Of a bare log, whose lines are all that tells of speed: lines that read as if the server were many times slower,
    because they count idle time, and are enough of the log to spoil a mean.

    Some such line is in every log, after every pause; a long log does not suffer. A record has the clients' own times.
    """
    if not case.bare:
        return ()
    speeds, running, numbers = (case.column(name) for name in ("throughput", "running_requests", "line"))
    marks = intervals(case.log)
    busy = [at for at, mark in enumerate(marks) if mark != "spans_idle" and speeds[at] is not None]
    usual = _usual([(running[at], speeds[at]) for at in busy])
    idle = [
        at
        for at, mark in enumerate(marks)
        if mark == "spans_idle" and speeds[at] is not None and speeds[at] * _MANY_TIMES < usual.get(running[at], 0.0)
    ]
    if not idle or not busy:  # a damaged line may tell less than nothing
        return ()
    everything = statistics.fmean(speeds[at] for at in (*busy, *idle))
    alone = statistics.fmean(speeds[at] for at in busy)
    if alone - everything < _SPOILED * alone:
        return ()
    worst = min(idle, key=lambda at: speeds[at])
    said = f"line {numbers[worst]}: {speeds[worst]:,.2f} tokens/s with {running[worst]} running"
    return (
        Finding(
            id="throughput-spans-idle",
            cause=(
                f"{len(idle):,} of {counted(len(numbers), 'decode line')} {'counts' if len(idle) == 1 else 'count'} "
                f"time in which nothing ran ({said}): the engine divides by the time since its last decode line. With "
                f"such lines the mean is {everything:,.1f}, without {alone:,.1f} tokens/s. They are no figure of "
                "speed; their acceptance length is right."
            ),
            severity="notice",
            evidence=tuple(line for at in dict.fromkeys((worst, *idle[:2])) for line in case.line(numbers[at])),
        ),
    )


def _usual(rows: list[tuple[int | None, float]]) -> dict[int | None, float]:
    """Running requests -> the median throughput of the lines with so many."""
    grouped: dict[int | None, list[float]] = {}
    for running, speed in rows:
        grouped.setdefault(running, []).append(speed)
    return {running: statistics.median(speeds) for running, speeds in grouped.items()}
