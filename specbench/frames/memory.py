"""Frames of memory and limits: runs, terms, limits, the waterfall of one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..diagnose.types import Diagnosis
from ..judging.judge import passed
from ..studies.seen import Seen
from ..studies.waterfall import Step, predicted_steps, steps
from ..terms import Limit
from .columns import build


def runs(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per run."""
    return build("runs", (_run(study) for study in studies))


def memory(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per run, rank, term and basis."""
    return build("memory", _joined(studies, "bytes", "term"))


def limits(studies: Iterable[Seen]) -> pd.DataFrame:
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
            "rank_words": one.rank_words,
        }
        for one in found
    )
    return build("waterfall", rows)


def _run(study: Seen) -> dict[str, Any]:
    config, found = study.config, study.diagnosis
    budget = found.budgets.get(study.basis)

    def predicted(limit: Limit) -> int | None:
        one = budget.limits.get(limit) if budget is not None else None
        return one.value.point if one is not None and one.value is not None else None

    return {
        "run": study.name,
        **_asked(config, found),
        "origin": study.origin,
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


def _asked(config: RunConfig | None, found: Diagnosis) -> dict[str, Any]:
    """What the run was asked; of a log of which too little is known, only what it says itself."""
    if config is None:
        names = ("gpu", "emulate", "tp_size", "algorithm", "num_draft_tokens", "passed_fraction")
        arguments = found.log.server_args or {}
        model = arguments.get("model_path")
        return {
            **dict.fromkeys((*names, "mamba_full_memory_ratio", "disable_radix_cache")),
            "version": found.version,
            "model": None if model is None else str(model),
            "mem_fraction_static": found.requested.get("mem_fraction_static"),
        }
    return {
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
    }


def _joined(studies: Iterable[Seen], unit: str, key: str) -> Iterator[dict[str, Any]]:
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
                "origin": study.origin,
            }
