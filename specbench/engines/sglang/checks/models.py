"""Models that a version does not serve, or not with this attention backend, strategy or kind of draft."""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ....versions import at_least
from .. import families
from ..flags import ALGORITHM_SINCE
from ..resolve import server_args, spelled
from .refusal import Refusal

#: What a draft of each algorithm asks of its target. STANDALONE and NGRAM ask nothing.
_FEEDS: dict[str, families.Feed] = {
    **dict.fromkeys(("EAGLE", "NEXTN", "FROZEN_KV_MTP"), "embedding"),
    "EAGLE3": "eagle3",
    **dict.fromkeys(("DFLASH", "DSPARK", "DDTREE"), "block"),
}


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
    broken = families.broken(target.architecture, version)
    if broken is not None:
        error, mended = broken
        yield Refusal(
            key="engine.version",
            value=version,
            reason=f"{target.architecture} cannot be built by it",
            allowed=f"{mended} or later",
            engine_error=error,
        )
        return
    yield from _stages(config, target.architecture)
    yield from _attention(config, version, target.architecture)
    yield from _extra_buffer(config, version, target.architecture)
    yield from _draft(config, version, target.architecture)


def _stages(config: RunConfig, architecture: str) -> Iterator[Refusal]:
    if config.parallel.pp_size > 1 and families.is_one_stage(architecture):
        yield Refusal(
            key="parallel.pp_size",
            value=config.parallel.pp_size,
            reason=f"{architecture} cannot be cut into pipeline stages",
            allowed="1",
            engine_error="AssertionError",
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
    if memory.disable_radix_cache or asked not in ("extra_buffer", "extra_buffer_lazy"):
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


def _draft(config: RunConfig, version: str, architecture: str) -> Iterator[Refusal]:
    """Most drafts read something of the target that its class has to hand over."""
    name = speculative.canonical(config.speculative.algorithm)
    feed = _FEEDS.get(name)
    if feed is None or families.feeds_draft(architecture, version, feed):
        return
    what = {
        "embedding": ("its embedding and head", "get_embed_and_head"),
        "eagle3": ("hidden states", "set_eagle3_layers_to_capture"),
        "block": ("hidden states", "set_dflash_layers_to_capture"),
    }[feed]
    error = f"AttributeError: '{architecture}' object has no attribute '{what[1]}'"
    if feed == "eagle3" and at_least(version, "0.5.23"):
        error = (
            f"ValueError: Model {architecture} does not implement set_eagle3_layers_to_capture, which EAGLE3 aux "
            "hidden-state capture requires."
        )
    elif feed == "block" and at_least(version, "0.5.16"):
        error = (
            f"ValueError: Model {architecture} implements neither set_dspark_layers_to_capture nor "
            "set_dflash_layers_to_capture, one of which is required for DFLASH/DSPARK."
        )
    elif feed == "block":
        error = (
            f"ValueError: Model {architecture} does not implement set_dflash_layers_to_capture, which is required for "
            "DFLASH."
        )
    yield Refusal(
        key="speculative.algorithm",
        value=config.speculative.algorithm,
        reason=f"{architecture} does not hand {what[0]} to a draft in this version",
        allowed=_others(architecture, version),
        engine_error=error,
    )


def _others(architecture: str, version: str) -> str:
    """Algorithms of which the version has what they ask of this target."""
    return ", ".join(
        name
        for name, since in {"none": "0.5.6", **ALGORITHM_SINCE}.items()
        if at_least(version, since)
        and (name not in _FEEDS or families.feeds_draft(architecture, version, _FEEDS[name]))
    )
