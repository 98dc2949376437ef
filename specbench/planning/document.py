"""An answer as JSON-safe values, schema 1. Unknown is null; sizes are bytes per rank; counts are integers.

Figures are predicted, of one data-parallel worker; an interval is [low, high] over the free memory that is possible.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..budget_types import MemoryBudget
from ..terms import Limit
from .changes import Change
from .commands import difference, server_command, shell_line
from .types import Answer, Most, Plan, Size
from .underlying import FRACTION, underlying
from .words import CERTAIN_OF, SET_BY_PLAN, certainty, headline, needs

SCHEMA = 1
_LIMITS: tuple[Limit, ...] = ("state_slots", "slots_per_request", "running_requests", "kv_tokens", "max_input_tokens")


def to_document(answer: Answer) -> dict[str, Any]:
    """The document that `specbench plan --json` prints."""
    reached, words = headline(answer)
    given = answer.given
    return {
        "schema": SCHEMA,
        "name": given.name,
        "engine": {"name": given.engine.name, "version": given.engine.version},
        "model": given.model,
        "gpu": {"name": given.gpu.name, "emulate": given.gpu.emulate, "count": answer.gpus},
        "wishes": asdict(answer.wishes),
        "needs": needs(answer),
        "reached": reached,
        "answer": words,
        "certainty_is_of": CERTAIN_OF,
        "plan": None if answer.best is None else _plan(answer, answer.best),
        "with_more_gpus": None if answer.beyond is None else _plan(answer, answer.beyond),
        "sizes": [_size(answer, size) for size in answer.sizes],
        "notes": list(answer.notes),
    }


def _size(answer: Answer, size: Size) -> dict[str, Any]:
    under = underlying(answer, size)
    return {
        "tp_size": size.tp_size,
        "gpus": size.gpus,
        "impossible": size.impossible,
        "rests_on": None if under is None else asdict(under),
        "candidates": {"tried": size.tried, "refused": size.refused, "complete": size.complete},
        "plans": [_plan(answer, plan) for plan in size.plans],
        "failures": [asdict(failure) for failure in size.failures],
        "most_at_once": [_most(most) for most in size.most],
        "longest_context": size.longest_context,
    }


def _plan(answer: Answer, plan: Plan) -> dict[str, Any]:
    gone, come = difference(answer.given, plan.config)
    return {
        "tp_size": plan.tp_size,
        "certainty": plan.certainty,
        "certainty_words": certainty(plan),
        "changes": [_change(change) for change in plan.changes],
        "set": _set(answer, plan),
        "changes_results": plan.changes_results,
        "costs": list(plan.costs),
        "predicted": _predicted(plan.budget, sets_fraction=any(change.kind == "fraction" for change in plan.changes)),
        "known_fault": plan.budget.fault,
        "flags_removed": list(gone),
        "flags_added": list(come),
        "command": server_command(plan.config),
        "shell": shell_line(plan.config),
    }


def _set(answer: Answer, plan: Plan) -> dict[str, Any]:
    """Every key that differs from the configuration that was given, as `--set` takes it; null: left out."""
    old, new = answer.given.to_sections(), plan.config.to_sections()
    return {
        f"{section}.{key}": value
        for section, keys in new.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
        if value != old[section][key]
    }


def _change(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, "set": dict(change.set), "note": change.note}


def _most(most: Most) -> dict[str, Any]:
    plan = most.plan
    return {
        "level": most.level,
        "running_requests": most.requests,
        "surely": most.sure,
        "changes": None if plan is None else [_change(change) for change in plan.changes],
        "predicted": None if plan is None else _predicted(plan.budget),
    }


def _predicted(budget: MemoryBudget, *, sets_fraction: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    intervals: dict[str, list[int]] = {}
    for name in _LIMITS:
        value = budget.limits[name].value
        found[name] = None if value is None else value.point
        if value is not None:
            intervals[name] = [value.low, value.high]
    slack = budget.terms["slack"].bytes
    found["slack_bytes"] = None if slack is None else slack.point
    if slack is not None:
        intervals["slack_bytes"] = [slack.low, slack.high]
    fraction = next((argument for argument in budget.resolved if argument.name == FRACTION), None)
    source = None if fraction is None else SET_BY_PLAN if sets_fraction else fraction.source
    return {
        **found,
        "verdict": budget.verdict,
        "intervals": intervals,
        "free_memory": None if budget.free.rests_on is None else asdict(budget.free.rests_on),
        FRACTION: None if fraction is None else {"value": fraction.value, "source": source},
    }
