"""Rules about what has not happened yet: what `predict` warns of with these settings, of a server that still stands.

In: a case. Out: findings with the arithmetic and the remedies of the same fault after it has happened. Once the log
shows that the server came past it (a full batch that was decoded, a full prefill), nothing is said.
"""

from __future__ import annotations

from ..engines.contract import Line
from ..engines.sglang.resolve import Settings, settings
from ..engines.sglang.verify_mask import FullMask, ends_at_full_batch, full_mask
from ..errors import SpecbenchError
from ..units import GIB, counted, format_gib
from .case import Case
from .engine_fault import of_mask
from .finding import Finding
from .rules_limits import stands


def fault_ahead(case: Case) -> tuple[Finding, ...]:
    """A fault of the engine's version that such a server has not met yet."""
    resolved = _resolved(case)
    if resolved is None or not stands(case):
        return ()
    running = case.pools.running_requests or case.limit("running_requests")
    if running and ends_at_full_batch(resolved, running):
        return _full_batch(case, resolved, running)
    fault = None if case.budget is None else case.budget.fault
    if fault is None or case.log.ready_line is not None:  # what such a fault ends does not become ready
        return ()
    return (
        Finding(
            id="known-fault-ahead",
            cause=f"The log ends before the server is ready. {fault.removeprefix('Memory suffices, but ')}",
            severity="costly",
            evidence=case.line(case.log.server_args_line),
        ),
    )


def _resolved(case: Case) -> Settings | None:
    try:
        return None if case.config is None else settings(case.config)
    except SpecbenchError:  # a model or an algorithm that is not known
        return None


def _full_batch(case: Case, resolved: Settings, running: int) -> tuple[Finding, ...]:
    context = case.pools.context_len or case.limit("context_len")
    largest = max((size for graph in case.log.graphs for size in graph.batch_sizes or ()), default=running)
    width = resolved.shape.verify_width
    if not context or not width or largest != running or _decoded(case) >= running:
        return ()
    if any(full_mask(failure, case.log.server_args or {}, context) for failure in case.log.failures):
        return ()  # it has happened, and is told as what ended it
    fault = of_mask(case, FullMask(requests=running, draft_tokens=width, context=context))
    seen = case.at_once
    which = "the next one with these settings" if case.log.failures else "it"
    at_most = "none is seen to have run" if seen is None or not seen.requests else f"at most {seen.requests} ran"
    return (
        Finding(
            id="known-fault-ahead",
            cause=(
                f"{fault.cause} This server has not met it in this log ({at_most} at once): {which} ends as soon as "
                f"{counted(running, 'request')} {'runs' if running == 1 else 'run'}."
            ),
            severity="costly",
            evidence=(*_captured(case, running), *_resolved_lines(case)),
            remedies=fault.remedies,
        ),
    )


def _decoded(case: Case) -> int:
    """Most requests that a decode line tells of: a batch that was verified whole. 0: none does."""
    return max((count for count in case.column("running_requests") if count), default=0)


def _captured(case: Case, running: int) -> tuple[Line, ...]:
    graphs = [one.line for one in case.log.graphs if one.role == "target" and running in (one.batch_sizes or ())]
    return tuple(line for number in graphs[:1] for line in case.line(number))


def _resolved_lines(case: Case) -> tuple[Line, ...]:
    return tuple(line for summary in case.log.resolved[:1] for line in case.line(summary.line))


def memory_ahead(case: Case) -> tuple[Finding, ...]:
    """Less beside the pools, by the log, than a full prefill is estimated to take, which none was yet."""
    estimate = None if case.budget is None else case.budget.details.get("estimated_activations_bytes")
    left = [one.available for one in case.log.resolved if one.available is not None]
    if estimate is None or not left or case.log.ready_line is None or case.log.failures:
        return ()
    least = min(left, key=lambda free: free.bytes)
    chunk, most = _chunk(case), max((count for count in case.log.prefill.get("new_tokens", ()) if count), default=0)
    if chunk is None or least.bytes >= estimate.point or most >= chunk:
        return ()
    done = "none was seen" if not most else f"the longest that was seen had {counted(most, 'token')}"
    return (
        Finding(
            id="out-of-memory-ahead",
            cause=(
                f"Likely out of memory at a full prefill: {format_gib(least.bytes)} are free beside pools and graphs "
                f"(logged), and a prefill of {chunk:,} tokens takes {format_gib(estimate.point)} (estimated: "
                f"{format_gib(estimate.low)} to {format_gib(estimate.high)}): about "
                f"{(estimate.point - least.bytes) / GIB:.1f} GiB are missing. It has not happened in this log ({done})."
            ),
            severity="notice",
            evidence=_resolved_lines(case),
            remedies=case.less_memory(),
        ),
    )


def _chunk(case: Case) -> int | None:
    """Tokens of a full prefill, at most those of the KV pool; unchunked, all that the engine takes at once."""
    for summary in case.log.resolved:
        chunk, tokens = summary.chunked_prefill_size, case.pools.kv_tokens
        full = summary.max_prefill_tokens if chunk is None or chunk <= 0 else chunk
        return full if full is None or tokens is None else min(full, tokens)
    return None
