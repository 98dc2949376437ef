"""Models of latent and sparse attention: pages and types that are fixed.

In: a configuration and its target. Out: refusals. Trees over these pages are refused in `trees`. Sources: arg_groups/
(server_args.py up to 0.5.14).
"""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ....versions import at_least
from ..families import always_dp_attention, fixed_page_size, is_sparse_latent
from ..given import server_args
from ..resolve import resolve_strategy
from ..sizing.contract import Rule
from .refusal import Refusal


def refusals(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    yield from _remote_code(config, version, target)
    if fixed_page_size(target, rule) is not None:
        yield from _kv_type(config, version, target)
        yield from _strategy(config, version, rule, target)
    parallel = config.parallel
    if always_dp_attention(target, version) and parallel.dp_size > 1 and not parallel.enable_dp_attention:
        divides = parallel.tp_size % parallel.dp_size == 0
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=False,
            reason="the version turns data-parallel attention on for sparse latent attention: it is not what is asked"
            + ("" if divides else ", and the ranks do not divide into so many workers"),
            allowed="true, with a dp_size that divides tp_size; or dp_size 1",
            engine_error=None if divides else "AssertionError",
        )


def _remote_code(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    """SGLang knows Kimi-K2's config itself from 0.5.12 on."""
    known = target.config.data.get("model_type") != "kimi_k2" or at_least(version, "0.5.12")
    if not known and not server_args(config).get("trust_remote_code"):
        yield Refusal(
            key="engine.args.trust-remote-code",
            value=None,
            reason=f"the version reads the config of {target.name} only with the checkpoint's own code",
            allowed="true",
        )


def _kv_type(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    dtype = config.memory.kv_cache_dtype
    if is_sparse_latent(target) and dtype not in ("auto", "bf16", "bfloat16", "fp8_e4m3"):
        name = "DSA" if at_least(version, "0.5.8") else "NSA"
        yield Refusal(
            key="memory.kv_cache_dtype",
            value=dtype,
            reason="sparse latent attention has no kernels for it",
            allowed="auto, bf16 or fp8_e4m3",
            engine_error=f"AssertionError: DeepSeek {name} only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
        )


def _strategy(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """Without extra buffers pages are of one token, which sparse attention does not work with."""
    if target.state_layers and resolve_strategy(config, rule, True, version, target) == "no_buffer":
        yield Refusal(
            key="memory.mamba_radix_cache_strategy",
            value=config.memory.mamba_radix_cache_strategy,
            reason="no_buffer keeps pages of one token, and sparse attention fixes longer ones",
            allowed="auto with the triton linear attention backend, or disable_radix_cache: true",
            engine_error="AssertionError: no_buffer only supports page_size=1.",
        )
