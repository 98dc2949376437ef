"""Whether a prediction is what is needed, how surely, and what it lacks. In: a budget and a need. Out: words of it."""

from __future__ import annotations

from ..budget_types import MemoryBudget
from ..units import format_gib
from .screen import Need, estimated_outside
from .types import Certainty


def certain(budget: MemoryBudget, need: Need) -> Certainty | None:
    """How surely a prediction is what is needed; None: not even at the likely point."""
    running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
    slack = budget.terms["slack"].bytes
    if budget.verdict == "refused" or running is None or tokens is None:
        return None
    if running.point < need.requests or tokens.point < need.tokens:
        return None
    taken = estimated_outside(budget) if need.estimated else None
    needed = max(need.slack_bytes, 0 if taken is None else taken.point)
    if slack is not None and slack.point < needed:
        return None
    sure = (
        "refused" not in budget.verdicts
        and running.low >= need.requests
        and tokens.low >= need.tokens
        and (slack is None or slack.low >= needed)
    )
    return "sure" if sure else "likely"


def lacking(budget: MemoryBudget, need: Need) -> str:
    """Why a prediction is not what is needed, with figures."""
    running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
    slack = budget.terms["slack"].bytes
    if budget.verdict == "refused":
        return f"refused: {budget.reason}"
    lacks = []
    if running is not None and running.point < need.requests:
        slots = budget.limits["state_slots"].value
        each = budget.limits["slots_per_request"].value
        held = "" if slots is None or each is None else f" ({slots.point:,} slots, {each.point} each)"
        lacks.append(f"{running.point:,} of {need.requests:,} requests{held}")
    if tokens is not None and tokens.point < need.tokens:
        lacks.append(f"{tokens.point:,} of {need.tokens:,} KV tokens")
    if slack is not None and slack.point < need.slack_bytes:
        lacks.append(f"{format_gib(slack.point)} outside the pools, {format_gib(need.slack_bytes)} are needed")
    taken = estimated_outside(budget)
    if slack is not None and need.estimated and taken is not None and slack.point < taken.point:
        need_words = f"graphs and a full prefill take about {format_gib(taken.point)}"
        lacks.append(f"{format_gib(slack.point)} outside the pools, {need_words}")
    return "; ".join(lacks) or "reaches at the likely free memory only"
