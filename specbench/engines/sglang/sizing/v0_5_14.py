"""0.5.14: the draft's weights load before the pools are sized, EAGLE's draft KV counts, convolution windows overlap.

DFLASH and NGRAM run with overlap scheduling, which costs a fifth slot per request; `auto` means extra_buffer.
"""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_13

RULE = replace(
    v0_5_13.RULE,
    version="0.5.14",
    draft_loads_first=True,
    dedup_conv=True,
    dedup_any_layout=True,
    request_limit="half_tokens",
    refuses_no_room=True,
    asserts_input_len=False,
    eagle_draft_kv="with_path",
    auto_strategy="extra_buffer",
    overlap_with=("none", "eagle", "dflash", "ngram", "frozen_kv_mtp", "uno", "custom"),
    speculative_reserve_mib=0,
)
