"""KV types and context length."""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ..families import fixed_page_size, settles_strategy
from ..flags import kv_dtypes
from ..given import allows_longer_context
from ..resolve import resolve_strategy
from ..sizing.contract import Rule
from .refusal import Refusal
from .state import looks_at_interval, track_interval

_LARGEST_CHUNK = 16384  # --chunked-prefill-size that the engine chooses


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
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


def chunk_of_pages(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """A prefill chunk is whole pages; what the engine takes by itself is 2,048 to 16,384."""
    page, chunk = config.memory.page_size, config.memory.chunked_prefill_size
    if (
        page is None
        or fixed_page_size(target, rule) is not None
        or chunk == -1
        or (chunk or _LARGEST_CHUNK) % page == 0
    ):
        return
    settled = bool(target.state_layers) and settles_strategy(target.architecture, version)
    strategy = resolve_strategy(config, rule, True, version, target) if settled else None
    interval = track_interval(config) if looks_at_interval(version) else None
    if strategy is not None and (strategy == "no_buffer" or (interval is not None and interval % page)):
        return  # pages of one token then, or refused for the state's sake
    yield Refusal(
        key="memory.page_size",
        value=page,
        reason=f"a prefill chunk of {chunk or 'a power of two'} tokens is no whole number of pages",
        allowed="a divisor of memory.chunked_prefill_size",
        engine_error="AssertionError: chunked_prefill_size must be divisible by page_size",
    )


def context(config: RunConfig, target: ModelSpec) -> Iterator[Refusal]:
    asked = config.memory.context_length
    if asked is not None and asked > target.context_len and not allows_longer_context(config):
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
