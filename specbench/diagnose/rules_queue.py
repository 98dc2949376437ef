"""Rules about queues beside pools with room: the limit of running requests, or admissions that the engine batches."""

from __future__ import annotations

from ..engines.sglang.admission import FLAG, asked_free_slots, formula, least_free_slots
from ..engines.sglang.given import spelled
from ..units import counted, format_count
from .case import Case
from .fault import sourced
from .finding import Finding, Remedy
from .queueing import OFTEN, ROOM, rows_as_lines, share, verb, waiting
from .rules_idle_slots import idle


def queue_with_room(case: Case) -> tuple[Finding, ...]:
    """Requests wait although pools have room: the limit of running requests is what holds them.

    A limit that was asked for and granted is no trouble: then the load is named. Where state slots stay idle beside
    the queue, that says more (`rules_idle_slots`).
    """
    queued, usage, running = case.column("queued_requests"), case.column("token_usage"), case.column("running_requests")
    delayed = set(_delayed(case))  # these have a reason of their own
    rows = [row for row in waiting(case) if row not in delayed]
    if not rows or len(rows) < OFTEN * len(queued) or idle(case) is not None:
        return ()
    limit = case.pools.running_requests
    worst = max(rows, key=lambda row: queued[row])
    most = max(running[row] for row in rows)
    if limit is not None and most < limit:
        return ()
    evidence = rows_as_lines(case, (rows[0], worst))
    if limit is not None and limit == case.wanted_requests:
        return (
            Finding(id="queue-with-room", cause=_as_asked(case, limit, worst), severity="notice", evidence=evidence),
        )
    return (
        Finding(
            id="queue-with-room",
            cause=(
                f"Up to {counted(queued[worst], 'request')} {verb('wait', queued[worst])} while {running[worst]} "
                f"{verb('run', running[worst])} and the KV pool is {share(usage[worst])} full ({len(rows)} of "
                f"{len(queued)} decode lines): the queue waits for a running one to end (limit {format_count(limit)}), "
                "not for KV tokens."
            ),
            severity="costly",
            evidence=evidence,
        ),
    )


def _as_asked(case: Case, limit: int, worst: int) -> str:
    """More requests than were asked to run at once, in words; and what memory would allow, by the prediction."""
    queued, usage, running = case.column("queued_requests"), case.column("token_usage"), case.column("running_requests")
    clients = _clients(case)
    there = running[worst] + queued[worst] if clients is None else clients
    who = f"{there} requests were there at once" if clients is None else f"{counted(clients, 'client')} sent"
    said = (
        f"{who}, {limit} {'was' if limit == 1 else 'were'} asked to run at once: up to {queued[worst]} waited, as "
        f"configured; the KV pool was {share(usage[worst])} full"
    )
    if not case.one_engine or case.budget is None or there <= limit:
        return f"{said}."
    more = case.room_up_to(there)
    if more is not None:
        return f"{said}, so memory allows more ({more.predicted['running_requests']} at once, by the prediction)."
    return f"{said}, but memory allows no more at once, by the prediction: {case.why_no_more()}"


def _clients(case: Case) -> int | None:
    """Most clients at once, each with one request; None: not known (a bare log, an open loop)."""
    known = [request.concurrency for request in case.requests]
    return max((one for one in known if one is not None), default=None) if None not in known else None


def admission_delayed(case: Case) -> tuple[Finding, ...]:
    """Requests wait beside free running-request slots, because the engine admits several at once or none."""
    rows = _delayed(case)
    slots, least = case.pools.running_requests, _least_free(case)
    if not rows or slots is None or least is None:
        return ()
    queued, running, usage = case.column("queued_requests"), case.column("running_requests"), case.column("token_usage")
    worst = max(rows, key=lambda row: queued[row])
    free = slots - running[worst]
    arguments = case.log.server_args or {}
    asked = asked_free_slots(arguments)
    if asked is None:
        who, why = f"with {arguments.get('speculative_algorithm')}", f" ({formula(slots)})"
        reason = "admissions are batched, because each costs a draft prefill"
    else:
        who, why, reason = f"with --{FLAG} {asked}", "", "admissions are batched"
    return (
        Finding(
            id="admission-delayed",
            cause=(
                f"Up to {counted(queued[worst], 'request')} {verb('wait', queued[worst])} while {running[worst]} of "
                f"{slots} {verb('run', running[worst])} and the KV pool is {share(usage[worst])} full ({len(rows)} "
                f"of {len(queued)} decode lines): {who} the engine admits no request until {least} running-request "
                f"slots are free{why}, and {free} {'is' if free == 1 else 'are'}. That is its design, not memory: "
                f"{reason}. --{FLAG} 1 admits at once; it changes the trade-off between latency and throughput, "
                "not results."
            ),
            severity="costly",
            evidence=rows_as_lines(case, (rows[0], worst)),
            remedies=_admit_at_once(case),
            beside=_ran_fewer(case, slots, least),
        ),
    )


def _ran_fewer(case: Case, slots: int, least: int) -> str:
    """'17 of these 20 ran: DFLASH admits only when 4 places are free, --min-free-slots-delay 1.'; "": all ran once."""
    arguments, at_once = case.log.server_args or {}, case.at_once
    if at_once is None or at_once.requests >= slots:
        return ""
    asked = asked_free_slots(arguments)
    who = arguments.get("speculative_algorithm") if asked is None else f"the server (--{FLAG} {asked})"
    return f"{at_once.requests} of these {slots} ran: {who} admits only when {least} places are free, --{FLAG} 1."


def _admit_at_once(case: Case) -> tuple[Remedy, ...]:
    return sourced(
        case,
        {spelled(case.config, FLAG): 1},
        "admits each request at once, with a prefill for it alone: throughput may fall",
        decided_by=("model", "engine.version", "speculative.algorithm", "memory.max_running_requests"),
    )


def _delayed(case: Case) -> list[int]:
    """Of these, those with free running-request slots, but fewer than the engine waits for, and with free state."""
    slots, least = case.pools.running_requests, _least_free(case)
    if slots is None or least is None:
        return []
    running = case.column("running_requests")
    return [row for row in waiting(case) if 0 < slots - running[row] < least and _state_free(case, row)]


def _least_free(case: Case) -> int | None:
    version, arguments, slots = case.rules_version, case.log.server_args, case.pools.running_requests
    if version is None or arguments is None or slots is None:
        return None
    return least_free_slots(version, arguments, slots)


def _state_free(case: Case, row: int) -> bool:
    """Whether the state pool has slots for one more request."""
    used, slots = case.column("state_slots_used")[row], case.pools.state_slots
    if used is not None and slots is not None:
        return bool(slots - used >= (case.limit("slots_per_request") or 1))
    usage = case.column("state_usage")[row]
    return usage is None or bool(usage < ROOM)
