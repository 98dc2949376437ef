"""0.5.7: slots and requests are told apart, and three slots a request become five, but for drafts with extra buffers.

The scratch of every requested request is set aside before the ratio splits the rest, of the whole server's requests
also where data-parallel attention shares them; where the slots are given, or there is no prefix cache, it is not
charged at all. Source: 0.5.7, srt/model_executor/model_runner_kv_cache_mixin.py.
"""

from __future__ import annotations

from dataclasses import replace

from ....lanes import whole
from ....units import GIB
from . import v0_5_6
from .contract import Demand, Pools, Rule
from .steps import state_only


def state(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    if not demand.slot_bytes:
        return state_only(0, 0, rest_gib)
    scratch = 0
    if demand.explicit_slots is not None:
        slots = demand.explicit_slots // demand.attention_dp
    elif not demand.radix:
        asked = demand.requests if demand.requests is not None else rule.radix_off_default_slots or 0
        slots = asked // demand.attention_dp
    else:
        if demand.draft_tokens and demand.requests is not None:
            scratch = demand.slot_bytes * demand.requests * demand.draft_tokens
            rest_gib = rest_gib - scratch / GIB
        share = rest_gib * demand.ratio / (1 + demand.ratio)
        slots = whole((share * GIB) // demand.slot_bytes)
    rest_gib = rest_gib - slots * demand.slot_bytes / GIB
    return state_only(slots, scratch, rest_gib)


RULE = replace(
    v0_5_6.RULE,
    version="0.5.7",
    era="I",
    state=state,
    pool_beyond_fitting=False,
    divides_all_slots=True,
    scratch_per_slot=False,
    strategies=("auto", "no_buffer", "extra_buffer"),
    extra_buffer_always_four=True,
    five_slots_without_buffers=True,
)
