"""Ranks: as many as there are GPUs, and divisible."""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....layers import KvLayer, parts
from ....specs import ModelSpec
from ..given import server_args
from ..sizing.cell import stage_layers
from ..sizing.contract import Rule
from ..splitting import uneven
from .refusal import Refusal

_PARTITION = "SGLANG_PP_LAYER_PARTITION"


def has_stage_without_kv(rule: Rule, target: ModelSpec, pp: int) -> bool:
    """Whether layers that are cut as evenly as they go leave a stage without KV, and the release stumbles over it
    (SGLang: pool_configurator.py; of models with state no more from 0.5.17)."""
    if target.state_layers and (rule.stages_hold_all or rule.skips_empty_stages):
        return False
    kept = ([part for part in parts(stage) if isinstance(part, KvLayer)] for stage in stage_layers(target.layers, pp))
    return pp > 1 and not all(kept)


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    parallel, gpus = config.parallel, config.gpu.count
    if parallel.gpus > gpus and server_args(config).get("device") != "cpu":  # ranks on a CPU hold no GPU
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


def of_models(config: RunConfig, rule: Rule, target: ModelSpec, draft: ModelSpec | None) -> Iterator[Refusal]:
    """SGLang asserts divisibility while it builds the layers, and divides by the bytes of a stage's token."""
    if has_stage_without_kv(rule, target, config.parallel.pp_size) and _PARTITION not in config.engine.env:
        yield Refusal(
            key="parallel.pp_size",
            value=config.parallel.pp_size,
            reason="one of the pipeline stages would have no layer that keeps KV",
            allowed="1, or stages that have one",
            engine_error="ZeroDivisionError: integer division or modulo by zero",
        )
    problem = uneven(config, target, draft)
    if problem is not None:
        yield Refusal(
            key="parallel.tp_size",
            value=config.parallel.tp_size,
            reason=problem.reason,
            allowed=problem.allowed,
        )
