"""The rules in their order, and what they find. In: a case. Out: findings, by what they cost: fatal, costly, notice.

A rule is a function of a `Case` that returns findings; it is registered by being listed here. Of equally costly
findings the order of the list counts.
"""

from __future__ import annotations

from collections.abc import Callable

from .case import Case
from .finding import Finding, by_cost
from .rules_acceptance import decays, hardly_accepted
from .rules_ahead import fault_ahead, memory_ahead
from .rules_benchmark import bench_queued
from .rules_card import graphs_above_estimate, negative_figures
from .rules_hang import perhaps_hangs
from .rules_idle_slots import idle_slots
from .rules_less_memory import memory_taken_by_others
from .rules_limits import capped, token_limit, token_limit_far_below
from .rules_pools import draft_kv_above_target, scratch_above_pool, slots_beyond_use, tokens_beyond_use
from .rules_pressure import retraction
from .rules_queue import admission_delayed, queue_with_room
from .rules_ranks import slow_allreduce
from .rules_ranks_memory import ranks_disagree
from .rules_requests import context_beside_requests, overflow, requests_failed
from .rules_serving import prefix_hits, slow_first, throughput_spans_idle
from .rules_shortened import cut_by_pool, truncated
from .rules_start import failed
from .rules_starts import graphs_grew, starts_differ
from .rules_unlogged import draft_weights_duplicated, state_pool_not_logged
from .rules_unwell import noticed

RULES: tuple[Callable[[Case], tuple[Finding, ...]], ...] = (
    failed,
    overflow,
    truncated,
    cut_by_pool,
    requests_failed,
    noticed,
    perhaps_hangs,
    fault_ahead,
    memory_ahead,
    capped,
    context_beside_requests,
    token_limit,
    token_limit_far_below,
    starts_differ,
    memory_taken_by_others,
    ranks_disagree,
    negative_figures,
    scratch_above_pool,
    slots_beyond_use,
    tokens_beyond_use,
    draft_kv_above_target,
    idle_slots,
    draft_weights_duplicated,
    slow_allreduce,
    graphs_above_estimate,
    graphs_grew,
    state_pool_not_logged,
    queue_with_room,
    admission_delayed,
    retraction,
    decays,
    hardly_accepted,
    slow_first,
    prefix_hits,
    throughput_spans_idle,
    bench_queued,
)


def findings(case: Case) -> tuple[Finding, ...]:
    """What all rules find."""
    return by_cost(finding for rule in RULES for finding in rule(case))
