"""A budget as JSON for programs: schema 1, per rank, integers in bytes and counts, null for what is not predicted.

`limits` and `bytes` hold the likely point; `intervals` holds [low, high] where the two differ.
"""

from __future__ import annotations

from typing import Any

from .budget_types import MemoryBudget
from .units import Interval


def to_document(budget: MemoryBudget) -> dict[str, Any]:
    """The document that `specbench predict --json` prints."""
    sizes: dict[str, Interval | None] = {term: predicted.bytes for term, predicted in budget.terms.items()}
    counts: dict[str, Interval | None] = {limit: predicted.value for limit, predicted in budget.limits.items()}
    return {
        "schema": 1,
        "name": budget.name,
        "engine": {"name": budget.engine, "version": budget.version},
        "rule": budget.rule,
        "basis": budget.basis,
        "requested": {"running_requests": budget.requested_running_requests},
        "limits": {limit: _point(value) for limit, value in counts.items()},
        "bytes": {term: _point(value) for term, value in sizes.items()},
        "verdict": budget.verdict,
        "verdicts": list(budget.verdicts),
        "reason": budget.reason,
        "engine_error": budget.engine_error,
        "free": {"pre": _bounds(budget.free.pre), "post": _bounds(budget.free.post), "source": budget.free.source},
        "intervals": {
            name: _bounds(value) for name, value in {**counts, **sizes}.items() if value and not value.is_exact
        },
        "details": {name: value.point for name, value in budget.details.items()},
        "warnings": list(budget.warnings),
    }


def _point(value: Interval | None) -> int | None:
    return None if value is None else value.point


def _bounds(value: Interval) -> list[int]:
    return [value.low, value.high]
