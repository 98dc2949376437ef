"""The card's memory, used up term by term. In: a study or a budget. Out: steps that add up to the card's total, twice.

Predicted and observed alike: in use before loading + every term + the rest + `slack` = total. Observed, `before` is the
total less the free memory that the log names. The rest (term `unexplained`) is what lies between the terms: predicted,
what is taken between loading and sizing beside the weights, and the table of requests; observed, whatever was used. Of
several ranks the one with the least free memory is shown, since it decides for all. `graphs` are part of `slack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .budget_types import MemoryBudget
from .config import RunConfig
from .errors import SpecError
from .specs import load_gpu
from .studies import Study
from .terms import Term

_POOLS: tuple[Term, ...] = (
    "weights",
    "draft_weights",
    "state_conv",
    "state_ssm",
    "scratch_ssm",
    "scratch_conv",
    "kv",
    "draft_kv",
)
#: What is predicted is explained, so the rest is named for what it is.
_LABELS = {
    "before": "in use before loading",
    "unexplained": "rest (buffers, tables)",
    "graphs": "graphs (within slack)",
}

_Values = Mapping[str, "int | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    term: Term | Literal["before"]
    label: str
    predicted: int | None  # bytes per rank; None: not predicted
    observed: int | None  # bytes per rank; None: not logged
    card: int | None  # bytes of the whole card; None: not in the GPU table


def steps(study: Study) -> tuple[Step, ...]:
    """From what was in use before loading to what is left. Terms that the configuration does not have are left out."""
    found = study.diagnosis
    rank = deciding_rank(study)
    rows = [
        row
        for row in found.reconciliation.rows
        if row.unit == "bytes" and row.basis == study.basis and row.rank == rank
    ]
    budget = found.budgets.get(study.basis)
    predicted: dict[str, int | None] = {row.term: row.predicted.point if row.predicted else None for row in rows}
    observed: dict[str, int | None] = {row.term: row.observed for row in rows}
    logged = found.pools.pre[rank].bytes if rank in found.pools.pre else None
    total = card_bytes(study.record.config)
    return _steps(total, predicted, budget.free.pre.point if budget is not None else None, observed, logged)


def predicted_steps(budget: MemoryBudget, config: RunConfig) -> tuple[Step, ...]:
    """The same from a prediction alone; nothing is observed."""
    predicted: dict[str, int | None] = {
        term: one.bytes.point if one.bytes is not None else None for term, one in budget.terms.items()
    }
    return _steps(card_bytes(config), predicted, budget.free.pre.point, {}, None)


def _steps(
    total: int | None, predicted: _Values, predicted_pre: int | None, observed: _Values, observed_pre: int | None
) -> tuple[Step, ...]:
    present = [term for term in _POOLS if predicted.get(term) or observed.get(term)]
    left = {
        "before": (_less(total, predicted_pre), _less(total, observed_pre)),
        "unexplained": (_rest(predicted_pre, predicted, present), _rest(observed_pre, observed, present)),
    }
    order: list[Term | Literal["before"]] = ["before", *present, "unexplained", "graphs", "slack"]
    return tuple(
        Step(term=term, label=_LABELS.get(term, term), predicted=values[0], observed=values[1], card=total)
        for term in order
        for values in [left.get(term, (predicted.get(term), observed.get(term)))]
    )


def deciding_rank(study: Study) -> str:
    """The rank with the least free memory before loading: the solver takes its figure for all."""
    pre = study.diagnosis.pools.pre
    return min(pre, key=lambda rank: (pre[rank].bytes, rank), default="")


def card_bytes(config: RunConfig) -> int | None:
    """The card's total as the driver shows it; None when the GPU table has no such card."""
    try:
        return load_gpu(config.gpu.name).card_bytes
    except SpecError:
        return None


def _less(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first - second


def _rest(pre: int | None, values: _Values, present: list[Term]) -> int | None:
    """What of the free memory before loading lies in no term; None when a term is unknown: a hole is not a zero."""
    used = [values.get(term) for term in (*present, "slack")]
    if pre is None or any(value is None for value in used):
        return None
    return pre - sum(value for value in used if value is not None)
