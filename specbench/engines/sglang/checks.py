"""What a SGLang version refuses of a configuration, before it touches a GPU.

In: a configuration. Out: refusals, most basic first, each with its key, what is allowed and the engine's own words
where they are known (verbatim). Sources: server_args.py of 0.5.12 and 0.5.16, arg_groups/ of 0.5.16 and 0.5.23, real
logs. Keys that the engine would silently override are refused too: a configuration should mean what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ... import speculative
from ...config import RunConfig
from ...errors import ConfigError, SpecbenchError
from ...specs import ModelSpec, load_model
from ...versions import at_least
from .flags import ALGORITHM_SINCE, facts_version, kv_dtypes
from .resolve import overlaps, resolve_strategy, server_args
from .sizing import rule_for
from .sizing.contract import Rule

_TRACK_INTERVAL = 256  # --mamba-track-interval
_STATE_CHUNK = 64  # FLA_CHUNK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One key that the engine version refuses."""

    key: str  # dotted
    value: Any
    reason: str
    allowed: str
    engine_error: str | None = None  # the engine's own text; None: wording not known
    tolerated: bool = False  # the engine starts all the same and overrides the value


def check(config: RunConfig, model: ModelSpec | None = None) -> list[Refusal]:
    """Every refusal of this configuration. Empty: none that is known. ConfigError for a version without rules."""
    version = facts_version(config.engine)
    rule = rule_for(version)
    found: list[Refusal] = []
    for group in (_parallel, _algorithm, _strategy, _types):
        found.extend(group(config, version, rule))
    found.extend(_model(config, version, rule, model))
    return found


# ── parallelism ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _parallel(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    parallel, gpus = config.parallel, config.gpu.count
    servers = 1 if parallel.enable_dp_attention else parallel.dp_size
    needed = parallel.tp_size * parallel.pp_size * servers
    if needed > gpus:
        yield Refusal(
            key="gpu.count",
            value=gpus,
            reason=f"{needed} GPUs are needed (tp {parallel.tp_size} × pp {parallel.pp_size} × dp {servers})",
            allowed=f"{needed} or more, or fewer ranks",
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
        )


# ── speculation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _algorithm(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    section = config.speculative
    name = speculative.canonical(section.algorithm)
    since = ALGORITHM_SINCE.get(name)
    if name != "none" and (since is None or not at_least(version, since)):
        released = tuple(known for known, first in ALGORITHM_SINCE.items() if at_least(version, first))
        yield Refusal(
            key="speculative.algorithm",
            value=section.algorithm,
            reason=f"{name} exists since {since}" if since else _unknown(section.algorithm),
            allowed=f"none, {', '.join(released)}",
        )
        return
    if name in speculative.ALGORITHMS:
        for complaint in speculative.ALGORITHMS[name].check(section):
            yield Refusal(
                key=f"speculative.{complaint.key}",
                value=complaint.value,
                reason=complaint.reason,
                allowed=complaint.allowed,
                tolerated=True,
            )
    if name == "DFLASH":
        yield from _dflash(config, version)
    if name in ("EAGLE", "EAGLE3", "NEXTN"):
        yield from _eagle(config)
    if name in ("NGRAM", "STANDALONE") and config.parallel.enable_dp_attention:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason=f"{name} does not run with data-parallel attention",
            allowed="false",
            engine_error=(f"ValueError: Currently {name.lower()} speculative decoding does not support dp attention."),
        )


def _unknown(name: str) -> str:
    try:
        speculative.get(name)
    except ConfigError as error:
        return str(error).splitlines()[0].partition(": ")[2].rstrip(".")
    return f"{name} is in no release"


def _dflash(config: RunConfig, version: str) -> Iterator[Refusal]:
    section, parallel = config.speculative, config.parallel
    if parallel.enable_dp_attention and not at_least(version, "0.5.23"):
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason="DFLASH does not run with data-parallel attention",
            allowed="false",
            engine_error="ValueError: Currently DFLASH speculative decoding does not support dp attention.",
        )
    if parallel.pp_size != 1:
        yield Refusal(
            key="parallel.pp_size",
            value=parallel.pp_size,
            reason="DFLASH does not run with pipeline stages",
            allowed="1",
            engine_error="ValueError: Currently DFLASH speculative decoding only supports pp_size == 1.",
        )
    if section.draft_model_path is None:
        yield Refusal(
            key="speculative.draft_model_path",
            value=None,
            reason="DFLASH needs a draft model",
            allowed="the draft's name or folder",
            engine_error="ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
        )
    block = server_args(config).get("speculative_dflash_block_size")
    width = section.num_draft_tokens
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


