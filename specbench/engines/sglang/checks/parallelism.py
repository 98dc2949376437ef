"""Ranks: as many as there are GPUs, and divisible."""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ..sizing.contract import Rule
from ..splitting import uneven
from .refusal import Refusal


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    parallel, gpus = config.parallel, config.gpu.count
    if parallel.gpus > gpus:
        product = f"tp {parallel.tp_size} × pp {parallel.pp_size} × dp {parallel.replicas}"
        yield Refusal(
            key="gpu.count",
            value=gpus,
            reason=f"{parallel.gpus} GPUs are needed ({product})",
            allowed=f"{parallel.gpus} or more, or fewer ranks",
        )
    if parallel.enable_dp_attention and parallel.dp_size == 1:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason="data-parallel attention of one rank is none; the engine turns it off",
            allowed="false, or dp_size above 1",
            tolerated=True,
        )
    if parallel.enable_dp_attention and parallel.tp_size % parallel.dp_size:
        yield Refusal(
            key="parallel.dp_size",
            value=parallel.dp_size,
            reason=f"attention ranks: tp_size {parallel.tp_size} is not divisible by it",
            allowed=f"a divisor of {parallel.tp_size}",
            engine_error="AssertionError",
        )


def of_models(config: RunConfig, target: ModelSpec, draft: ModelSpec | None) -> Iterator[Refusal]:
    """SGLang asserts divisibility while it builds the layers."""
    problem = uneven(config, target, draft)
    if problem is not None:
        yield Refusal(
            key="parallel.tp_size",
            value=config.parallel.tp_size,
            reason=problem.reason,
            allowed=problem.allowed,
        )
