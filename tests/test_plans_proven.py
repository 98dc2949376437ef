"""Plans that were carried out: three proposals of `specbench plan`, started on an H200, and what the engine logged.

They are those of the README's command for one of its cards. The starts had the budget of that card emulated. Figures
are predicted from the configuration alone, with tables of free memory that were measured on this H200 in earlier
starts: tokens differ by one at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.params import load_run
from specbench.planning.begin import from_scratch
from specbench.planning.search import plan
from specbench.planning.types import Size
from specbench.terms import Limit
from specbench.units import GIB

WISHES = {"running_requests": 8, "context": 32_768}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was set beside 8 requests of 32,768 tokens, and what the server logged. It served 8 of 8."""

    set: dict[str, Any]
    slots: int
    tokens: int
    graphs_gib: float  # of target and draft together, each rounded to 0.01


STARTED = (
    Started(
        set={
            "memory.kv_cache_dtype": "fp8_e4m3",
            "memory.mamba_ssm_dtype": "bfloat16",
            "memory.mem_fraction_static": 0.86,
        },
        slots=40,
        tokens=354_879,
        graphs_gib=0.54,
    ),
    Started(
        set={
            "speculative.num_draft_tokens": 8,
            "memory.mamba_ssm_dtype": "bfloat16",
            "memory.mem_fraction_static": 0.89,
            "memory.max_mamba_cache_size": 40,
        },
        slots=40,
        tokens=271_124,
        graphs_gib=0.33,
    ),
    Started(
        set={
            "speculative.num_draft_tokens": 4,
            "memory.kv_cache_dtype": "fp8_e4m3",
            "memory.mem_fraction_static": 0.82,
        },
        slots=41,
        tokens=305_834,
        graphs_gib=0.24,
    ),
)


def first_three(size: Size) -> list[dict[str, Any]]:
    """What they set beside the wish itself."""
    return [
        {key: value for change in found.changes for key, value in change.set.items() if change.kind != "requests"}
        for found in size.plans[:3]
    ]


def test_what_was_started_is_what_is_proposed_first_for_one_card() -> None:
    given, _ = from_scratch(
        model="Qwen/Qwen3.6-27B", gpu="rtx-pro-6000", version="0.5.16", algorithm="DFLASH", context=32_768
    )
    (one,) = plan(given, WISHES, sizes=(1,)).sizes
    assert first_three(one) == [started.set for started in STARTED]
    assert [found.certainty for found in one.plans[:3]] == ["sure"] * 3
    # the params file of the starts captures no graphs of prefill: with 8 GiB to spare the same three come first
    given = load_run("params/h200/0.5.16.yaml", ["memory.mamba_full_memory_ratio=null"])
    (one,) = plan(given, WISHES | {"slack_gib": 8}, sizes=(1,)).sizes
    assert first_three(one) == [started.set for started in STARTED]


@pytest.mark.parametrize("started", STARTED, ids=["first", "second", "third"])
def test_predicted_is_what_was_logged(started: Started) -> None:
    given = load_run("params/h200/0.5.16.yaml", ["memory.mamba_full_memory_ratio=null"])
    budget = predict(given.replace({"memory.max_running_requests": 8} | started.set))

    def point(name: Limit) -> int:
        value = budget.limits[name].value
        assert value is not None
        return value.point

    assert budget.verdicts == ("serves",)
    assert (point("state_slots"), point("running_requests")) == (started.slots, 8)
    assert abs(point("kv_tokens") - started.tokens) <= 1
    graphs = budget.terms["graphs"].bytes
    assert graphs is not None
    # estimated 0.59, 0.38 and 0.28 GiB
    assert graphs.contains(round(started.graphs_gib * GIB), slop=round(0.01 * GIB))
    assert abs(graphs.point / GIB - started.graphs_gib) < 0.06
