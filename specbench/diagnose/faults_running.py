"""Servers that ended while they served: the pool that ran out, or what hung.

In: a case and its failure. Out: a fault. Sources of what causes each: mem_cache/allocation.py (common.py up to 0.5.15),
mem_cache/memory_pool.py, managers/schedule_policy.py, managers/scheduler_components/invariant_checker.py,
utils/watchdog.py.
"""

from __future__ import annotations

from typing import Any

from ..engines.contract import Failure
from ..units import format_count
from .case import Case
from .engine_fault import TO_REPORT
from .fault import Fault, flags_version, last_batch, said, sourced
from .finding import Remedy
from .hangs import OFTEN, silent_ranks, stacks
from .trying import Change, Goal

#: SGLANG_INIT_NEW_TOKEN_RATIO: the share of max_new_tokens that admission expects (managers/scheduler.py).
_EXPECTED_SHARE = 0.7


def kv_pool(case: Case, failure: Failure) -> Fault:
    """The KV pool had fewer tokens than a batch that was admitted needed."""
    wanted, free, cached = (_number(failure, name) for name in ("tokens_wanted", "free_entries", "cached_entries"))
    step = "decode" if failure.text.startswith("Decode") else "prefill"
    tokens = case.pools.kv_tokens
    cause = f"The KV pool ran out at a {step} step"
    if wanted is not None and free is not None:
        cause += f": {wanted:,} tokens were needed, {free:,} were free and {format_count(cached)} could be evicted"
    elif wanted is not None:
        cause += f": {wanted:,} tokens were needed"
    cause += f", of {tokens:,}" if tokens is not None else ""
    cause += (
        f". Requests are admitted on the expectation that they use {_EXPECTED_SHARE:.0%} of their max_new_tokens, and "
        "those that run are retracted before this happens; that it happened is a fault of the engine's count, which a "
        "larger pool, fewer requests or a stricter admission avoid."
    )
    predicted = case.remedies_for_context(tokens + wanted) if tokens is not None and wanted is not None else ()
    return Fault(
        id="kv-pool-exhausted",
        cause=f"{cause} {_when(case)}The engine says: {said(failure)}",
        remedies=(
            *predicted,
            *sourced(
                case,
                {"engine.args.schedule-conservativeness": 1.43},
                f"{_EXPECTED_SHARE} × 1.43 = 1: every request is admitted with its whole max_new_tokens; fewer run "
                "at once",
            ),
            *_fewer(case, "each takes fewer tokens of the pool"),
        )[:6],
        evidence=(*case.pool_lines(), *last_batch(case)),
    )


def request_slots(case: Case, failure: Failure) -> Fault:
    """More requests were admitted than there are rows."""
    left, requests = _number(failure, "slots_left"), _number(failure, "requests")
    figures = "" if left is None or requests is None else f": {requests} were to begin, {left} rows were free"
    limit = case.pools.running_requests
    rows = "" if limit is None else f", {limit} here"
    return Fault(
        id="request-slots-exhausted",
        cause=(
            f"More requests were admitted than the table of requests has rows{figures}. It has one for each of "
            f"max_running_requests{rows}. No memory is missing: admission counted wrong, or rows of ended requests "
            f"were not given back; {TO_REPORT.partition(': ')[2]} {_when(case)}The engine says: {said(failure)}"
        ),
        remedies=_fewer(case, "the engine's own advice: a full table is met later"),
        evidence=last_batch(case),
    )


#: What in the engine's text tells which state could not be kept.
_STATES = (
    ("ping pong", "the second state of a request, kept for the prefix cache (ping-pong buffer)"),
    ("int8", "an int8 checkpoint of a cached prefix"),
    ("Can not alloc mamba cache", "the state of a cached prefix that a request continues"),
    ("", "the state of a request"),
)


def state_slots(case: Case, failure: Failure) -> Fault:
    """No state slot was free, nor could one be evicted."""
    what = next(words for text, words in _STATES if text in failure.text)
    slots = _number(failure, "state_slots") or case.pools.state_slots or _asked_slots(case)
    left = _number(failure, "slots_left")
    per_request, running = case.limit("slots_per_request"), _requests(case)
    cause = f"No slot of the state pool was free for {what}"
    cause += (
        f" ({left} of {slots} free)."
        if left is not None and slots is not None
        else (f" (of {slots})." if slots is not None else ".")
    )
    if per_request and running and slots is not None:
        cause += f" {running} requests hold up to {running} × {per_request} = {running * per_request} slots."
    cause += (
        " Slots of cached prefixes are evicted first, but not those that running requests build on"
        + (", nor those that are being copied to the host" if _hierarchical(case) else "")
        + ": the pool is too small for the prefixes that are in use at once."
    )
    return Fault(
        id="state-slots-exhausted",
        cause=f"{cause} {_when(case)}The engine says: {said(failure)}",
        remedies=_room_for_states(case, failure, slots),
        evidence=(*case.pool_lines(), *last_batch(case)),
    )


