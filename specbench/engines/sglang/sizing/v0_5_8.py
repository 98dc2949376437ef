"""0.5.8 to 0.5.12: the scratch of every *requested* request is set aside first, the rest is split by the ratio.

Whether those requests can ever be admitted does not matter: this is the cliff (4 requests: 24 slots, 8 requests: 2).
Source: 0.5.12, srt/model_executor/model_runner_kv_cache_mixin.py.
"""

from __future__ import annotations

from dataclasses import replace

from ....lanes import whole
from ....units import GIB
from . import v0_5_7
from .contract import Demand, Pools, Rule
from .steps import requests_per_worker, state_only


def state(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    if not demand.slot_bytes:
        return state_only(0, 0, rest_gib)
    scratch = 0
    asked = requests_per_worker(rule, demand, demand.attention_dp)
    if demand.draft_tokens and asked is not None:
        scratch = demand.slot_bytes * asked * demand.draft_tokens
        rest_gib = rest_gib - scratch / GIB
    if demand.explicit_slots is not None:
        slots = demand.explicit_slots // demand.attention_dp
    elif not demand.radix and asked is not None:
        slots = asked
    elif not demand.radix and rule.radix_off_default_slots is not None:
        slots = rule.radix_off_default_slots
    else:
        share = rest_gib * demand.ratio / (1 + demand.ratio)
        slots = whole((share * GIB) // demand.slot_bytes)
    rest_gib = rest_gib - slots * demand.slot_bytes / GIB
    return state_only(slots, scratch, rest_gib)


RULE = replace(
    v0_5_7.RULE,
    version="0.5.8",
    state=state,
    trees_by_default=False,
    stages_hold_all=False,
    five_slots_without_buffers=False,
)
