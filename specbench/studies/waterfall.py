"""The card's memory, used up term by term. In: a run or a budget. Out: steps that add up to the card's total, twice.

Predicted and observed alike: `before` + `communication` + every term + the unexplained rest + `slack` = total.
Observed, the total is NVML's. What is gone of it before the weights load, by the free memory that the log names, is
split in two: what the distributed init took (the log's figure; predicted, the GPU table's), and `before`, all else.
Where communication is not known it lies within `before`. The rest is what lies between the terms: predicted, what is
taken between loading and sizing beside the weights, and the table of requests; observed, whatever was used. Of several
ranks the one with the least free memory is shown, since it decides for all. `graphs` are part of `slack`. The
non-obvious thing: of a run that emulates a smaller card the predicted bars are that card's and add up to its total, the
observed ones are those of the card that is there. A host's memory has no total: its bars begin at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines.sglang.sizing import rule_for, rule_version
from ..errors import SpecbenchError
from ..gpus import load_gpu
from ..terms import Term
from .seen import Seen

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
_DRAFT: tuple[Term, ...] = ("draft_weights", "draft_kv")
_LABELS = {
    "before": "driver, context, others",
    "unexplained": "unexplained rest",
    "graphs": "graphs (within slack; predicted: an estimate)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    term: Term | Literal["before", "communication"]
    label: str
    predicted: int | None  # bytes per rank; None: not predicted
    observed: int | None  # bytes per rank; None: not logged
    predicted_card: int | None  # bytes of the whole card, of the GPU table; None: not in it
    card: int | None  # bytes of the card that is there, by NVML where it was sampled
    on_host: bool = False  # the memory is a host's: there is no card, and so no total to start from
    rank: str = ""  # of the observed figures; "" where there is one rank, or nothing is observed


def steps(study: Seen) -> tuple[Step, ...]:
    """From what was in use before loading to what is left. Terms that the configuration does not have are left out."""
    found = study.diagnosis
    rank = found.pools.deciding_rank or ""
    config = study.config
    emulates = config is not None and config.gpu.emulate is not None
    budget = found.budgets.get("config" if emulates else study.basis)
    observed: dict[str, int | None] = {
        row.term: row.observed
        for row in found.reconciliation.rows
        if row.unit == "bytes" and row.basis == study.basis and row.rank == rank
    }
    return _steps(
        _Side(
            card=None if config is None else card_bytes(config),
            pre=budget.free.pre.point if budget is not None else None,
            values={} if budget is None else _points(budget),
            communication=_expected_communication(found.budgets.get("config")),
        ),
        _Side(
            card=_seen_total(study),
            pre=found.pools.pre[rank].bytes if rank in found.pools.pre else None,
            values=observed,
            communication=found.pools.communication[rank].bytes if rank in found.pools.communication else None,
            not_loaded=_never_loaded(study, rank),
        ),
        on_host=config is not None and _is_host(config),
        rank=rank,
    )


def predicted_steps(budget: MemoryBudget, config: RunConfig) -> tuple[Step, ...]:
    """The same from a prediction alone; nothing is observed."""
    total = card_bytes(config) if budget.basis == "config" else _total(config.gpu.name)
    predicted = _Side(
        card=total,
        pre=budget.free.pre.point,
        values=_points(budget),
        communication=_expected_communication(budget),
    )
    return _steps(predicted, _Side(card=None, pre=None, values={}), on_host=_is_host(config))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Predicted or observed."""

    card: int | None
    pre: int | None  # free before loading
    values: Mapping[str, int | None]
    communication: int | None = None  # taken before `pre` is read; None: not known, then it is within `before`
    not_loaded: frozenset[Term] = frozenset()  # unknown, but nothing of it was there when `slack` was read

    def step(self, term: str, present: list[Term]) -> int | None:
        if term == "before":
            gone = _less(self.card, self.pre)
            return gone if self.communication is None else _less(gone, self.communication)
        if term == "communication":
            return self.communication
        if term == "unexplained":
            return _rest(self.pre, self.values, [one for one in present if one not in self.not_loaded])
        return self.values.get(term)


def _expected_communication(budget: MemoryBudget | None) -> int | None:
    """Of the GPU table: only a budget from the configuration has it, and only of a card that was measured."""
    found = None if budget is None else budget.free.communication
    return None if found is None else found.bytes.point


def _points(budget: MemoryBudget) -> dict[str, int | None]:
    return {term: one.bytes.point if one.bytes is not None else None for term, one in budget.terms.items()}


def _steps(predicted: _Side, observed: _Side, *, on_host: bool, rank: str = "") -> tuple[Step, ...]:
    present = [term for term in _POOLS if predicted.values.get(term) or observed.values.get(term)]
    order: list[Term | Literal["before", "communication"]] = [*present, "unexplained", "graphs", "slack"]
    if not on_host:
        order = ["before", "communication", *order]
    return tuple(
        Step(
            term=term,
            label=_LABELS.get(term, term),
            predicted=predicted.step(term, present),
            observed=observed.step(term, present),
            predicted_card=predicted.card,
            card=observed.card,
            on_host=on_host,
            rank=rank,
        )
        for term in order
    )


def _never_loaded(study: Seen, rank: str) -> frozenset[Term]:
    """The draft's terms, of a start that ended before its draft was loaded: versions up to 0.5.13 load it last."""
    if study.config is None:
        return frozenset()
    try:
        loads_first = rule_for(rule_version(study.config.engine)).draft_loads_first
    except SpecbenchError:  # a build whose order is not known
        return frozenset()
    if loads_first:
        return frozenset()
    seen = any(pools.role == "draft" and pools.rank == rank for pools in study.diagnosis.pools.ranks)
    return frozenset() if seen else frozenset(_DRAFT)


def card_bytes(config: RunConfig) -> int | None:
    """The total of the card whose budget it is, as the driver shows it; None: no card, or not in the GPU table."""
    return _total(config.gpu.emulate or config.gpu.name)


def _total(name: str) -> int | None:
    try:
        return load_gpu(name).card_bytes
    except SpecbenchError:
        return None


def _is_host(config: RunConfig) -> bool:
    try:
        return load_gpu(config.gpu.name).is_host
    except SpecbenchError:
        return False


def _seen_total(study: Seen) -> int | None:
    """Of the card that is there: NVML's, else the GPU table's. Cards of a machine whose CPU it ran on do not count."""
    if study.config is None or _is_host(study.config):
        return None
    totals = {sample.total_bytes for sample in study.gpu_samples}
    return totals.pop() if len(totals) == 1 else _total(study.config.gpu.name)


def _less(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first - second


def _rest(pre: int | None, values: Mapping[str, int | None], present: list[Term]) -> int | None:
    """What of the free memory before loading lies in no term; None when a term is unknown: a hole is not a zero."""
    used = [values.get(term) for term in (*present, "slack")]
    if pre is None or any(value is None for value in used):
        return None
    return pre - sum(value for value in used if value is not None)
