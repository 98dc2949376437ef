"""Frames of memory and limits: runs, terms, limits, the waterfall of one run, the limit curve of a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from ..budget.predict import predict
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..diagnose.types import Diagnosis
from ..errors import SpecbenchError
from ..judging.judge import as_resolved, passed
from ..studies.seen import Seen
from ..studies.study import Study
from ..studies.waterfall import Step, predicted_steps, steps
from ..terms import Limit
from .columns import build


def runs(studies: Iterable[Study]) -> pd.DataFrame:
    """One row per run."""
    return build("runs", (_run(study) for study in studies))


def memory(studies: Iterable[Study]) -> pd.DataFrame:
    """One row per run, rank, term and basis."""
    return build("memory", _joined(studies, "bytes", "term"))


def limits(studies: Iterable[Study]) -> pd.DataFrame:
    """One row per run, rank, limit and basis."""
    return build("limits", _joined(studies, "count", "limit"))


def waterfall(found: Seen | Diagnosis) -> pd.DataFrame:
    """One row per term in stacking order; each series adds up to its card's total. Of a bare log whose card is not
    known the observed one adds up to what was free before loading, and `card_bytes` is NA.
    """
    return _waterfall(steps(found if isinstance(found, Diagnosis) else found.diagnosis))


def predicted_waterfall(budget: MemoryBudget, config: RunConfig) -> pd.DataFrame:
    """The same columns from a prediction alone; every observed figure is NA."""
    return _waterfall(predicted_steps(budget, config))


def _waterfall(found: Iterable[Step]) -> pd.DataFrame:
    rows = (
        {
            "term": one.term,
            "label": one.label,
            "predicted_bytes": one.predicted,
            "observed_bytes": one.observed,
            "predicted_card_bytes": one.predicted_card,
            "card_bytes": one.card,
            "place": "host" if one.on_host else "card",
            "rank": one.rank,
        }
        for one in found
    )
    return build("waterfall", rows)


def limit_curve(
    config: RunConfig,
    asked: Sequence[int] = tuple(range(1, 13)),
    free: FreeMemory | None = None,
    passed_fraction: float | None = None,
) -> pd.DataFrame:
    """What `predict` says for each number of requests asked, everything else unchanged.

    `free`: the free memory that a run measured; not given: from the GPU table. `passed_fraction`: of a run that
    emulates a smaller card.
    """
    return build("limit_curve", _curve(config, asked, free, passed_fraction))


def limit_curve_of(study: Study) -> pd.DataFrame:
    """The curve of a run's configuration, with the free memory that the run itself logged where it did."""
    budget = study.diagnosis.budgets.get(study.basis)
    free = budget.free if budget is not None and study.basis == "measured" else None
    config = as_resolved(study.record.config, study.diagnosis.pools)
    told = passed(config, study.diagnosis.pools)
    return limit_curve(config, _around(study.asked or study.resolved or 1), free, told)


def _around(asked: int) -> list[int]:
    """From 1 to well beyond what was asked, at most a dozen points, what was asked among them."""
    last = max(12, asked + asked // 2)
    step = max(1, last // 12)
    return sorted({1, asked, *range(step, last + 1, step)})


def _run(study: Study) -> dict[str, Any]:
    config, found = study.record.config, study.diagnosis
    budget = found.budgets.get(study.basis)

    def predicted(limit: Limit) -> int | None:
        one = budget.limits.get(limit) if budget is not None else None
        return one.value.point if one is not None and one.value is not None else None

    return {
        "run": study.name,
        "version": config.engine.version,
        "model": config.model,
        "gpu": config.gpu.name,
        "emulate": config.gpu.emulate,
        "tp_size": config.parallel.tp_size,
        "algorithm": config.speculative.algorithm,
        "num_draft_tokens": config.speculative.num_draft_tokens,
        "mem_fraction_static": config.memory.mem_fraction_static,
        "passed_fraction": passed(config, found.pools),
        "mamba_full_memory_ratio": config.memory.mamba_full_memory_ratio,
        "disable_radix_cache": config.memory.disable_radix_cache,
        "origin": study.record.origin,
        "status": found.status,
        "outcome": study.outcome,
        "asked_requests": study.asked,
        "resolved_requests": study.resolved,
        "served_requests": study.served,
        "state_slots": found.pools.state_slots,
        "kv_tokens": found.pools.kv_tokens,
        "predicted_requests": predicted("running_requests"),
        "predicted_slots": predicted("state_slots"),
        "predicted_tokens": predicted("kv_tokens"),
        "basis": study.basis,
        "verdict": budget.verdict if budget is not None else None,
        "off": sum(row.verdict == "off" and row.basis == study.basis for row in found.reconciliation.rows),
        "finding": found.findings[0].id if found.findings else None,
    }


def _joined(studies: Iterable[Study], unit: str, key: str) -> Iterator[dict[str, Any]]:
    for study in studies:
        for row in study.diagnosis.reconciliation.rows:
            if row.unit != unit:
                continue
            yield {
                "run": study.name,
                "rank": row.rank,
                "role": row.role,
                key: row.term,
                "basis": row.basis,
                "predicted": row.predicted.point if row.predicted else None,
                "predicted_low": row.predicted.low if row.predicted else None,
                "predicted_high": row.predicted.high if row.predicted else None,
                "observed": row.observed,
                "tolerance": row.tolerance,
                "delta": row.delta,
                "verdict": row.verdict,
                "origin": study.record.origin,
            }


def _curve(
    config: RunConfig, asked: Sequence[int], free: FreeMemory | None, passed_fraction: float | None
) -> Iterator[dict[str, Any]]:
    for count in asked:
        try:
            budget = predict(
                config.replace({"memory.max_running_requests": count}), free=free, passed_fraction=passed_fraction
            )
        except SpecbenchError:
            continue  # this many cannot be asked for at all: no point on the curve
        for limit, prediction in budget.limits.items():
            value = prediction.value
            yield {
                "asked": count,
                "limit": limit,
                "predicted": value.point if value else None,
                "predicted_low": value.low if value else None,
                "predicted_high": value.high if value else None,
                "verdict": budget.verdict,
            }
