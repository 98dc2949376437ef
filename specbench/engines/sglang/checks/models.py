"""Models that a version does not serve, or not with this attention backend or strategy. (What ends a server although
no argument is refused: `faults`.)"""

from __future__ import annotations

from collections.abc import Iterator

from .... import quantization
from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ....versions import at_least
from .. import families
from ..given import server_args, spelled
from .refusal import Refusal


def refusals(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    """SGLang looks the architecture up by its name before anything is loaded."""
    first = families.not_served(target.architecture, version)
    if first is not None:
        yield Refusal(
            key="engine.version",
            value=version,
            reason=f"{target.architecture} is not served by it",
            allowed=f"{first} or later",
        )
        return
    yield from _attention_dp(config, target.architecture)
    yield from _unnamed_quantization(version, target)
    yield from _modelopt_beyond_fp8(version, target)
    yield from _unread_config(config, version, target.architecture)
    yield from _attention(config, version, target.architecture)
    yield from _extra_buffer(config, version, target.architecture)


def _attention_dp(config: RunConfig, architecture: str) -> Iterator[Refusal]:
    """MiniCPM-SALA has never run with it (arg_groups/model_overrides/minicpm.py of 0.5.19 to 0.5.23)."""
    if architecture == "MiniCPMSALAForCausalLM" and config.parallel.attention_dp > 1:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason="MiniCPM does not run with data-parallel attention",
            allowed="false",
            engine_error="ValueError: MiniCPM does not support DP attention",
        )


def _unnamed_quantization(version: str, target: ModelSpec) -> Iterator[Refusal]:
    """Before 0.5.9 a config.json that tells an algorithm without a method (ModelConfig._verify_quantization)."""
    found = quantization.section(target.config)
    if found is None or "quant_method" in found.data or at_least(version, "0.5.9"):
        return
    yield Refusal(
        key="engine.version",
        value=version,
        reason="it wants quant_method in the checkpoint's quantization_config",
        allowed="0.5.9 or later",
        engine_error="ValueError: Unknown quantization method: .",
    )


def _modelopt_beyond_fp8(version: str, target: ModelSpec) -> Iterator[Refusal]:
    """Before 0.5.10 `modelopt` in a config.json means FP8 (ModelOptFp8Config); Nemotron-H's is looked at first."""
    found = quantization.section(target.config)
    if found is None or found.data.get("quant_method") != "modelopt" or at_least(version, "0.5.10"):
        return
    algorithm = found.data.get("quant_algo")
    if target.architecture.startswith("NemotronH") or (isinstance(algorithm, str) and "FP8" in algorithm):
        return
    said = (
        "Cannot find 'quant_algo' in the model's quantization config. Expected either flat format (config.json) or "
        "nested format (hf_quant_config.json)."
        if algorithm is None
        else "ModelOptFp8Config only supports static FP8 quantization in SGLang. For FP4 quantization, use "
        "ModelOptFp4Config. Check the quantization config for your model's configuration."
    )
    yield Refusal(
        key="engine.version",
        value=version,
        reason="it takes every ModelOpt checkpoint whose config.json says so for FP8",
        allowed="0.5.10 or later",
        engine_error=f"ValueError: {said}",
    )


def _unread_config(config: RunConfig, version: str, architecture: str) -> Iterator[Refusal]:
    """Before 0.5.6.post2 Nemotron-H's arguments look at a config that only the default fraction has read."""
    given = config.memory.mem_fraction_static is not None
    if architecture == "NemotronHForCausalLM" and given and not at_least(version, "0.5.6.post2"):
        yield Refusal(
            key="memory.mem_fraction_static",
            value=config.memory.mem_fraction_static,
            reason="with a given fraction the version fails before it has read the model's config",
            allowed="left out, or 0.5.6.post2 or later",
            engine_error="AttributeError: 'ServerArgs' object has no attribute 'model_config'",
        )


def _attention(config: RunConfig, version: str, architecture: str) -> Iterator[Refusal]:
    """A backend that expects KV in the first layer. (Where no assertion says so, the pools are allocated first.)"""
    asserts = families.refuses_triton_attention(architecture, version) == "asserts"
    if not asserts or server_args(config).get("attention_backend") != "triton":
        return
    space = "" if architecture == "NemotronHForCausalLM" else " "
    yield Refusal(
        key=spelled(config, "attention-backend"),
        value="triton",
        reason=f"the first layer of {architecture} is no attention layer",
        allowed="fa3, flashinfer or torch_native",
        engine_error=(
            f"AssertionError: {architecture} does not support triton attention backend,{space}as the first layer might "
            "not be an attention layer"
        ),
    )


def _extra_buffer(config: RunConfig, version: str, architecture: str) -> Iterator[Refusal]:
    memory = config.memory
    asked = memory.mamba_radix_cache_strategy
    if asked not in ("extra_buffer", "extra_buffer_lazy"):
        return
    # 0.5.8 and 0.5.9 assert it without a prefix cache, too
    if memory.disable_radix_cache and at_least(version, "0.5.10"):
        return
    if families.takes_extra_buffers(architecture, version):
        return
    yield Refusal(
        key="memory.mamba_radix_cache_strategy",
        value=asked,
        reason=f"{architecture} has no extra buffers in this version",
        allowed="auto or no_buffer, or disable_radix_cache: true",
        engine_error=(
            f"AssertionError: extra_buffer is not supported for {architecture}; use no_buffer."
            if at_least(version, "0.5.14")
            else f"AssertionError: mamba extra_buffer is not supported for {architecture} model"
        ),
    )
