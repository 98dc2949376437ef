"""A rule about results of SGLang's own benchmark that stand in a log: requests that wait more than they are served.

By Little's law the requests that are there on average are those that come per second times the seconds that each
stays (bench_serving prints this as `Concurrency`); the share of its time that a request waits for its first token is
the share of them that wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engines.contract import Notice
from ..units import counted
from .case import Case
from .finding import Finding

#: A benchmark whose requests wait for less of their time than this tells of serving, not of a queue.
_WAITS = 0.25


def bench_queued(case: Case) -> tuple[Finding, ...]:
    """Only told: more was offered than runs at once, so the time to first token is that of the queue."""
    results = [notice for notice in case.log.notices if notice.kind == "benchmark_result"]
    found = (_queued(case, notice) for notice in results)
    return tuple(finding for finding in found if finding is not None)


def waits(values: Mapping[str, Any]) -> float | None:
    """The share of its time that a request waited for its first token, by a benchmark's figures; None: no queue."""
    ttft_ms, e2e_ms, median_ttft_ms, median_e2e_ms = (_number(values, name) for name in _TIMES)
    if not (ttft_ms and e2e_ms and median_ttft_ms and median_e2e_ms):
        return None
    share = ttft_ms / e2e_ms
    # The median too: a few requests that waited long, at the beginning, are no queue.
    return share if _WAITS <= share < 1 and _WAITS <= median_ttft_ms / median_e2e_ms < 1 else None


def _queued(case: Case, notice: Notice) -> Finding | None:
    values, share = notice.values, waits(notice.values)
    names = ("max_concurrency", "mean_concurrency", "mean_ttft_ms", "mean_e2e_ms")
    offered, there, ttft_ms, e2e_ms = (_number(values, name) for name in names)
    if share is None or not (offered and there and ttft_ms and e2e_ms):
        return None
    inputs, requests = _number(values, "input_tokens"), _number(values, "requests")
    each = f" of {inputs / requests:,.0f} input tokens" if inputs and requests else ""
    return Finding(
        id="bench-queued",
        cause=(
            f"The benchmark offered {counted(int(offered), 'request')} at once; each waited {ttft_ms / 1e3:,.1f} of "
            f"its {e2e_ms / 1e3:,.1f} s ({share:.0%}) for its first token (means). Of {there:,.0f} that were there on "
            f"average {there * (1 - share):,.0f} were past it, the others in the queue or in their prefill{each}: "
            "the time to first token is that of a server that runs fewer at once, and the time per output token that "
            "of the fewer."
        ),
        severity="notice",
        evidence=case.line(notice.line),
    )


_TIMES = ("mean_ttft_ms", "mean_e2e_ms", "median_ttft_ms", "median_e2e_ms")


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
