"""Era III, from 0.5.17: the padding slot and the padding row of the scratch are charged, before the first slot.

That fixed charge, (1 + D) slots, is 2.44 GiB for a 27B model at 16 draft tokens: tight cards are refused that 0.5.16
served. Source: 0.5.17 to 0.5.23, srt/mem_cache/kv_cache_configurator.py.
"""

from __future__ import annotations

from dataclasses import replace

from ....lanes import least, whole
from ....units import GIB
from . import v0_5_16
from .contract import Demand, Pools, Rule
from .steps import requests_per_worker, state_only


def state(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    if not demand.slot_bytes:
        return state_only(0, 0, rest_gib)
    width, per_slot = demand.scratch_tokens, demand.slot_bytes
    asked = requests_per_worker(rule, demand, demand.attention_dp)
    with_ring = per_slot + demand.ring_slot_bytes
    rings = demand.ring_row_bytes * ((asked or 0) + 1) if demand.ring_row_bytes else 0
    if demand.explicit_slots is not None:
        slots = demand.explicit_slots // demand.attention_dp
        rows = least(asked or 0, slots // demand.slots_per_request) + 1
    elif not demand.radix and asked is not None:
        slots = asked
        rows = slots + 1
    else:
        share = rest_gib * demand.ratio / (1 + demand.ratio) * GIB
        if width:
            slots = whole((share - per_slot * (1 + width)) // (per_slot * (1 + width / demand.slots_per_request)))
        else:
            slots = whole((share - rings - with_ring) // with_ring)
        rows = least(asked or 0, slots // demand.slots_per_request) + 1
    scratch = per_slot * rows * width
    if width:
        rest_gib = rest_gib - scratch / GIB
    if slots <= 0:
        return replace(state_only(slots, scratch, rest_gib), refusal="no_state")
    rest_gib = rest_gib - ((slots + 1) * with_ring + rings) / GIB
    return state_only(slots, scratch, rest_gib)


RULE = replace(
    v0_5_16.RULE,
    version="0.5.17",
    era="III",
    state=state,
    charges_padding=True,
    rings="per_slot",
    largest_stage_only=True,
    latent_scales_charged=True,
    skips_empty_stages=True,
)
