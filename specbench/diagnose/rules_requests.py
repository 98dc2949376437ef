"""Rules about requests that the engine refused, cut short or left without an answer."""

from __future__ import annotations

import re
from collections import Counter

from ..engines.contract import Line
from ..records.types import RequestTrace
from ..units import counted, format_count
from .case import Case
from .finding import Finding

#: HTTP errors of all SGLang versions (0.5.6-0.5.23) for requests that are too long.
_CONTEXT = re.compile(r"longer than the model's context length|exceeds the model's maximum context length")
_POOL = re.compile(r"exceeds the maximum allowed length")


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
                lost=len(refused) / len(case.requests),
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
