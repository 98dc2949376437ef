"""What a plan costs against the settings as they are on as many ranks, as sentences with predicted figures."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget_types import MemoryBudget
from ..terms import Limit
from ..units import MIB, format_gib
from .changes import COSTS, Change

#: Less than this of slack is the tables of more or fewer requests, and nothing that one gives up.
_WORTH_TELLING_BYTES = 128 * MIB


def costs(budget: MemoryBudget, before: MemoryBudget | None, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """`before`: the same ranks without any of the changes; None: not predicted."""
    return (*_figures(budget, before, changes), *(f"{COSTS[change.kind]} ({change.note})" for change in _dear(changes)))


def _dear(changes: tuple[Change, ...]) -> Iterator[Change]:
    """Those whose price is not in the figures."""
    for change in changes:
        if change.kind in ("state_dtype", "kv_dtype", "draft_tokens", "strategy", "radix", "graphs"):
            yield change


def _figures(budget: MemoryBudget, before: MemoryBudget | None, changes: tuple[Change, ...]) -> Iterator[str]:
    now, slack = _point(budget, "kv_tokens"), budget.terms["slack"].bytes
    if before is None or before.verdict == "refused":
        yield f"{now or 0:,} KV tokens; as the settings are the server does not start"
        if slack is not None:
            yield f"{format_gib(slack.point)} stay outside the pools"
    elif changes:
        then, was = _point(before, "kv_tokens"), before.terms["slack"].bytes
        if now is not None and then is not None and now != then:
            yield f"{abs(now - then):,} KV tokens {'fewer' if now < then else 'more'} ({then:,} → {now:,})"
        if slack is not None and was is not None and slack.point < was.point - _WORTH_TELLING_BYTES:
            yield f"{format_gib(was.point - slack.point)} less outside the pools ({format_gib(slack.point)} stay)"
    slots, each = _point(budget, "state_slots"), _point(budget, "slots_per_request")
    running = _point(budget, "running_requests")
    if slots is not None and each is not None and running is not None and each > 1 and slots <= each * running:
        yield "no state slot is left for prefixes while all requests run"


def _point(budget: MemoryBudget, limit: Limit) -> int | None:
    predicted = budget.limits.get(limit)
    return predicted.value.point if predicted is not None and predicted.value is not None else None
