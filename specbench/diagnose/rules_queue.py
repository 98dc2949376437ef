"""Rules about queues beside pools with room: the limit of running requests, or admissions that the engine batches."""

from __future__ import annotations

from collections.abc import Sequence

from ..engines.contract import Line
from ..engines.sglang.admission import FLAG, asked_free_slots, formula, least_free_slots
from ..units import counted, format_count
from .case import Case
from .finding import Finding

#: A pool has room below this usage; a queue is no accident from this share of the decode lines on.
_ROOM, _OFTEN = 0.5, 0.2


def queue_with_room(case: Case) -> tuple[Finding, ...]:
    """Requests wait although pools have room: the limit of running requests is what holds them."""
    queued, usage, running = case.column("queued_requests"), case.column("token_usage"), case.column("running_requests")
    delayed = set(_delayed(case))  # these have a reason of their own
    waiting = [row for row in _waiting(case) if row not in delayed]
    if not waiting or len(waiting) < _OFTEN * len(queued):
        return ()
    limit = case.pools.running_requests
    worst = max(waiting, key=lambda row: queued[row])
    most = max(running[row] for row in waiting)
    if limit is not None and most < limit:
        return ()
    return (
        Finding(
            id="queue-with-room",
            cause=(
                f"Up to {counted(queued[worst], 'request')} {_verb('wait', queued[worst])} while {running[worst]} "
                f"{_verb('run', running[worst])} and the KV pool is {usage[worst]:.0%} full ({len(waiting)} of "
                f"{len(queued)} decode lines): the queue waits for a running one to end (limit {format_count(limit)}), "
                "not for KV tokens."
            ),
            severity="costly",
            evidence=_rows(case, (waiting[0], worst)),
        ),
    )


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
                f"Up to {counted(queued[worst], 'request')} {_verb('wait', queued[worst])} while {running[worst]} of "
                f"{slots} {_verb('run', running[worst])} and the KV pool is {usage[worst]:.0%} full ({len(rows)} of "
                f"{len(queued)} decode lines): {who} the engine admits no request until {least} running-request slots "
                f"are free{why}, and {free} {'is' if free == 1 else 'are'}. That is its design, not memory: {reason}. "
                f"--{FLAG} 1 admits at once; it changes the trade-off between latency and throughput, not results."
            ),
            severity="costly",
            evidence=_rows(case, (rows[0], worst)),
        ),
    )


def _waiting(case: Case) -> list[int]:
    """Decode lines with a queue, requests that run, and room in the KV pool."""
    columns = (case.column(name) for name in ("queued_requests", "token_usage", "running_requests"))
    return [
        row
        for row, (queued, usage, running) in enumerate(zip(*columns, strict=True))
        if queued and running and usage is not None and usage < _ROOM
    ]


def _delayed(case: Case) -> list[int]:
    """Of these, those with free running-request slots, but fewer than the engine waits for, and with free state."""
    slots, least = case.pools.running_requests, _least_free(case)
    if slots is None or least is None:
        return []
    running = case.column("running_requests")
    return [row for row in _waiting(case) if 0 < slots - running[row] < least and _state_free(case, row)]


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
    return usage is None or bool(usage < _ROOM)


def _verb(plural: str, count: int) -> str:
    return f"{plural}s" if count == 1 else plural


def _rows(case: Case, rows: Sequence[int]) -> tuple[Line, ...]:
    numbers = case.column("line")
    return tuple(line for row in dict.fromkeys(rows) for line in case.line(numbers[row]))
