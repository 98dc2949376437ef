"""Rules about the requests themselves: overflow, slow first requests, prefix hits."""

from __future__ import annotations

import re
import statistics
from collections import Counter

from ..engines.contract import Line
from ..records.types import RequestTrace
from ..units import counted, format_count
from .case import Case
from .finding import Finding

#: HTTP errors of all SGLang versions (0.5.6-0.5.23) for requests that are too long.
_CONTEXT = re.compile(r"longer than the model's context length|exceeds the model's maximum context length")
_POOL = re.compile(r"exceeds the maximum allowed length")

#: The first request of a shape compiles kernels: it is called slow from this factor on, and from this many seconds.
_SLOW_FACTOR, _SLOW_S = 3.0, 0.3
#: A smaller share of cached input tokens changes no latency that anyone could measure.
_HITS = 0.01


def overflow(case: Case) -> tuple[Finding, ...]:
    """Requests that the engine refused because they do not fit the context, or the pool."""
    findings = []
    for finding_id, pattern, told in (
        ("context-overflow", _CONTEXT, _beyond_context),
        ("pool-overflow", _POOL, _beyond_pool),
    ):
        refused = [request for request in case.requests if request.error and pattern.search(request.error)]
        if not refused:
            continue
        first = refused[0]
        findings.append(
            Finding(
                id=finding_id,
                cause=f"{counted(len(refused), 'request')} refused, too long for {told(case, first)}.",
                severity="costly",
                evidence=(Line(line=None, text=f"step {first.step}, request {first.index}: {first.error}"),),
                remedies=case.fitting(first.input_tokens, first.max_new_tokens),
            )
        )
    return tuple(findings)


def _beyond_context(case: Case, request: RequestTrace) -> str:
    total = request.input_tokens + request.max_new_tokens
    return (
        f"the context length: {request.input_tokens:,} input + {request.max_new_tokens:,} output = {total:,} tokens "
        f"against {format_count(case.pools.context_len)}"
    )


def _beyond_pool(case: Case, request: RequestTrace) -> str:
    """SGLang compares the input alone, and accepts what is shorter than a few tokens less than pool or context."""
    tokens, context = case.pools.kv_tokens, case.pools.context_len
    what = "the context length" if tokens is not None and context is not None and context <= tokens else "the KV pool"
    longest = format_count(case.pools.max_input_tokens)
    return f"{what}: {request.input_tokens:,} input tokens, which must be fewer than {longest}"


def requests_failed(case: Case) -> tuple[Finding, ...]:
    """Requests without an answer, for another reason than their length. A server that died has its own finding."""
    if case.status != "served" or not case.requests:
        return ()
    failed = [r for r in case.requests if r.error and not _CONTEXT.search(r.error) and not _POOL.search(r.error)]
    if not failed:
        return ()
    texts = Counter(request.error or "" for request in failed)
    (text, times), *others = texts.most_common()
    shown = text if len(text) <= 200 else text[:199] + "…"
    more = f" (and {counted(len(others), 'other text')})" if others else ""
    everything = len(failed) == len(case.requests)
    return (
        Finding(
            id="requests-failed",
            cause=(
                f"{'All' if everything else len(failed)} of {counted(len(case.requests), 'request')} failed although "
                f"the server ran, {times} with: {shown}{more}"
            ),
            severity="fatal" if everything else "costly",
            evidence=tuple(
                Line(line=None, text=f"step {request.step}, request {request.index}: {request.error}")
                for request in failed[:3]
            ),
        ),
    )


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
    new = sum(value or 0 for value in case.log.prefill.get("new_tokens", ()))
    cached_total = sum(value or 0 for value in case.log.prefill.get("cached_tokens", ()))
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
