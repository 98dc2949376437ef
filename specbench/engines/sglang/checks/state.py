"""State and prefix cache: which strategy goes with what, by version."""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....errors import ConfigError
from ....specs import ModelSpec
from ....versions import at_least
from ..families import disables_radix_cache, fixed_page_size, settles_pages, settles_strategy
from ..given import server_args
from ..resolve import keeps_prefixes, overlaps, resolve_strategy
from ..sizing.contract import Rule
from .refusal import Refusal

_TRACK_INTERVAL = 256  # --mamba-track-interval
_STATE_CHUNK = 64  # FLA_CHUNK_SIZE


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    memory = config.memory
    asked = memory.mamba_radix_cache_strategy
    key = "memory.mamba_radix_cache_strategy"
    if memory.mamba_ssm_dtype == "float16" and not at_least(version, "0.5.9"):
        yield Refusal(
            key="memory.mamba_ssm_dtype",
            value="float16",
            reason="the version does not know this type of state",
            allowed="float32, bfloat16",
            engine_error=(
                "error: argument --mamba-ssm-dtype: invalid choice: 'float16' (choose from 'float32', 'bfloat16')"
            ),
        )
    if asked not in rule.strategies:
        choices = ", ".join(repr(strategy) for strategy in rule.strategies)
        has_flag = at_least(version, "0.5.7")
        yield Refusal(
            key=key,
            value=asked,
            reason="the version does not know this strategy",
            allowed=", ".join(rule.strategies),
            engine_error=(
                f"error: argument --mamba-scheduler-strategy: invalid choice: {asked!r} (choose from {choices})"
                if has_flag
                else f"error: unrecognized arguments: --mamba-scheduler-strategy {asked}"
            ),
        )


