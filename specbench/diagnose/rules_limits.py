"""Rules about servers that run, but smaller than asked: fewer requests, a shorter context."""

from __future__ import annotations

from ..engines.contract import Line
from ..units import counted, format_count
from .case import Case
from .finding import Finding


def capped(case: Case) -> tuple[Finding, ...]:
    """Fewer running requests than asked, by state slots or by KV tokens."""
    asked, got = case.wanted_requests, case.pools.running_requests
    if asked is None or got is None or got >= asked or case.log.ready_line is None:
        return ()
    slots, per_request = case.pools.state_slots, case.limit("slots_per_request")
    tokens = case.pools.kv_tokens
    warnings = tuple(
        line
        for notice in case.log.notices
        if notice.kind in ("requests_reduced", "requests_capped_by_state")
        for line in case.line(notice.line)
    )
    resolved = tuple(line for summary in case.log.resolved[:1] for line in case.line(summary.line))
    evidence = (*warnings[:2], *case.pool_lines()[:1], *resolved)
    by_state = slots is not None and (
        slots // per_request <= got if per_request else tokens is None or tokens // 2 > got
    )
    if by_state:
        arithmetic = f"{slots} slots // {per_request} per request = {got}" if per_request else f"{slots} slots"
        cause = f"{counted(asked, 'request')} asked, {got} can run at once: the state pool is the limit ({arithmetic})."
        return (_finding("capped-by-state-slots", cause, evidence, case),)
    pool = format_count(tokens)
    cause = f"{counted(asked, 'request')} asked, {got} can run at once: the KV pool of {pool} tokens is the limit."
    return (_finding("capped-by-kv-tokens", cause, evidence, case),)


def context_above_pool(case: Case) -> tuple[Finding, ...]:
    """A context length that no request can use, because the pool is smaller."""
    context, tokens = case.pools.context_len, case.pools.kv_tokens
    if context is None or tokens is None or tokens >= context or case.log.ready_line is None:
        return ()
    longest = case.pools.max_input_tokens
    words = format_count(longest) if longest is not None else f"about {format_count(tokens)}"
    evidence = tuple(line for summary in case.log.resolved[:1] for line in case.line(summary.line))
    cause = (
        f"The context is {context:,} tokens, the KV pool only {tokens:,}: inputs must be shorter than {words} "
        "tokens, and outputs end early without a warning."
    )
    return (Finding(id="context-above-pool", cause=cause, severity="costly", evidence=evidence),)


def _finding(finding_id: str, cause: str, evidence: tuple[Line, ...], case: Case) -> Finding:
    return Finding(id=finding_id, cause=cause, severity="costly", evidence=evidence, remedies=case.remedies())
