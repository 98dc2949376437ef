"""A rule about a KV pool that runs full while requests decode: some are thrown out and computed again.

The engine says so in a line of its own (`update_running_batch`, sglang/srt/managers/scheduler.py; its wordings are in
`engines.sglang.logs`), and a disaggregated decode server counts those that wait to come back in its decode lines. For
a preemption by priority no release from 0.5.6 to 0.5.23 prints a line: it is not seen in a log. "Testing retraction"
is a debug mode of the engine (SGLANG_TEST_RETRACT), not pressure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..engines.contract import Line, Notice
from ..engines.sglang.given import spelled
from ..units import counted
from .case import Case
from .fault import sourced
from .finding import Finding, Remedy
from .trying import Change, Goal

CONSERVATIVENESS = "schedule-conservativeness"
_ARGUMENT = "schedule_conservativeness"
#: SGLang's own documentation of the flag: "a value like 1.3" where requests are retracted often; the default is 1.
_MORE_CONSERVATIVE = 1.3
#: Fewer retractions than one in so many decode lines cost nothing that anyone could measure.
_RARE = 100


def retraction(case: Case) -> tuple[Finding, ...]:
    """Running requests that lost their tokens, because the KV pool was full."""
    events = [notice for notice in case.log.notices if notice.kind == "retracted"]
    aborted = [notice for notice in case.log.notices if notice.kind == "request_aborted_oom"]
    waiting = _most_waiting(case)
    if not events and not aborted and waiting is None:
        return ()
    lines = case.log.seen.get("decode", len(case.column("line")))
    times = max(case.log.seen.get("retracted", 0), len(events))
    rare = not aborted and waiting is None and times * _RARE < lines
    return (
        Finding(
            id="retraction",
            cause=" ".join(_said(case, events, times, lines, aborted, waiting)),
            severity="notice" if rare else "costly",
            evidence=_evidence(case, events, aborted, waiting),
            remedies=() if rare else _remedies(case, events),
            lost=None if rare else _computed_again(case, events, times),
        ),
    )


def _said(
    case: Case, events: Sequence[Notice], times: int, lines: int, aborted: Sequence[Notice], waiting: int | None
) -> Iterator[str]:
    if events:
        requests, tokens, slots = (_sum(events, name) for name in ("requests", "tokens_gained", "slots_gained"))
        at_least = "at least " if times > len(events) else ""
        often = f", one for every {lines / times:,.1f} decode lines" if lines else ""
        what = counted(requests, "running request") if requests is not None else "running requests"
        gave = "" if tokens is None else f", which gave up {at_least}{tokens:,} KV tokens to be computed again"
        gave += "" if not slots else f" and {counted(slots, 'state slot')}"
        yield (
            f"The KV pool{_of_tokens(case)} was full {times:,} times{often} (first in line {events[0].line}): the "
            f"engine threw {at_least}{what} out{gave}."
        )
        yield from _ratio(events)
    if aborted:
        yield (
            f"{counted(len(aborted), 'request')} ended with an error, because the pool is too small for "
            f"{'it' if len(aborted) == 1 else 'each of them'} alone."
        )
    if waiting is not None:
        most = case.column("retracted_requests")[waiting]
        yield f"Up to {counted(most, 'retracted request')} waited to come back into the pool of this decode server."


def _of_tokens(case: Case) -> str:
    return "" if case.pools.kv_tokens is None else f" of {case.pools.kv_tokens:,} tokens"


def _ratio(events: Sequence[Notice]) -> Iterator[str]:
    """What the engine learns of it, as it prints it; None in an excerpt that was cut."""
    before, after = events[-1].values.get("ratio_before"), events[-1].values.get("ratio_after")
    if isinstance(before, float) and isinstance(after, float):
        yield (
            f"It had kept room for {before:.2f} of the tokens that running requests may still generate, and after "
            f"the last time for {after:.2f}."
        )


def _sum(events: Sequence[Notice], name: str) -> int | None:
    """Over all events; None when one does not say (0.5.6 names no tokens)."""
    values = [event.values.get(name) for event in events]
    known = [value for value in values if isinstance(value, int)]
    return sum(known) if known and len(known) == len(values) else None


def _most_waiting(case: Case) -> int | None:
    """The decode line with most retracted requests of a disaggregated server; None: none waited."""
    rows = [(count, -at) for at, count in enumerate(case.column("retracted_requests")) if count]
    return -max(rows)[1] if rows else None


def _computed_again(case: Case, events: Sequence[Notice], times: int) -> float | None:
    """Tokens that were given up, of all that were prefilled; None where lines of either are missing."""
    tokens, new = _sum(events, "tokens_gained"), [value for value in case.log.prefill.get("new_tokens", ()) if value]
    if tokens is None or not new or times > len(events) or case.log.seen.get("prefill", len(new)) > len(new):
        return None
    return min(1.0, float(tokens / sum(new)))


def _evidence(case: Case, events: Sequence[Notice], aborted: Sequence[Notice], waiting: int | None) -> tuple[Line, ...]:
    numbers = [event.line for event in (*events[:1], *events[-1:], *aborted[:1])]
    numbers += [] if waiting is None else [case.column("line")[waiting]]
    return tuple(line for number in dict.fromkeys(numbers) for line in case.line(number))


# ── what can be changed ──────────────────────────────────────────────────────────────────────────────────────────────


def _remedies(case: Case, events: Sequence[Notice]) -> tuple[Remedy, ...]:
    found = [*_more_conservative(case), *_more_tokens(case, events), _fewer_at_once(case, events)]
    return tuple(remedy for remedy in found if remedy is not None)


def _more_tokens(case: Case, events: Sequence[Notice]) -> tuple[Remedy, ...]:
    """A pool that would have held what the worst time gave up, for as many requests at once as now."""
    gained = [event.values.get("tokens_gained") for event in events]
    worst = max((tokens for tokens in gained if isinstance(tokens, int)), default=0)
    if case.pools.kv_tokens is None or worst <= 0:
        return ()
    found = case.remedies_for_context(case.pools.kv_tokens + worst)
    return tuple(remedy for remedy in found if "memory.context_length" not in remedy.set)


def _fewer_at_once(case: Case, events: Sequence[Notice]) -> Remedy | None:
    """As many as went on after the worst time."""
    numbers, running = case.column("line"), case.column("running_requests")
    went_on = []
    for event in events:
        at = bisect_left(numbers, event.line) - 1
        thrown_out = event.values.get("requests")
        if at >= 0 and running[at] is not None and isinstance(thrown_out, int):
            went_on.append(running[at] - thrown_out)
    limit = case.pools.running_requests
    number = min(went_on, default=0)
    if number < 1 or limit is None or number >= limit:
        return None
    note = f"{number} went on when the pool was fullest; the others wait in the queue, with nothing lost"
    change = Change({"memory.max_running_requests": number}, note)
    return case.tried([change], Goal(requests=number, workload=False))


def _more_conservative(case: Case) -> tuple[Remedy, ...]:
    now = (case.log.server_args or {}).get(_ARGUMENT)
    before = float(now) if isinstance(now, int | float) and not isinstance(now, bool) and now > 0 else 1.0
    return sourced(
        case,
        {spelled(case.config, CONSERVATIVENESS): round(before * _MORE_CONSERVATIVE, 2)},
        "keeps more room for what running requests may still generate: requests wait longer, fewer are thrown out",
        decided_by=("model", "engine.version", "memory.max_running_requests"),
    )
