"""What a plan costs against the settings as they are on as many ranks, as sentences with predicted figures."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget_types import MemoryBudget
from ..terms import Limit
from ..units import format_gib
from .changes import COSTS, Change


def costs(budget: MemoryBudget, before: MemoryBudget | None, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """`before`: the same ranks without any of the changes; None: not predicted."""
    return (*_figures(budget, before), *(f"{COSTS[change.kind]} ({change.note})" for change in _dear(changes)))


def _dear(changes: tuple[Change, ...]) -> Iterator[Change]:
    """Those whose price is not in the figures."""
    for change in changes:
        if change.kind in ("state_dtype", "kv_dtype", "draft_tokens", "strategy", "radix"):
            yield change


def _figures(budget: MemoryBudget, before: MemoryBudget | None) -> Iterator[str]:
    if before is None or before.verdict == "refused":
        yield f"{_point(budget, 'kv_tokens') or 0:,} KV tokens; as the settings are the server does not start"
    else:
        now, then = _point(budget, "kv_tokens"), _point(before, "kv_tokens")
        if now is not None and then is not None and now != then:
            yield f"{abs(now - then):,} KV tokens {'fewer' if now < then else 'more'} ({then:,} → {now:,})"
        at_once, was = _point(budget, "running_requests"), _point(before, "running_requests")
        if at_once is not None and was is not None and at_once < was:
            yield f"{was - at_once:,} requests at once fewer ({was:,} → {at_once:,})"
    slots, each = _point(budget, "state_slots"), _point(budget, "slots_per_request")
    running = _point(budget, "running_requests")
    if slots is not None and each is not None and running is not None and each > 1:
        spare = slots - each * running
        if spare <= 0:
            yield "no state slot is left for prefixes while all requests run"
    slack, was_slack = budget.terms["slack"].bytes, None if before is None else before.terms["slack"].bytes
    if slack is not None and was_slack is not None and slack.point < was_slack.point - 2**20:
        yield f"{format_gib(was_slack.point - slack.point)} less outside the pools ({format_gib(slack.point)} stay)"
    elif slack is not None and was_slack is None:
        yield f"{format_gib(slack.point)} stay outside the pools"


def _point(budget: MemoryBudget, limit: Limit) -> int | None:
    predicted = budget.limits.get(limit)
    return predicted.value.point if predicted is not None and predicted.value is not None else None
