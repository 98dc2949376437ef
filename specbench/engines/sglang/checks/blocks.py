"""Block drafts (DFLASH, DSPARK, and DDTREE of a fork): what they need, and what they do not run with.

Texts of SGLang 0.5.12 and 0.5.16 to 0.5.23 (server_args.py, arg_groups/speculative_hook.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....errors import SpecbenchError
from ....specs import ModelSpec, load_model
from ....speculative import dspark
from ....versions import at_least
from ..given import server_args
from .refusal import Refusal

#: How the engine writes the name in its messages; DDTREE runs DFLASH's handling of arguments.
_SPELLED = {"DFLASH": "DFLASH", "DSPARK": "DSpark", "DDTREE": "DFLASH"}


def refusals(config: RunConfig, version: str, name: str) -> Iterator[Refusal]:
    yield from _ranks(config, version, name)
    yield from _draft(config, name)
    if name == "DSPARK":
        yield from _gamma(config)
    else:
        yield from _block(config)
    if name == "DDTREE":
        yield from _tree(config)


def _ranks(config: RunConfig, version: str, name: str) -> Iterator[Refusal]:
    parallel, spelled = config.parallel, _SPELLED[name]
    shared_head = bool(server_args(config).get("enable_dp_lm_head", False))
    other = " on non-NPU devices" if at_least(version, "0.5.20") else ""
    needs_head = name == "DSPARK" or (name == "DFLASH" and at_least(version, "0.5.23"))
    if parallel.attention_dp > 1 and not needs_head:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason=f"{name} does not run with data-parallel attention",
            allowed="false",
            engine_error=f"ValueError: Currently {spelled} speculative decoding does not support dp attention{other}.",
        )
    elif parallel.attention_dp > 1 and not shared_head:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason=f"{name} with data-parallel attention needs a head on every rank",
            allowed="false, or engine.args.enable-dp-lm-head: true",
            engine_error=f"ValueError: {spelled} with dp attention requires --enable-dp-lm-head.",
        )
    if parallel.pp_size != 1:
        pd = name == "DSPARK" and at_least(version, "0.5.21")
        yield Refusal(
            key="parallel.pp_size",
            value=parallel.pp_size,
            reason=f"{name} does not run with pipeline stages",
            allowed="1",
            engine_error=(
                "ValueError: DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving "
                "require pp_size == 1."
                if pd
                else f"ValueError: Currently {spelled} speculative decoding only supports pp_size == 1."
            ),
        )


def _draft(config: RunConfig, name: str) -> Iterator[Refusal]:
    """DSPARK also takes a head that the target's checkpoint bundles."""
    if config.speculative.draft_model_path is not None or (name == "DSPARK" and _bundles(config.model)):
        return
    dense = "DSpark dense" if name == "DSPARK" else _SPELLED[name]
    yield Refusal(
        key="speculative.draft_model_path",
        value=None,
        reason=f"{name} needs a draft model",
        allowed="the draft's name or folder",
        engine_error=f"ValueError: {dense} speculative decoding requires setting --speculative-draft-model-path.",
    )


def _bundles(model: str) -> bool:
    try:
        data = load_model(model).config.data
    except SpecbenchError:
        return False
    keys = ("dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids")
    return any(data.get(key) is not None for key in keys)


def _block(config: RunConfig) -> Iterator[Refusal]:
    args, width = server_args(config), config.speculative.num_draft_tokens
    block, window = args.get("speculative_dflash_block_size"), args.get("speculative_draft_window_size")
    if isinstance(block, int) and width is not None and width != block:
        yield Refusal(
            key="speculative.num_draft_tokens",
            value=width,
            reason=f"engine.args sets a block size of {block}; a block is what is verified",
            allowed=str(block),
            engine_error=(
                "ValueError: Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they "
                f"differ. For DFLASH they must match. speculative_num_draft_tokens={width}, "
                f"speculative_dflash_block_size={block}."
            ),
        )
    stated = width or (block if isinstance(block, int) else None)
    if isinstance(window, int) and stated is not None and window < stated:
        yield Refusal(
            key="engine.args.speculative-draft-window-size",
            value=window,
            reason=f"the draft attends to less than its block of {stated}",
            allowed=f"{stated} or more",
            engine_error=(
                "ValueError: --speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size). "
                f"window_size={window}, block_size={stated}."
            ),
        )


def _gamma(config: RunConfig) -> Iterator[Refusal]:
    width, path = config.speculative.num_draft_tokens, config.speculative.draft_model_path
    draft: ModelSpec | None = None
    if path is not None:
        try:
            draft = load_model(path)
        except SpecbenchError:
            draft = None  # the engine warns and goes on, too
    told = dspark.gamma(draft, server_args(config))
    if width is not None and told is not None and width != told + 1:
        yield Refusal(
            key="speculative.num_draft_tokens",
            value=width,
            reason=f"the draft's block is {told} (gamma), and gamma + 1 tokens are verified",
            allowed=str(told + 1),
            engine_error=(
                f"ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1 (= {told + 1} for "
                f"gamma={told}), but got speculative_num_draft_tokens={width}."
            ),
        )
    elif width is not None and width < 2:
        yield Refusal(
            key="speculative.num_draft_tokens",
            value=width,
            reason="one token is the anchor, so nothing would be drafted",
            allowed="2 or more",
            engine_error=f"ValueError: DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got {width}.",
        )


def _tree(config: RunConfig) -> Iterator[Refusal]:
    page = config.memory.page_size
    if page not in (None, 1):
        yield Refusal(
            key="memory.page_size",
            value=page,
            reason="DDTREE verifies pages of one token (pull request 29907)",
            allowed="1",
            engine_error=f"ValueError: DDTREE currently supports only page_size == 1. Got page_size={page}.",
        )
