"""The card's memory, used up term by term. In: a study. Out: steps that add up to the card's total, twice.

Predicted: in use before loading + every predicted term + slack = total. Observed: in use before loading (total less the
free memory that the log names) + every logged term + what was left + `unexplained` = total. Of several ranks the one
with the least free memory is shown, since it decides for all. `graphs` are part of `slack`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    term: Term | Literal["before"]
    label: str
    predicted: int | None  # bytes per rank; None: not predicted
    observed: int | None  # bytes per rank; None: not logged


def steps(study: Study) -> tuple[Step, ...]:
    """From what was in use before loading to what is left. Terms that the configuration does not have are left out."""
    found = study.diagnosis
    rank = deciding_rank(study)
    rows = {
        row.term: row
        for row in found.reconciliation.rows
        if row.unit == "bytes" and row.basis == study.basis and row.rank == rank
    }
    predicted: dict[str, int | None] = {
        term: row.predicted.point if row.predicted else None for term, row in rows.items()
    }
    observed: dict[str, int | None] = {term: row.observed for term, row in rows.items()}
    total = card_bytes(study.record.config)
    budget = found.budgets.get(study.basis)
    pre_logged = found.pools.pre[rank].bytes if rank in found.pools.pre else None
    before = Step(
        term="before",
        label="in use before loading",
        predicted=None if budget is None or total is None else total - budget.free.pre.point,
        observed=None if pre_logged is None or total is None else total - pre_logged,
    )
    middle = [
        Step(term=term, label=term, predicted=predicted.get(term), observed=observed.get(term))
        for term in _POOLS
        if predicted.get(term) or observed.get(term)
    ]
    left = _sum_of(observed, [*(step.term for step in middle), "slack"])
    unexplained = None if pre_logged is None or left is None else pre_logged - left
    return (
        before,
        *middle,
        Step(
            term="unexplained", label="unexplained", predicted=0 if budget is not None else None, observed=unexplained
        ),
        Step(
            term="graphs",
            label="graphs (within slack)",
            predicted=predicted.get("graphs"),
            observed=observed.get("graphs"),
        ),
        Step(term="slack", label="slack", predicted=predicted.get("slack"), observed=observed.get("slack")),
    )


def predicted_steps(budget: MemoryBudget, config: RunConfig) -> tuple[Step, ...]:
    """The same from a prediction alone; nothing is observed."""
    total = card_bytes(config)
    values = {term: one.bytes.point if one.bytes is not None else None for term, one in budget.terms.items()}
    before = None if total is None else total - budget.free.pre.point
    return (
        Step(term="before", label="in use before loading", predicted=before, observed=None),
        *(Step(term=term, label=term, predicted=values[term], observed=None) for term in _POOLS if values.get(term)),
        Step(term="graphs", label="graphs (within slack)", predicted=values.get("graphs"), observed=None),
        Step(term="slack", label="slack", predicted=values.get("slack"), observed=None),
    )


def deciding_rank(study: Study) -> str:
    """The rank with the least free memory before loading: the solver takes its figure for all."""
    pre = study.diagnosis.pools.pre
    return min(pre, key=lambda rank: (pre[rank].bytes, rank), default="")


def card_bytes(config: RunConfig) -> int | None:
    """The card's total as the driver shows it; None when the GPU table has no such card."""
    try:
        return load_gpu(config.gpu.name).total_bytes
    except SpecError:
        return None


def _sum_of(values: Mapping[str, int | None], terms: list[str]) -> int | None:
    """The sum, or None when a term is unknown: a hole is not a zero."""
    found = [values.get(term) for term in terms]
    return None if any(value is None for value in found) else sum(value for value in found if value is not None)
