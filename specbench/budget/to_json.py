"""A budget as JSON for programs: schema 1, integers: bytes per rank, counts of the server (of one data-parallel
worker); null for what is not predicted.

`limits`, `bytes` and `left_for_pools` hold the likely point; `intervals` holds [low, high] where the two differ;
`formulas` says of each figure how it comes about: in words, with its numbers, and by whose rule.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..budget_types import LeftForPools, MemoryBudget, PredictedLimit, PredictedTerm
from ..gpus import Communication
from ..units import Interval


def to_document(budget: MemoryBudget) -> dict[str, Any]:
    """The document that `specbench predict --json` prints."""
    left: dict[str, Interval | None] = {} if budget.left is None else {"left_for_pools": budget.left.bytes}
    sizes: dict[str, Interval | None] = {term: predicted.bytes for term, predicted in budget.terms.items()}
    counts: dict[str, Interval | None] = {limit: predicted.value for limit, predicted in budget.limits.items()}
    return {
        "schema": 1,
        "name": budget.name,
        "engine": {"name": budget.engine, "version": budget.version},
        "rule": budget.rule,
        "rule_words": budget.rule_words,
        "basis": budget.basis,
        "requested": {"running_requests": budget.requested_running_requests},
        "resolved": {
            argument.name: {"value": argument.value, "source": argument.source} for argument in budget.resolved
        },
        "emulation": None if budget.emulation is None else asdict(budget.emulation),
        "limits": {limit: _point(value) for limit, value in counts.items()},
        "left_for_pools": None if budget.left is None else _point(budget.left.bytes),
        "bytes": {term: _point(value) for term, value in sizes.items()},
        "verdict": budget.verdict,
        "verdicts": list(budget.verdicts),
        "reason": budget.reason,
        "engine_error": budget.engine_error,
        "known_fault": budget.fault,
        "free": {
            "pre": _bounds(budget.free.pre),
            "post": _bounds(budget.free.post),
            "source": budget.free.source,
            "rests_on": None if budget.free.rests_on is None else asdict(budget.free.rests_on),
            "communication": _communication(budget.free.communication),
        },
        "intervals": {
            name: _bounds(value) for name, value in {**counts, **left, **sizes}.items() if value and not value.is_exact
        },
        "estimated": [term for term, predicted in budget.terms.items() if predicted.estimated],
        "formulas": _formulas(budget),
        "details": {name: value.point for name, value in budget.details.items()},
        "warnings": list(budget.warnings),
    }


def _communication(found: Communication | None) -> dict[str, Any] | None:
    """What the distributed init takes before `pre` is read; null: not measured."""
    if found is None:
        return None
    return {
        "bytes": found.bytes.point,
        "interval": _bounds(found.bytes),
        "measured": found.measured,
        "source": found.source,
    }


def _formulas(budget: MemoryBudget) -> dict[str, dict[str, str]]:
    figures: list[tuple[str, PredictedLimit | PredictedTerm | LeftForPools]] = []
    if budget.left is not None:
        figures.append(("left_for_pools", budget.left))
    figures += budget.limits.items()
    figures += budget.terms.items()
    return {name: {"words": of.formula, "numbers": of.numbers, "rule": of.rule} for name, of in figures}


def _point(value: Interval | None) -> int | None:
    return None if value is None else value.point


def _bounds(value: Interval) -> list[int]:
    return [value.low, value.high]
