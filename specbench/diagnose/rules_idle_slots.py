"""A rule about state slots that stay idle while requests queue: the engine reserves more for each than it holds.

The limit of running requests is slots // reserve (`_calculate_mamba_ratio`, mem_cache/kv_cache_configurator.py). The
reserve is for the peak, when a prompt has been computed and its state goes to the prefix cache; while it decodes, a
request holds its state, one or two buffers to track it and the cached state of its prompt (3 or 4 slots of 4 or 5).
In: decode lines with `mamba num` and a queue. Out: how many slots were idle, and how many requests more they would be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from ..configuration.config import RunConfig
from ..engines.sglang.resolve import settings
from ..errors import SpecbenchError
from ..planning import changes as candidates
from ..units import counted
from .case import Case
from .finding import Finding, Remedy
from .queueing import OFTEN, rows_as_lines, share, verb, waiting
from .trying import Goal, of_candidate

#: Half of the last digit of a usage as the engine prints it.
_HALF_DIGIT = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What the decode lines with a queue say of the state pool."""

    slots: int
    reserve: int | None  # of the engine for each running request; None: not known
    limit: int  # requests that ran
    held: float  # slots of each, the median over the lines
    idle: int  # slots
    more: int  # requests that the idle slots would hold
    rows: tuple[int, ...]  # of the decode table


def idle(case: Case) -> Idle | None:
    """Decode lines in which as many run as the slots allow by their reserve, others wait, and slots stay idle for at
    least one of them. None: there are none, or too few."""
    slots, reserve, rows = _slots(case), _reserve(case), _rows(case)
    if slots is None or not rows or len(rows) < OFTEN * len(case.column("line")):
        return None
    used, running = case.column("state_slots_used"), case.column("running_requests")
    limit = max(running[row] for row in rows)
    if not _limited_by_slots(case, slots, reserve, limit):
        return None
    full = tuple(row for row in rows if running[row] == limit)
    held = statistics.median(used[row] / limit for row in full)
    left = slots - statistics.median_high(used[row] for row in full)
    more = int(left // held)
    if more < 1:
        return None
    return Idle(slots=slots, reserve=reserve, limit=limit, held=held, idle=left, more=more, rows=full)


def idle_slots(case: Case) -> tuple[Finding, ...]:
    """State slots that would hold requests that wait."""
    found = idle(case)
    if found is None:
        return ()
    queued, limit, wanted = case.column("queued_requests"), found.limit, case.wanted_requests
    worst = max(found.rows, key=lambda row: queued[row])
    sum_of_it = f"({found.slots} // {found.reserve} = {limit})"
    reserved = "" if found.reserve is None else f", and the engine reserves {found.reserve} for each {sum_of_it}"
    reached = limit + found.more if wanted is None else max(limit, min(limit + found.more, wanted))
    return (
        Finding(
            id="slots-idle-while-queueing",
            cause=(
                f"Up to {counted(queued[worst], 'request')} {verb('wait', queued[worst])} while {limit} "
                f"{verb('run', limit)}, {found.idle:,} of {found.slots:,} state slots are idle and the KV pool is "
                f"{share(case.column('token_usage')[worst])} full ({len(found.rows)} of {len(queued)} decode lines): a "
                f"running request holds {found.held:g} slots{reserved}. By what they hold, the idle ones are "
                f"{counted(found.more, 'request')} more."
            ),
            severity="costly",
            evidence=(*case.pool_lines()[:1], *rows_as_lines(case, (found.rows[0], worst))),
            remedies=tuple(_remedies(case, limit + found.more)),
            lost=(reached - limit) / (wanted or reached),
        ),
    )


def _rows(case: Case) -> list[int]:
    """Waiting rows whose slots are told. A line of a batch that just ended counts none for requests that it names."""
    used, running = case.column("state_slots_used"), case.column("running_requests")
    return [row for row in waiting(case) if used[row] is not None and used[row] >= running[row]]


def _limited_by_slots(case: Case, slots: int, reserve: int | None, limit: int) -> bool:
    """Whether slots // reserve is what holds the queue, not a limit that was asked for, or tokens."""
    resolved, tokens = case.pools.running_requests, case.pools.kv_tokens
    if resolved is not None and (limit < resolved or resolved == case.wanted_requests):
        return False
    if reserve is not None:
        return slots // reserve == limit
    return tokens is None or tokens // 2 > limit


def _slots(case: Case) -> int | None:
    """Slots of the state pool: logged, or the one number by which every line's usage is its slots' share."""
    if case.pools.state_slots is not None:
        return case.pools.state_slots
    low, high = 1, 2**53
    for used, usage in zip(case.column("state_slots_used"), case.column("state_usage"), strict=True):
        if used and usage is not None and usage > _HALF_DIGIT:
            low = max(low, math.ceil(used / (usage + _HALF_DIGIT)))
            high = min(high, math.floor(used / (usage - _HALF_DIGIT)))
    return low if low == high else None


def _reserve(case: Case) -> int | None:
    """Slots that the engine reserves for a running request; its own warning says it, else the prediction."""
    said = [notice.values.get("slots_per_request") for notice in case.log.notices]
    known = next((value for value in said if isinstance(value, int)), None)
    return known if known is not None else case.limit("slots_per_request")


def _remedies(case: Case, reached: int) -> Iterator[Remedy]:
    """A smaller reserve; more slots only where no cap below what was asked offers them already."""
    if case.config is None or case.budget is None:
        return
    try:
        resolved = settings(case.config)
    except SpecbenchError:
        return
    wanted = case.wanted_requests
    target = reached if wanted is None else wanted
    extra = {} if wanted is not None else {"memory.max_running_requests": target}
    ladders: list[tuple[candidates.Change, ...]] = [(change,) for change in candidates.strategies(resolved)]
    if wanted is None:
        ladders += [(candidates.slots(resolved.slots_per_request, target),), _more_state(case.config)]
    for ladder in ladders:
        remedy = case.tried((of_candidate(change, extra) for change in ladder), Goal(requests=target, workload=False))
        if remedy is not None:
            yield remedy


def _more_state(config: RunConfig) -> tuple[candidates.Change, ...]:
    now = candidates.ratio_of(config)
    return tuple(change for change in candidates.ratios(config) if float(change.value) > now)
