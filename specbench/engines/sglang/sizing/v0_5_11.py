"""0.5.11: DFLASH, whose draft KV is charged by the ratio of layers; EAGLE runs with overlap scheduling."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_10

RULE = replace(v0_5_10.RULE, version="0.5.11", dflash_draft_kv="layer_ratio", overlap_with=("none", "eagle"))
