"""Rules about requests that the engine refused or left without an answer.

In: a record's requests, or of a bare log its own lines and what a client pasted. Out: a finding per reason. uvicorn's
status lines are no reason: alone they are only counted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engines.contract import Line, Notice
from ..engines.sglang.logs.http_text import refusal
from ..records.types import RequestTrace
from ..units import counted, format_count
from .case import Case
from .catalogue import FindingId
from .fault import sourced
from .finding import Finding, Remedy
from .rules_limits import context_above_pool
from .rules_shortened import INPUT_KEEPS, REQUEST_KEEPS, cut_by_pool, truncated

#: The engine's text -> finding. A kind that is not here is no finding about the request's length or the queue.
_REASONS: dict[str, FindingId] = {
    "input_above_context": "context-overflow",
    "request_above_context": "context-overflow",
    "input_above_pool": "pool-overflow",
    "queue_full": "queue-full",
}
_BY_REASON: dict[FindingId, tuple[str, ...]] = {
    reason: tuple(kind for kind, known in _REASONS.items() if known == reason)
    for reason in dict.fromkeys(_REASONS.values())
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """One refused request, of a record or of a log."""

    values: Mapping[str, Any]
    evidence: Line


def overflow(case: Case) -> tuple[Finding, ...]:
    """Requests that the engine refused because of their length or its queue, with the largest as the example."""
    found = []
    for reason, kinds in _BY_REASON.items():
        refused = _refused(case, kinds)
        if not refused:
            continue
        share = len(refused) / len(case.requests) if case.requests else None
        text, remedies = _EXPLAIN[reason](case, refused, _number_of(case, refused, kinds))
        found.append(
            Finding(
                id=reason,
                cause=text,
                severity="costly",
                evidence=tuple(one.evidence for one in refused[:3]) if case.bare else (refused[0].evidence,),
                remedies=remedies,
                lost=share,
            )
        )
    return tuple(found) or _only_statuses(case)


def context_beside_requests(case: Case) -> tuple[Finding, ...]:
    """A pool below the context; only a notice where requests that met it tell what was lost, and how it is mended."""
    met = {finding.id for finding in (*overflow(case), *truncated(case), *cut_by_pool(case))}
    told = not met.isdisjoint(("pool-overflow", "input-truncated", "output-cut-by-pool"))
    return tuple(
        dataclasses.replace(finding, severity="notice", remedies=(), lost=None) if told else finding
        for finding in context_above_pool(case)
    )


def _refused(case: Case, kinds: Sequence[str]) -> list[_Refused]:
    """Of a record the requests tell (the log repeats them); of a bare log its lines."""
    if case.requests:
        said = ((request, refusal(request.error)) for request in case.requests if request.error)
        return [
            _Refused(values={**_asked(request), **found[1]}, evidence=_trace_line(request))
            for request, found in said
            if found is not None and found[0] in kinds
        ]
    return [
        _Refused(values=notice.values, evidence=case.log.at(notice.line, notice.text))
        for notice in case.log.notices
        if notice.kind in kinds
    ]


def _number_of(case: Case, refused: Sequence[_Refused], kinds: Sequence[str]) -> int:
    """Of a bare log its lines, of which few hundred are kept."""
    return len(refused) if case.requests else max(len(refused), sum(case.log.seen.get(kind, 0) for kind in kinds))


def _asked(request: RequestTrace) -> dict[str, int]:
    return {"input_tokens": request.input_tokens, "output_tokens": request.max_new_tokens}


def _trace_line(request: RequestTrace) -> Line:
    return Line(line=None, text=f"step {request.step}, request {request.index}: {request.error}")


def _beyond_context(case: Case, refused: Sequence[_Refused], number: int) -> tuple[str, tuple[Remedy, ...]]:
    """The engine compares input and output together with the context; without an output, the input alone."""
    first = refused[0].values
    context = case.pools.context_len or first.get("context_len")
    given, output = first.get("input_tokens"), first.get("output_tokens")
    who = f"{counted(number, 'request')} refused, too long for the context length: "
    if isinstance(given, int) and isinstance(output, int):
        total = f"{given:,} input + {output:,} output = {given + output:,} tokens against {format_count(context)}."
        return f"{who}{total}", case.fitting(given, output)
    longest = _largest(refused, "input_tokens")
    remedies = () if longest is None else case.fitting(longest, 1)
    return f"{who}{format_count(longest)} input tokens against {format_count(context)}.", remedies


def _beyond_pool(case: Case, refused: Sequence[_Refused], number: int) -> tuple[str, tuple[Remedy, ...]]:
    """SGLang compares the input alone, and accepts what is shorter than a few tokens less than pool or context."""
    tokens, context = case.pools.kv_tokens, case.pools.context_len
    what = "the context length" if tokens is not None and context is not None and context <= tokens else "the KV pool"
    first = refused[0].values
    longest = first.get("max_input_tokens") or case.pools.max_input_tokens
    given, output = first.get("input_tokens"), first.get("output_tokens")
    cause = (
        f"{counted(number, 'request')} refused, too long for {what}: {format_count(given)} input tokens, which must "
        f"be fewer than {format_count(longest)}."
    )
    if not isinstance(given, int):
        return cause, ()
    needed = max(given + INPUT_KEEPS, given + (output if isinstance(output, int) else 1) + REQUEST_KEEPS)
    larger = case.remedies_for_context(needed) if what == "the KV pool" else ()
    accepting = tuple(remedy for remedy in larger if (remedy.predicted.get("max_input_tokens") or 0) > given)
    return cause, accepting or case.fitting(given, output if isinstance(output, int) else 1)


def _queue_full(case: Case, refused: Sequence[_Refused], number: int) -> tuple[str, tuple[Remedy, ...]]:
    limit = (case.log.server_args or {}).get("max_queued_requests")
    most = f" {limit:,} (max_queued_requests)" if isinstance(limit, int) else " as many as max_queued_requests allows"
    running = case.pools.running_requests
    runs = "" if running is None else f" while {running} ran"
    return (
        (
            f"{counted(number, 'request')} refused with 503, the queue was full: it holds{most}{runs}. Clients may "
            "try again; a longer queue makes them wait instead."
        ),
        _longer_queue(case, limit, number),
    )


_EXPLAIN = {"context-overflow": _beyond_context, "pool-overflow": _beyond_pool, "queue-full": _queue_full}


def _longer_queue(case: Case, limit: object, refused: int) -> tuple[Remedy, ...]:
    if not isinstance(limit, int) or isinstance(limit, bool):
        return ()
    return sourced(
        case,
        {"engine.args.max-queued-requests": limit + refused},
        f"{limit + refused:,} instead of {limit:,}: those that were refused wait instead, and longer",
    )


def _largest(refused: Sequence[_Refused], name: str) -> int | None:
    return max((one.values[name] for one in refused if isinstance(one.values.get(name), int)), default=None)


def _only_statuses(case: Case) -> tuple[Finding, ...]:
    """Error statuses of a bare log whose reason stands in no line. 503 where a queue is limited: that it was full."""
    if case.requests:
        return ()
    answered = [notice for notice in case.log.notices if notice.kind == "answered"]
    full = [notice for notice in answered if notice.values.get("status") == 503]
    limit = (case.log.server_args or {}).get("max_queued_requests")
    if full and isinstance(limit, int) and case.log.ready_line is not None:
        refused = [_Refused(values={}, evidence=case.log.at(one.line, one.text)) for one in full]
        text, remedies = _queue_full(case, refused, len(refused))
        return (_counted("queue-full", text, full, case, remedies, costly=True),)
    if not answered or case.log.failures:
        return ()
    each = Counter(notice.values.get("status") for notice in answered)
    least = "at least " if case.log.seen.get("answered", 0) > len(answered) else ""  # of very many few are kept
    words = ", ".join(
        f"{least}{counted(times, 'request')} answered with {status}" for status, times in sorted(each.items())
    )
    return (
        _counted(
            "requests-failed",
            f"{words[0].upper()}{words[1:]}: the reason is in no line of this log. What the client was told says it.",
            answered,
            case,
        ),
    )


def _counted(
    finding_id: FindingId,
    cause: str,
    notices: Sequence[Notice],
    case: Case,
    remedies: tuple[Remedy, ...] = (),
    *,
    costly: bool = False,
) -> Finding:
    return Finding(
        id=finding_id,
        cause=cause,
        severity="costly" if costly else "notice",
        evidence=tuple(line for notice in notices[:3] for line in case.line(notice.line)),
        remedies=remedies,
    )


def requests_failed(case: Case) -> tuple[Finding, ...]:
    """Requests without an answer, for another reason than their length. A server that died has its own finding."""
    if case.status != "served" or not case.requests:
        return ()
    failed = [r for r in case.requests if r.error and refusal(r.error) is None]
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
            evidence=tuple(_trace_line(request) for request in failed[:3]),
            lost=len(failed) / len(case.requests),
        ),
    )
