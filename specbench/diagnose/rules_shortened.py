"""Rules about requests that were served in part: inputs that were cut, answers that ended early, both without an error.

In: a case. Out: a finding each. Source: managers/utils.py (validate_input_length), managers/scheduler.py
(max_new_tokens), managers/tp_worker.py of 0.5.6.post2 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engines.contract import Line
from ..units import counted
from .case import Case
from .finding import Finding, Remedy

#: A truncated input may be said twice of one request: by the tokenizer for the context, by the scheduler for the pool.
_TRUNCATED = "input_truncated"
#: SGLang keeps one token free of every request, and one of the pool (scheduler.py: max_req_len, max_new_tokens).
REQUEST_KEEPS = 2
#: An input has to be shorter than pool or context less six (tp_worker.py: max_req_input_len).
INPUT_KEEPS = 7


def truncated(case: Case) -> tuple[Finding, ...]:
    """Inputs that were cut to what fits, by --allow-auto-truncate: the answer is to another question."""
    notices = [notice for notice in case.log.notices if notice.kind == _TRUNCATED]
    # The scheduler's line names the pool; the tokenizer's, before it, the context.
    by_pool = [notice for notice in notices if "max_input_tokens" in notice.values]
    told = by_pool or notices
    if not told:
        return ()
    worst = max(told, key=lambda notice: _cut(notice.values))
    given, kept = worst.values["input_tokens"], _kept(worst.values)
    tokens, context = case.pools.kv_tokens, case.pools.context_len
    pool = by_pool and tokens is not None and (context is None or tokens < context)
    why = "the KV pool" if pool else "the context length"
    longest = given if context is None else min(given, context - INPUT_KEEPS)  # a larger pool takes no more
    return (
        Finding(
            id="input-truncated",
            cause=(
                f"{counted(len(told), 'request')} cut to fit {why} (--allow-auto-truncate): of {given:,} input tokens "
                f"the first {kept:,} were kept, the rest was not seen by the model."
            ),
            severity="costly",
            evidence=tuple(line for notice in told[:3] for line in case.line(notice.line)),
            remedies=_that_take(case, longest) if pool else (),
            lost=_cut(worst.values) / given if given else None,
        ),
    )


def _that_take(case: Case, input_tokens: int) -> tuple[Remedy, ...]:
    """Larger pools by which an input of that length is taken whole."""
    found = case.remedies_for_context(input_tokens + INPUT_KEEPS)
    return tuple(remedy for remedy in found if (remedy.predicted.get("max_input_tokens") or 0) > input_tokens)


def _kept(values: Mapping[str, Any]) -> int:
    return int(values.get("max_input_tokens") or values.get("context_len") or 0)


def _cut(values: Mapping[str, Any]) -> int:
    return max(0, int(values.get("input_tokens") or 0) - _kept(values))


def cut_by_pool(case: Case) -> tuple[Finding, ...]:
    """Answers that ended with "length" before the tokens that were asked: the engine lowers max_new_tokens silently.

    scheduler.py: at most max_req_len - input - 1, with max_req_len the lesser of context and pool, less one.
    """
    cut = [
        request
        for request in case.requests
        if request.ok and request.finish_reason == "length" and 0 < request.output_tokens < request.max_new_tokens
    ]
    if not cut:
        return ()
    worst = max(cut, key=lambda request: request.max_new_tokens - request.output_tokens)
    tokens = case.pools.kv_tokens
    allowed = None if tokens is None else max(0, tokens - 1 - worst.input_tokens - 1)
    arithmetic = (
        ""
        if tokens is None or allowed is None
        else f": {tokens:,} tokens of KV - 1 - {worst.input_tokens:,} input - 1 = {allowed:,} may be answered"
    )
    needed = max(request.input_tokens + request.max_new_tokens for request in cut) + REQUEST_KEEPS
    return (
        Finding(
            id="output-cut-by-pool",
            cause=(
                f"{counted(len(cut), 'answer')} ended early as if by the requested length: {worst.output_tokens:,} of "
                f"{worst.max_new_tokens:,} tokens{arithmetic}. The engine lowers max_new_tokens without a word."
            ),
            severity="costly",
            evidence=tuple(
                Line(
                    line=None,
                    text=(
                        f"step {request.step}, request {request.index}: finish_reason length after "
                        f"{request.output_tokens:,} of {request.max_new_tokens:,} tokens"
                    ),
                )
                for request in cut[:3]
            ),
            remedies=tuple(
                remedy
                for remedy in case.remedies_for_context(needed)
                if (remedy.predicted.get("kv_tokens") or 0) >= needed
            ),
            lost=1 - sum(r.output_tokens for r in cut) / sum(r.max_new_tokens for r in cut),
        ),
    )