def _explicit_no_buffer(config: RunConfig, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """Of pages that sparse attention fixes `latent` speaks: there it is the strategy that has to change."""
    memory = config.memory
    if memory.page_size not in (None, 1) and fixed_page_size(target, rule) is None:
        yield _pages_of_one(memory.page_size)
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


def _pages_of_one(page: int | None) -> Refusal:
    return Refusal(
        key="memory.page_size",
        value=page,
        reason="no_buffer keeps pages of one token",
        allowed="1, or the strategy extra_buffer",
        engine_error="AssertionError: no_buffer only supports page_size=1.",
    )


def of_plain(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    """Models without state: before 0.5.21 nothing looks at the strategy, and nothing follows from it."""
    asked = config.memory.mamba_radix_cache_strategy
    buffered = asked.startswith("extra_buffer") and not config.memory.disable_radix_cache
    if buffered and at_least(version, "0.5.21"):
        yield Refusal(
            key="memory.mamba_radix_cache_strategy",
            value=asked,
            reason=f"{target.architecture} keeps no state that a buffer could hold",
            allowed="auto or no_buffer",
            engine_error=(
                f"ValueError: --mamba-radix-cache-strategy {asked} needs mamba state, got {target.architecture}."
            ),
        )


def of_hybrid(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """Refusals that only models with state meet."""
    if config.memory.mamba_radix_cache_strategy in rule.strategies and settles_strategy(target.architecture, version):
        yield from _strategy(config, version, rule, target)
        yield from _no_buffer_with_speculation(config, version, target)
        yield from _track_interval(config, version, rule, target)
        yield from _pages(config, version, rule, target)
    yield from _requests(config)


def _strategy(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """A strategy that is asked for, in the engine's order."""
    memory, asked = config.memory, config.memory.mamba_radix_cache_strategy
    key = "memory.mamba_radix_cache_strategy"
    buffered = asked.startswith("extra_buffer")
    early = not at_least(version, "0.5.14")
    radix = keeps_prefixes(config, version, target)
    if not radix:
        by_itself = disables_radix_cache(target.architecture, version, speculates=False)  # then it asks no further
        if buffered and not by_itself and memory.disable_radix_cache and at_least(version, "0.5.10") and early:
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
        yield from _lazy(config, version, rule)
    if asked == "no_buffer" and not early:
        yield from _explicit_no_buffer(config, rule, target)


def _lazy(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    """Before 0.5.17 not with draft tokens that are given; a default comes after the engine's check. 0.5.17 has it with
    all but DFLASH.

    The other one looks at whether there is overlap in the end: 0.5.13 has none with NGRAM, DFLASH and FROZEN_KV_MTP.
    """
    needs_overlap = (
        "AssertionError: Lazy extra buffer requires overlap schedule (--disable-overlap-schedule is incompatible)"
    )
    if at_least(version, "0.5.17"):
        is_dflash = speculative.canonical(config.speculative.algorithm) == "DFLASH"
        refuses = is_dflash and not at_least(version, "0.5.18")
    else:
        refuses = config.speculative.num_draft_tokens is not None
    if refuses:
        yield Refusal(
            key="memory.mamba_radix_cache_strategy",
            value="extra_buffer_lazy",
            reason="the lazy buffer does not work with speculation before 0.5.17, and before 0.5.18 not with DFLASH",
            allowed="auto or extra_buffer",
            engine_error=(
                "AssertionError: extra_buffer_lazy unsupported with DFLASH; "
                "use --mamba-radix-cache-strategy extra_buffer."
                if at_least(version, "0.5.17")
                else "AssertionError: extra_buffer_lazy unsupported with spec."
                if at_least(version, "0.5.14")
                else "AssertionError: extra_buffer_lazy is not yet supported with speculative decoding. "
                "Use --mamba-scheduler-strategy extra_buffer instead."
            ),
        )
    elif config.memory.disable_overlap_schedule or config.parallel.pp_size > 1:
        off = config.memory.disable_overlap_schedule
        yield Refusal(
            key="memory.disable_overlap_schedule" if off else "parallel.pp_size",
            value=True if off else config.parallel.pp_size,
            reason="the lazy buffer needs overlap scheduling",
            allowed="false, or the strategy extra_buffer" if off else "1, or the strategy extra_buffer",
            engine_error=needs_overlap,
        )
    elif not overlaps(config, rule, speculative.of(config.speculative)):
        yield Refusal(
            key="speculative.algorithm",
            value=config.speculative.algorithm,
            reason="the lazy buffer needs overlap scheduling, which the version does not have with it",
            allowed="another, or the strategy extra_buffer",
            engine_error=needs_overlap,
        )


def _pages(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """`auto` that becomes no_buffer makes pages of one token from 0.5.11 to 0.5.13; before, any no_buffer wants them.

    Source: server_args.py; mem_cache/mamba_radix_cache.py of 0.5.6 to 0.5.10.
    """
    page = config.memory.page_size
    if not settles_pages(version):
        if page not in (None, 1) and resolve_strategy(config, rule, True, version, target) == "no_buffer":
            yield _pages_of_one_for_the_cache(page, version)
        return
    if config.memory.mamba_radix_cache_strategy != "auto" or page in (None, 1) or not at_least(version, "0.5.14"):
        return
    if fixed_page_size(target, rule) is not None:
        return
    if resolve_strategy(config, rule, True, version, target) == "no_buffer":
        yield _pages_of_one(page)


def _pages_of_one_for_the_cache(page: int | None, version: str) -> Refusal:
    error = "AssertionError: Only support page_size=1 in mamba radix cache now."
    if at_least(version, "0.5.7"):
        error = f"AssertionError: Page size must be 1 for MambaRadixCache v1, got {page}"
    return Refusal(
        key="memory.page_size",
        value=page,
        reason="the prefix cache of a model with state keeps pages of one token",
        allowed="1, or disable_radix_cache: true",
        engine_error=error,
    )


def _requests(config: RunConfig) -> Iterator[Refusal]:
    """The solver needs a number as soon as anything is verified; the built-in algorithms but UNO bring one."""
    if config.memory.max_running_requests is not None or speculative.canonical(config.speculative.algorithm) == "none":
        return
    try:
        brings = speculative.of(config.speculative).default_requests
    except ConfigError:  # an unknown algorithm is refused elsewhere
        return
    if brings is None:
        yield Refusal(
            key="memory.max_running_requests",
            value=None,
            reason=f"nothing sets it for {speculative.canonical(config.speculative.algorithm)}, and a model with state "
            "is sized by it",
            allowed="the most requests that run at once",
            engine_error="AssertionError",
        )


def _no_buffer_with_speculation(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    if at_least(version, "0.5.14") or not at_least(version, "0.5.10"):
        return
    if not keeps_prefixes(config, version, target):
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


def track_interval(config: RunConfig) -> int | None:
    """Tokens after which extra buffers keep a state; None: what is given is no number."""
    interval = server_args(config).get("mamba_track_interval", _TRACK_INTERVAL)
    return interval if isinstance(interval, int) and not isinstance(interval, bool) else None


def looks_at_interval(version: str) -> bool:
    """0.5.8 asserts it of a model without state instead (Glm4MoeForCausalLM)."""
    return at_least(version, "0.5.9") or not at_least(version, "0.5.8")


def _track_interval(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """With extra buffers the state is kept every 256 tokens: no more may be verified, and pages must fit.

    0.5.7 and 0.5.9 look at it without a prefix cache, too.
    """
    if not looks_at_interval(version):
        return
    try:
        overlap = overlaps(config, rule, speculative.of(config.speculative))
    except ConfigError:  # an unknown algorithm is refused elsewhere
        overlap = False
    buffered = resolve_strategy(config, rule, overlap, version, target) not in (None, "no_buffer")
    stated = config.memory.mamba_radix_cache_strategy.startswith("extra_buffer")
    if disables_radix_cache(target.architecture, version, speculates=False):
        return
    if not (buffered or (stated and not at_least(version, "0.5.10"))):
        return
    interval = track_interval(config)
    if interval is None:
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
    elif page is not None and not at_least(version, "0.5.8") and _STATE_CHUNK % page:
        yield Refusal(
            key="memory.page_size",
            value=page,
            reason=f"the linear layers work in chunks of {_STATE_CHUNK} tokens",
            allowed=f"a divisor of {_STATE_CHUNK}",
            engine_error=(
                f"AssertionError: Page size for hybrid GDN model must be divisible by {_STATE_CHUNK}, got {page}"
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
