"""Plans that were carried out: three proposals of `specbench plan`, started on an H200, and what the engine logged.

The budget of an RTX PRO 6000 was emulated. Figures are predicted from the configuration alone, with tables of free
memory that were measured on this card in earlier starts: tokens differ by one at most.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest

from specbench.params import load_run
from specbench.planning.search import plan
from specbench.planning.types import Plan
from specbench.planning.words import setting
from specbench.terms import Limit
from specbench.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was set beside 8 requests of 32,768 tokens, and what the server logged. It served 8 of 8."""

    set: str
    slots: int
    tokens: int
    graphs_gib: float


STARTED = (
    Started(
        set="kv_cache_dtype fp8_e4m3, mamba_ssm_dtype bfloat16, mem_fraction_static 0.86",
        slots=40,
        tokens=354_879,
        graphs_gib=0.54,
    ),
    Started(
        set="num_draft_tokens 8, mamba_ssm_dtype bfloat16, mem_fraction_static 0.89, max_mamba_cache_size 40",
        slots=40,
        tokens=271_124,
        graphs_gib=0.33,
    ),
    Started(
        set="num_draft_tokens 4, kv_cache_dtype fp8_e4m3, mem_fraction_static 0.82",
        slots=41,
        tokens=305_834,
        graphs_gib=0.24,
    ),
)


@functools.cache
def proposed() -> tuple[Plan, ...]:
    """For one card, with the room of 8 GiB outside the pools; the engine's own ratio."""
    given = load_run("params/h200/0.5.16.yaml", ["memory.mamba_full_memory_ratio=null"])
    answer = plan(given, {"running_requests": 8, "context": 32_768, "slack_gib": 8}, sizes=(1,))
    (one,) = answer.sizes
    return one.plans


def test_what_was_started_is_what_is_proposed_first() -> None:
    first = proposed()[: len(STARTED)]
    assert [setting(found.changes) for found in first] == [
        f"max_running_requests 8, {started.set}" for started in STARTED
    ]
    assert {found.certainty for found in first} == {"sure"}


@pytest.mark.parametrize(("number", "started"), list(enumerate(STARTED)), ids=["first", "second", "third"])
def test_predicted_is_what_was_logged(number: int, started: Started) -> None:
    budget = proposed()[number].budget

    def point(name: Limit) -> int:
        value = budget.limits[name].value
        assert value is not None
        return value.point

    assert (point("state_slots"), point("running_requests")) == (started.slots, 8)
    assert abs(point("kv_tokens") - started.tokens) <= 1
    graphs = budget.terms["graphs"].bytes
    assert graphs is not None
    # estimated 0.59, 0.38 and 0.28 GiB; the log rounds the target's and the draft's to 0.01 each
    assert graphs.contains(round(started.graphs_gib * GIB), slop=round(0.01 * GIB))
    assert abs(graphs.point / GIB - started.graphs_gib) < 0.06
