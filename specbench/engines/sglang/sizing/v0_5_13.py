"""Era II, 0.5.13 to 0.5.16: slots and the scratch of the requests that fit are solved together, in the state's share.

The asked number of requests no longer moves the slots; it only caps the scratch. The cliff becomes a silent cap.
Source: 0.5.16, srt/mem_cache/kv_cache_configurator.py, _handle_max_mamba_cache.
"""

from __future__ import annotations

from dataclasses import replace

from ....lanes import least, whole
from ....units import GIB
from . import v0_5_12
from .contract import Demand, Pools, Rule
from .steps import requests_per_worker, state_only


def state(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    if not demand.slot_bytes:
        return state_only(0, 0, rest_gib)
    width, per_slot = demand.draft_tokens, demand.slot_bytes
    asked = requests_per_worker(rule, demand, demand.attention_dp)
    if demand.explicit_slots is not None:
        slots = demand.explicit_slots // demand.attention_dp
        rows = least(asked or 0, slots // demand.slots_per_request)
    elif not demand.radix and asked is not None:
        slots = rows = asked
    else:
        share = rest_gib * demand.ratio / (1 + demand.ratio) * GIB
        per_slot_with_scratch = per_slot * (1 + width / demand.slots_per_request) if width else per_slot
        slots = whole(share // per_slot_with_scratch)
        rows = least(asked or 0, slots // demand.slots_per_request)
    scratch = per_slot * rows * width
    if width:
        rest_gib = rest_gib - scratch / GIB
    if slots <= 0:
        return replace(state_only(slots, scratch, rest_gib), refusal="no_state")
    rest_gib = rest_gib - slots * per_slot / GIB
    return state_only(slots, scratch, rest_gib)


RULE = replace(
    v0_5_12.RULE,
    version="0.5.13",
    era="II",
    state=state,
    strategies=("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
)