def _room_for_states(case: Case, failure: Failure, slots: int | None) -> tuple[Remedy, ...]:
    found: list[Remedy] = []
    version = flags_version(case)
    if "int8" in failure.text:
        asked = (case.log.server_args or {}).get("int8_mamba_ckpt_size")
        if isinstance(asked, int) and asked > 0:
            found += sourced(
                case,
                {"engine.args.int8-mamba-ckpt-size": 2 * asked},
                f"{2 * asked:,} instead of {asked:,} checkpoints; they take memory beside the static fraction",
            )
    elif slots is not None:
        more = [
            Change(
                {"memory.max_mamba_cache_size": slots * factor // 2},
                f"{slots * factor // 2} slots instead of {slots}; the KV pool pays",
            )
            for factor in (4, 3)
        ]
        if case.budget is not None:
            remedy = case.tried(more, Goal(requests=_requests(case) or 1))
            found += [] if remedy is None else [remedy]
        else:
            found += sourced(
                case, more[0].set, f"{more[0].note}; whether the memory suffices is not known", version=version
            )
    found += _fewer(case, "fewer states are in use at once")
    found += sourced(
        case,
        {"memory.disable_radix_cache": True},
        "no prefix is kept: one slot for each request; prompts are computed whole",
    )
    return tuple(found)


def memory_leak(case: Case, failure: Failure) -> Fault:
    """Idle, the pool did not add up: the engine ends itself, unless told only to warn."""
    free, cached, locked, whole = (
        _number(failure, name) for name in ("free_entries", "cached_entries", "locked_entries", "all_entries")
    )
    figures = ""
    if free is not None and whole is not None:
        parts = [(free, "free"), (cached, "cached"), (locked, "locked")]
        known = sum(size for size, _ in parts if size is not None)
        named = " + ".join(f"{size:,} {name}" for size, name in parts if size is not None)
        off = abs(whole - known)
        verb = "is" if off == 1 else "are"
        figures = f": {named} = {known:,} of {whole:,}, {off:,} {verb} {'missing' if known < whole else 'too many'}"
    return Fault(
        id="memory-leak",
        cause=(
            f"With nothing running, the {failure.values.get('pool', 'pool')} does not add up{figures}. The engine "
            "checks that when it is idle, and ends itself. It is a fault of the engine, to be reported with these "
            f"lines. The engine says: {said(failure)}"
        ),
        remedies=sourced(
            case,
            {},
            "it warns and goes on; what has leaked stays lost until the next start",
            env={"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0"},
        ),
        evidence=last_batch(case),
    )


def watchdog(case: Case, failure: Failure) -> Fault:
    """A process made no step for as long as the watchdog waits."""
    seconds = failure.values.get("timeout_s")
    name = str(failure.values.get("name", "Scheduler"))
    waited = f" for {seconds:g} s" if isinstance(seconds, float) else ""
    phase = "serving" if failure.phase == "serving" else "starting"
    return Fault(
        id="watchdog-timeout",
        cause=(
            f"The {name} did not finish a step{waited} while {phase}, and its watchdog ended the server. "
            f"{_when(case)}{stacks(case)} Most often it is {OFTEN}.{silent_ranks(case)}"
        ),
        remedies=sourced(
            case,
            {"engine.args.watchdog-timeout": int(3 * seconds) if isinstance(seconds, float) else 900},
            "waits longer: right for a step that is only slow (kernels compiled on first use, a large chunk)",
        ),
        evidence=last_batch(case),
    )


def _when(case: Case) -> str:
    """How full it was by its last decode line, as a sentence with a space behind."""
    running, queued = (_last(case, name) for name in ("running_requests", "queued_requests"))
    usage = _last(case, "token_usage")
    if running is None:
        return ""
    full = "" if usage is None else f", the KV pool {usage:.0%} full"
    return f"By its last decode line {running} ran, {format_count(queued)} waited{full}. "


def _last(case: Case, name: str) -> Any:
    column = case.column(name)
    return column[-1] if column else None


def _fewer(case: Case, note: str) -> tuple[Remedy, ...]:
    """Half the running requests."""
    running = _requests(case)
    if running is None or running < 2:
        return ()
    return sourced(
        case,
        {"memory.max_running_requests": running // 2},
        f"{running // 2} instead of {running} at once: {note}; the rest waits in the queue",
    )


def _requests(case: Case) -> int | None:
    return case.pools.running_requests or case.wanted_requests


def _asked_slots(case: Case) -> int | None:
    asked = case.pools.requested.get("state_slots")
    return asked if isinstance(asked, int) else None


def _hierarchical(case: Case) -> bool:
    return (case.log.server_args or {}).get("enable_hierarchical_cache") is True


def _number(failure: Failure, name: str) -> int | None:
    value = failure.values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
