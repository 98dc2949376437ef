"""0.5.6 and its post releases: before requests and slots were told apart.

Every slot carries its own scratch, so K is small and S = K. With a radix cache an explicit slot count is overwritten.
The tokens that drafts and verification hold at once are added to the pool, beyond what fits. Source: 0.5.6, 0.5.6.post1
and 0.5.6.post2, srt/model_executor/model_runner.py.
"""

from __future__ import annotations

from dataclasses import replace

from ....lanes import whole
from ....units import GIB
from .contract import Demand, Pools, Rule
from .steps import state_only


def state(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    rows = 1 + demand.draft_tokens
    if not demand.slot_bytes:
        slots = 0
    elif demand.radix:
        share = rest_gib * demand.ratio / (1 + demand.ratio)
        slots = whole(share * GIB // demand.slot_bytes // rows)
    elif demand.explicit_slots is not None:
        slots = demand.explicit_slots
    else:
        slots = demand.requests if demand.requests is not None else 512
    if demand.slots_divided:
        slots //= demand.attention_dp
    rest_gib -= slots * demand.slot_bytes * rows / GIB
    scratch = slots * demand.slot_bytes * demand.draft_tokens
    return state_only(slots, scratch, rest_gib)


RULE = Rule(
    version="0.5.6.post2",
    era="0",
    state=state,
    draft_loads_first=False,
    trees_by_default=True,
    pool_beyond_fitting=True,
    divides_all_slots=False,
    requests_of_fitting=True,
    charges_padding=False,
    scratch_per_slot=True,
    dedup_conv=False,
    dedup_any_layout=False,
    request_limit="none",
    refuses_no_room=False,
    guards_zero_division=False,
    asserts_input_len=True,
    radix_off_default_slots=512,
    eagle_draft_kv="outside",
    counts_nested_head=False,
    eagle_scale="multiply",
    dflash_draft_kv="absent",
    latent_scales_charged=False,
    index_shared=False,
    index_pooled=False,
    raw_on_blackwell=False,
    rings="none",
    stages_hold_all=True,
    largest_stage_only=False,
    skips_empty_stages=False,
    multimodal_reserve=False,
    state_dtype_default="float32",
    fp8_kv_of=("modelopt_fp8", "modelopt_fp4", "modelopt_mixed"),  # mixed checkpoints load from 0.5.10 on
    strategies=("auto",),  # which is no_buffer; there is no flag
    auto_strategy="no_buffer",
    extra_buffer_always_four=False,
    five_slots_without_buffers=False,
    overlap_with=("none",),
    speculative_reserve_mib=2048,
    graph_batch_capped=False,
    small_card_generous=False,
    request_table_padding=0,
)

#: The releases before it size alike; 0.5.6 keeps no prefixes of Mamba 2 models (`families`).
FIRST = replace(RULE, version="0.5.6")
