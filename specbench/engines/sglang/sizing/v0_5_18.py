"""0.5.18: a block draft is charged as it is, not by its share of layers; shared index keys; room for images is kept."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_17

RULE = replace(
    v0_5_17.RULE,
    version="0.5.18",
    dflash_draft_kv="geometry",
    counts_nested_head=True,
    index_shared=True,
    multimodal_reserve=True,
    fp8_kv_of=(*v0_5_17.RULE.fp8_kv_of, "fp8", "mxfp8"),
)
