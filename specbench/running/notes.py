"""Sentences for the record about a workload: what it cannot show, and what came otherwise than it was asked for."""

from __future__ import annotations

from ..configuration.config import RunConfig
from ..load.sending import Sending
from ..records.types import RequestTrace


def before(config: RunConfig) -> list[str]:
    """Of the workload as it is asked for."""
    workload = config.workload
    notes = []
    loads = (
        zip(workload.concurrency, workload.requests_per_load(), strict=True) if workload.request_rate is None else ()
    )
    for clients, requests in loads:
        if 0 < requests < clients:
            notes.append(f"{requests} requests cannot keep {clients} clients busy: fewer ran at once")
    if workload.load_only:
        notes.append("load only: workload.requests is 0, so there are no latencies")
    return notes


def after(sending: Sending) -> list[str]:
    """Of what was sent and answered."""
    return [*_unflushed(sending), *_shorter(sending)]


def _unflushed(sending: Sending) -> list[str]:
    """Steps whose figures may be those of a warm prefix cache. Of a server that had died there are no figures."""
    answered = {trace.step for trace in sending.traces if trace.http_status is not None}
    return [
        f"prefix cache not flushed before {step}: {answer}"
        for step, answer in sending.flushes.items()
        if step in answered and not answer.startswith("HTTP 200")
    ]


def _shorter(sending: Sending) -> list[str]:
    """Steps with answers of fewer tokens than were asked for, which no end of text explains (`ignore_eos`)."""
    steps: dict[str, list[RequestTrace]] = {}
    for trace in sending.traces:
        steps.setdefault(trace.step, []).append(trace)
    notes = []
    for step, traces in steps.items():
        short = [trace for trace in traces if trace.ok and trace.output_tokens < trace.max_new_tokens]
        if short:
            least, reasons = min(trace.output_tokens for trace in short), {str(trace.finish_reason) for trace in short}
            notes.append(
                f"{step}: {len(short)} of {len(traces)} answers have fewer tokens than were asked for (as few as "
                f"{least:,} of {short[0].max_new_tokens:,}; finish reason {', '.join(sorted(reasons)[:3])[:100]}), "
                "though ends of text are to be ignored"
            )
    return notes