def _eagle(config: RunConfig) -> Iterator[Refusal]:
    """SGLang takes all three widths or chooses all three itself."""
    section = config.speculative
    given = {
        "num_steps": section.num_steps,
        "eagle_topk": section.eagle_topk,
        "num_draft_tokens": section.num_draft_tokens,
    }
    missing = [key for key, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        yield Refusal(
            key=f"speculative.{missing[0]}",
            value=None,
            reason="steps, top-k and draft tokens are given together or not at all",
            allowed="a value, or leave all three out (3, 1, 4)",
            engine_error="AssertionError" if section.num_steps is None else None,
        )


# ── state and prefix cache ───────────────────────────────────────────────────────────────────────────────────────────


def _strategy(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    memory = config.memory
    asked = memory.mamba_radix_cache_strategy
    key = "memory.mamba_radix_cache_strategy"
    if asked not in rule.strategies:
        choices = ", ".join(repr(strategy) for strategy in rule.strategies)
        has_flag = at_least(version, "0.5.8")
        yield Refusal(
            key=key,
            value=asked,
            reason="the version does not know this strategy",
            allowed=", ".join(rule.strategies),
            engine_error=(
                f"error: argument --mamba-scheduler-strategy: invalid choice: {asked!r} (choose from {choices})"
                if has_flag
                else "error: unrecognized arguments: --mamba-scheduler-strategy"
            ),
        )
        return
    speculates = speculative.canonical(config.speculative.algorithm) != "none"
    if memory.disable_radix_cache:
        if asked == "extra_buffer" and at_least(version, "0.5.10") and not at_least(version, "0.5.14"):
            stop = "." if at_least(version, "0.5.13") else ""
            yield Refusal(
                key=key,
                value=asked,
                reason="extra_buffer needs the radix cache",
                allowed="auto or no_buffer with disable_radix_cache",
                engine_error=(
                    f"ValueError: mamba extra_buffer is not compatible with --disable-radix-cache{stop} Overlap "
                    "scheduling is already supported with no_buffer + disable_radix_cache. "
                    "Please use --mamba-scheduler-strategy no_buffer instead."
                ),
            )
        return
    if asked == "extra_buffer_lazy":
        if speculates and not at_least(version, "0.5.18"):
            yield Refusal(
                key=key,
                value=asked,
                reason="the lazy buffer does not work with speculation before 0.5.18",
                allowed="auto or extra_buffer",
                engine_error="AssertionError: extra_buffer_lazy unsupported with spec.",
            )
        elif memory.disable_overlap_schedule:
            yield Refusal(
                key="memory.disable_overlap_schedule",
                value=True,
                reason="the lazy buffer needs overlap scheduling",
                allowed="false, or the strategy extra_buffer",
                engine_error=(
                    "AssertionError: Lazy extra buffer requires overlap schedule "
                    "(--disable-overlap-schedule is incompatible)"
                ),
            )
    if asked == "no_buffer" and at_least(version, "0.5.14"):
        yield from _explicit_no_buffer(config)


def _explicit_no_buffer(config: RunConfig) -> Iterator[Refusal]:
    memory = config.memory
    if memory.page_size not in (None, 1):
        yield Refusal(
            key="memory.page_size",
            value=memory.page_size,
            reason="no_buffer keeps pages of one token",
            allowed="1, or the strategy extra_buffer",
            engine_error="AssertionError: no_buffer only supports page_size=1.",
        )
    if not memory.disable_overlap_schedule:
        yield Refusal(
            key="memory.disable_overlap_schedule",
            value=False,
            reason="no_buffer does not run with overlap scheduling",
            allowed="true, or the strategy auto",
            engine_error=(
                "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
            ),
        )


# ── types and model ──────────────────────────────────────────────────────────────────────────────────────────────────


def _types(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    dtype = config.memory.kv_cache_dtype
    if dtype not in kv_dtypes(version):
        choices = ", ".join(repr(known) for known in kv_dtypes(version))
        yield Refusal(
            key="memory.kv_cache_dtype",
            value=dtype,
            reason="the version has no such KV type",
            allowed=", ".join(kv_dtypes(version)),
            engine_error=f"error: argument --kv-cache-dtype: invalid choice: {dtype!r} (choose from {choices})",
        )


def _model(config: RunConfig, version: str, rule: Rule, model: ModelSpec | None) -> Iterator[Refusal]:
    """What depends on the model. A model that cannot be read is for `load_model` to refuse, not for this."""
    try:
        target = model or load_model(config.model)
    except SpecbenchError:
        return
    yield from _context(config, target)
    if target.state_layers:
        yield from _no_buffer_with_speculation(config, version, rule, target)
        yield from _track_interval(config, version, rule)


def _context(config: RunConfig, target: ModelSpec) -> Iterator[Refusal]:
    asked = config.memory.context_length
    allowed = config.engine.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "0").lower() in ("1", "true", "yes")
    if asked is not None and asked > target.context_len and not allowed:
        yield Refusal(
            key="memory.context_length",
            value=asked,
            reason=f"the model's own context is {target.context_len}",
            allowed=f"at most {target.context_len}, or engine.env SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
            engine_error=(
                f"ValueError: Warning: User-specified context_length ({asked}) is greater than the derived "
                f"context_length ({target.context_len}). This may lead to incorrect model outputs or CUDA errors. Note "
                "that the derived context_length may differ from max_position_embeddings in the model's config. "
                "To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
            ),
        )


def _no_buffer_with_speculation(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    if at_least(version, "0.5.14") or not at_least(version, "0.5.10") or config.memory.disable_radix_cache:
        return
    asked = config.memory.mamba_radix_cache_strategy
    if speculative.canonical(config.speculative.algorithm) != "none" and asked in ("auto", "no_buffer"):
        yield Refusal(
            key="memory.mamba_radix_cache_strategy",
            value=asked,
            reason="speculation with a radix cache needs extra_buffer in this version (auto means no_buffer)",
            allowed="extra_buffer, or disable_radix_cache: true",
            engine_error=(
                f"ValueError: Speculative decoding for {target.architecture} is not compatible with radix cache when "
                "using --mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
                "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
            ),
        )


def _track_interval(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    """With extra buffers the state is kept every 256 tokens: no more may be verified, and pages must fit."""
    name = speculative.canonical(config.speculative.algorithm)
    family = speculative.ALGORITHMS[name].family if name in speculative.ALGORITHMS else "none"
    if resolve_strategy(config, rule, overlaps(config, rule, family)) in (None, "no_buffer"):
        return
    interval = server_args(config).get("mamba_track_interval", _TRACK_INTERVAL)
    if not isinstance(interval, int):
        return
    spoken = not at_least(version, "0.5.14")  # later the same assertions are bare
    width, page = config.speculative.num_draft_tokens, config.memory.page_size
    if width is not None and width > interval:
        yield Refusal(
            key="speculative.num_draft_tokens",
            value=width,
            reason=f"states are tracked every {interval} tokens",
            allowed=f"at most {interval}",
            engine_error=(
                f"AssertionError: mamba_track_interval {interval} must be greater than or equal to "
                f"speculative_num_draft_tokens {width}"
                if spoken
                else "AssertionError"
            ),
        )
    if page is not None and interval % page:
        yield Refusal(
            key="memory.page_size",
            value=page,
            reason=f"states are tracked every {interval} tokens, which is no whole number of pages",
            allowed=f"a divisor of {interval}",
            engine_error=(
                f"AssertionError: mamba_track_interval {interval} must be divisible by page_size {page}"
                if spoken
                else "AssertionError"
            ),
        )
    elif page is not None and max(_STATE_CHUNK, page) % min(_STATE_CHUNK, page):
        yield Refusal(
            key="memory.page_size",
            value=page,
            reason=f"the linear layers work in chunks of {_STATE_CHUNK} tokens",
            allowed=f"a divisor or a multiple of {_STATE_CHUNK}",
            engine_error="AssertionError",
        )
