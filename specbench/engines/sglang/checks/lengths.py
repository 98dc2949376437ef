"""KV types and context length."""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ..flags import kv_dtypes
from ..sizing.contract import Rule
from .refusal import Refusal


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


def context(config: RunConfig, target: ModelSpec) -> Iterator[Refusal]:
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
