"""Recorded requests -> latency figures per step. Plain rows; data frames are made elsewhere.

Definitions are those of SGLang's own benchmark (bench_serving): TTFT to the first chunk, TPOT over the tokens after
the first, end-to-end to the end of the stream. With speculation a chunk holds several tokens, so the gap between chunks
(ITL per chunk) is not the time per token. A failed request is counted and its text kept; it enters no figure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ..records.record import RunRecord
from ..records.types import RequestTrace
from ..terms import Origin

Metric = Literal["ttft_s", "tpot_s", "itl_s", "e2e_s", "accept_length"]

#: Of fewer values a high percentile is the largest value in other words: the smallest and the largest are told instead.
FEW = 10

#: name -> (unit, meaning); each has count, mean, minimum, p50, p90, p95, p99, maximum
METRICS: dict[Metric, tuple[str, str]] = {
    "ttft_s": ("s", "time to first token: sending to the first chunk, queueing included"),
    "tpot_s": ("s", "time per output token after the first: (end-to-end - TTFT) / (output tokens - 1), per request"),
    "itl_s": ("s", "gap between two chunks of one request (a speculative chunk holds several tokens)"),
    "e2e_s": ("s", "sending to the end of the stream"),
    "accept_length": ("tokens", "output tokens per verify round, bonus token included, per request"),
}
#: name -> (unit, meaning) of the single figures of a row
COLUMNS: dict[str, tuple[str, str]] = {
    "step": ("", "name of the step"),
    "phase": ("", "measured, or warmup: in no comparison"),
    "concurrency": ("clients", "closed loop: clients that each have one request running or waiting"),
    "request_rate": ("1/s", "open loop: mean arrivals per second"),
    "input_tokens": ("tokens", "prompt length"),
    "max_new_tokens": ("tokens", "output length asked"),
    "ok": ("requests", "answered completely"),
    "failed": ("requests", "failed; in no latency figure"),
    "inexact": ("requests", "of a replay: answered from another recorded request; not a replay: unknown"),
    "output_tokens": ("tokens", "of the requests that were answered"),
    "span_s": ("s", "first sending to last end, of the requests that were answered"),
    "output_throughput": ("tokens/s", "output tokens / span"),
    "accept_length_overall": ("tokens", "all output tokens / all verify rounds of the step"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of `count` values. Percentiles interpolate linearly between ranks, as numpy does."""

    count: int
    mean: float
    minimum: float
    p50: float
    p90: float
    p95: float
    p99: float
    maximum: float

    @property
    def few(self) -> bool:
        """Too few values for the high percentiles to mean anything."""
        return self.count < FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLatency:
    """One step. A figure that no request gave is None."""

    step: str
    phase: Literal["warmup", "measured"]
    concurrency: int | None
    request_rate: float | None
    input_tokens: int
    max_new_tokens: int
    ok: int
    failed: int
    errors: tuple[tuple[str, int], ...]  # text -> how many requests failed with it, most frequent first
    inexact: int | None
    output_tokens: int
    span_s: float | None
    output_throughput: float | None
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None
    accept_length: Distribution | None
    accept_length_overall: float | None

    def metric(self, name: Metric) -> Distribution | None:
        values: dict[Metric, Distribution | None] = {
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "itl_s": self.itl_s,
            "e2e_s": self.e2e_s,
            "accept_length": self.accept_length,
        }
        return values[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTable:
    """All steps of one record in the order of sending, warm-up included. No rows: nothing was sent (load only)."""

    name: str
    origin: Origin  # recorded or measured
    rows: tuple[StepLatency, ...]
    notes: tuple[str, ...]

    @property
    def measured(self) -> tuple[StepLatency, ...]:
        return tuple(row for row in self.rows if row.phase == "measured")


def table(record: RunRecord) -> LatencyTable:
    """The latency figures of a record."""
    traces = record.requests()
    steps = dict.fromkeys(trace.step for trace in traces)
    rows = tuple(_row([trace for trace in traces if trace.step == step]) for step in steps)
    return LatencyTable(name=record.name, origin=record.origin, rows=rows, notes=record.status.notes)


def distribution(values: Iterable[float]) -> Distribution | None:
    """None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        minimum=ordered[0],
        p50=_percentile(ordered, 0.50),
        p90=_percentile(ordered, 0.90),
        p95=_percentile(ordered, 0.95),
        p99=_percentile(ordered, 0.99),
        maximum=ordered[-1],
    )


def load_name(concurrency: int | None, request_rate: float | None) -> str:
    """'8 clients' (closed loop) or '2.5 requests/s' (open loop)."""
    if request_rate is not None:
        return f"{request_rate:g} requests/s"
    return "not logged" if concurrency is None else f"{concurrency} client{'s' if concurrency != 1 else ''}"


def tpot_s(trace: RequestTrace) -> float | None:
    """Seconds per output token after the first; None for a single token."""
    if trace.ttft_s is None or trace.end_s is None or trace.output_tokens < 2:
        return None
    return (trace.end_s - trace.ttft_s) / (trace.output_tokens - 1)


def accept_length(trace: RequestTrace) -> float | None:
    """Output tokens per verify round; None without speculation. The prefill's token counts, as in SGLang's figure."""
    rounds = trace.verify_rounds
    return trace.output_tokens / rounds if rounds else None


def _row(traces: Sequence[RequestTrace]) -> StepLatency:
    first = traces[0]
    fine = [trace for trace in traces if trace.ok]
    marks = [trace.replayed_exactly for trace in fine if trace.replayed_exactly is not None]
    tokens = sum(trace.output_tokens for trace in fine)
    rounds = sum(trace.verify_rounds or 0 for trace in fine)
    span_s = _span(fine)
    return StepLatency(
        step=first.step,
        phase=first.phase,
        concurrency=first.concurrency,
        request_rate=first.request_rate,
        input_tokens=first.input_tokens,
        max_new_tokens=first.max_new_tokens,
        ok=len(fine),
        failed=len(traces) - len(fine),
        errors=tuple(Counter(trace.error for trace in traces if trace.error is not None).most_common()),
        inexact=marks.count(False) if marks else None,
        output_tokens=tokens,
        span_s=span_s,
        output_throughput=tokens / span_s if span_s else None,
        ttft_s=_of(fine, lambda trace: trace.ttft_s),
        tpot_s=_of(fine, tpot_s),
        itl_s=distribution(gap for trace in fine for gap in _gaps(trace)),
        e2e_s=_of(fine, lambda trace: trace.end_s),
        accept_length=_of(fine, accept_length),
        accept_length_overall=tokens / rounds if rounds else None,
    )


def _of(traces: Iterable[RequestTrace], figure: Callable[[RequestTrace], float | None]) -> Distribution | None:
    return distribution(value for trace in traces if (value := figure(trace)) is not None)


def _gaps(trace: RequestTrace) -> Iterable[float]:
    times = [at_s for at_s, _ in trace.chunks]
    return (later - earlier for earlier, later in pairwise(times))


def _span(traces: Sequence[RequestTrace]) -> float | None:
    ends = [trace.sent_s + trace.end_s for trace in traces if trace.end_s is not None]
    return max(ends) - min(trace.sent_s for trace in traces) if ends else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
