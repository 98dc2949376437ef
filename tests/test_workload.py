"""Steps of a workload, exact prompts, and the arithmetic that refuses what cannot fit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError

from specbench.budget_types import FreeMemory, MemoryBudget, PredictedLimit
from specbench.configuration.config import RunConfig, WorkloadSection
from specbench.load.prompts import FIRST_ID, LAST_ID, token_ids
from specbench.load.workload import Step, arrivals_s, check_fit, steps_of
from specbench.terms import Limit
from specbench.units import Interval


def config(**workload: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "w",
            "engine": {"version": "0.5.16"},
            "model": "m",
            "gpu": {"name": "h200"},
            "memory": {"context_length": 32768},
            "workload": workload,
        }
    )


def budget(limits: Mapping[Limit, Interval]) -> MemoryBudget:
    free = FreeMemory(pre=Interval.exact(2), post=Interval.exact(1), source="made up")
    return MemoryBudget(
        name="w",
        engine="sglang",
        version="0.5.16",
        rule="made up",
        basis="config",
        free=free,
        requested_running_requests=None,
        terms={},
        limits={
            limit: PredictedLimit(limit=limit, value=value, formula="", numbers="", rule="")
            for limit, value in limits.items()
        },
        verdict="serves",
        verdicts=("serves",),
        reason="",
        engine_error=None,
    )


def test_a_closed_loop_is_warmup_then_every_load_at_every_length() -> None:
    steps = steps_of(config(input_tokens=[64, 1024], concurrency=[1, 8], requests=8, output_tokens=256).workload)
    assert [(s.name, s.phase, s.concurrency, s.input_tokens, s.max_new_tokens, s.requests) for s in steps] == [
        ("warmup", "warmup", 2, 1024, 16, 2),  # together, at the longest input
        ("conc1-in64", "measured", 1, 64, 256, 8),
        ("conc8-in64", "measured", 8, 64, 256, 8),
        ("conc1-in1024", "measured", 1, 1024, 256, 8),
        ("conc8-in1024", "measured", 8, 1024, 256, 8),
    ]


def test_rates_make_an_open_loop_without_clients() -> None:
    steps = steps_of(config(request_rate=[0.5, 4.0], warmup=0, requests=3).workload)
    assert [(s.name, s.concurrency, s.request_rate) for s in steps] == [
        ("rate0.5-in1024", None, 0.5),
        ("rate4-in1024", None, 4.0),
    ]


def test_no_requests_is_no_step() -> None:
    assert steps_of(config(requests=0).workload) == ()


def test_arrivals_are_a_seeded_poisson_process() -> None:
    step = Step(
        name="rate4",
        phase="measured",
        concurrency=None,
        request_rate=4.0,
        input_tokens=1,
        max_new_tokens=1,
        requests=2001,
    )
    arrivals = arrivals_s(step, seed=0)
    assert arrivals == arrivals_s(step, seed=0)
    assert arrivals != arrivals_s(step, seed=1)
    assert arrivals[0] == 0.0
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    # Exponential gaps: mean 1/4 s, standard error 1/4/sqrt(2000) = 0.0056; deviation equals the mean.
    assert sum(gaps) / 2000 == pytest.approx(0.25, abs=0.02)
    assert (sum((gap - 0.25) ** 2 for gap in gaps) / 2000) ** 0.5 == pytest.approx(0.25, abs=0.03)


def test_prompts_have_their_exact_length_are_repeatable_and_share_no_beginning() -> None:
    prompts = [token_ids(1024, seed=0, step="conc8", index=index) for index in range(64)]
    assert {len(prompt) for prompt in prompts} == {1024}
    assert all(FIRST_ID <= token < LAST_ID for prompt in prompts for token in prompt)
    assert token_ids(1024, seed=0, step="conc8", index=3) == prompts[3]
    assert token_ids(1024, seed=1, step="conc8", index=3) != prompts[3]
    assert len({tuple(prompt[:4]) for prompt in prompts}) == 64


@pytest.mark.parametrize("vocabulary", [31_000, 32_000, 248_320, None])
def test_a_usual_vocabulary_changes_no_prompt(vocabulary: int | None) -> None:
    """As drawn by every specbench before this one knew of vocabularies."""
    drawn = token_ids(3, seed=0, step="conc8", index=3, vocabulary=vocabulary)
    assert drawn == [1326, 17244, 23946]


@pytest.mark.parametrize(("vocabulary", "first"), [(30_522, 1_000), (2_000, 1_000), (1_024, 512), (256, 128)])
def test_a_small_vocabulary_has_every_id_that_is_drawn(vocabulary: int, first: int) -> None:
    drawn = token_ids(20_000, seed=0, step="conc8", index=3, vocabulary=vocabulary)
    assert min(drawn) >= first
    assert max(drawn) < vocabulary
    if vocabulary < 2_000:
        assert set(drawn) == set(range(first, vocabulary))


def test_a_request_beyond_the_context_is_refused_with_the_arithmetic() -> None:
    assert check_fit(config(input_tokens=[1024, 32600], output_tokens=256), None) == [
        "input 32,600 + output 256 = 32,856 tokens; the context holds 32,768: 88 too many"
    ]
    assert check_fit(config(input_tokens=[32512], output_tokens=256), None) == []


def test_a_request_beyond_the_predicted_pool_counts_the_best_case() -> None:
    """The story's 8 requests: 11,893 tokens."""
    pool = budget({"kv_tokens": Interval(11_800, 11_893, 12_000)})
    asked = config(input_tokens=[11_800], output_tokens=256)
    assert check_fit(asked, pool) == [
        "input 11,800 + output 256 = 12,056 tokens; the predicted KV pool holds at most 12,000: 56 too many"
    ]
    assert check_fit(config(input_tokens=[11_744], output_tokens=256), pool) == []


def test_an_input_beyond_the_longest_accepted_one_is_refused() -> None:
    longest = budget({"max_input_tokens": Interval.exact(32_762), "kv_tokens": Interval.exact(580_619)})
    assert check_fit(config(input_tokens=[32_765], output_tokens=1), longest) == [
        "input 32,765 tokens; fewer than 32,762 are accepted (predicted): 4 too many"
    ]
    assert check_fit(config(input_tokens=[32_761], output_tokens=1), longest) == []


def test_what_is_not_known_refuses_nothing() -> None:
    unknown = config(input_tokens=[10_000_000]).replace({"memory.context_length": None})
    assert check_fit(unknown, None) == []
    assert check_fit(config(requests=0, input_tokens=[99_999]), None) == []


def test_requests_may_differ_per_load() -> None:
    workload = WorkloadSection(concurrency=(1, 8), requests=(2, 8), warmup=0)
    assert [step.requests for step in steps_of(workload)] == [2, 8]
    with pytest.raises(ValidationError, match="requests has 3 figures, concurrency has 2"):
        WorkloadSection(concurrency=(1, 8), requests=(2, 8, 8))
