"""A grid says of every point what `predict` says of it, to the byte; and it says what is wrong with an axis."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from specbench import frames
from specbench.budget.grid import predict_grid
from specbench.budget.grid_types import CERTAINTIES, FIGURES, Grid
from specbench.budget.predict import predict, refused_argument, solved
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.sizing import RULES
from specbench.errors import ConfigError, SpecbenchError
from specbench.terms import LIMITS
from specbench.units import GIB, Interval

DFLASH = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
NEXTN = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
TREE = {"algorithm": "EAGLE", "num_steps": 4, "eagle_topk": 4, "num_draft_tokens": 24}
ALGORITHMS: tuple[dict[str, Any], ...] = ({}, DFLASH, NEXTN, TREE, {"algorithm": "NGRAM"})
MEMORY = {"mem_fraction_static": 0.75, "mamba_radix_cache_strategy": "extra_buffer"}
VERSIONS = tuple(RULES)


def config(
    version: str = "0.5.12", *, model: str = "Qwen/Qwen3.6-27B", gpu: str = "h200", **sections: Any
) -> RunConfig:
    given = {"speculative": DFLASH, "memory": MEMORY} | sections
    about = {"name": "grid", "engine": {"version": version}, "model": model, "gpu": {"name": gpu, "count": 8}}
    return RunConfig.model_validate(about | given)


def assert_same(grid: Grid, index: tuple[int, ...]) -> None:
    """Of one point: every figure of the grid, and `predict`'s."""
    changes = grid.changes_at(index)
    free: dict[str, Any] = {key: Interval.exact(changes[key]) for key in ("pre_bytes", "post_bytes") if key in changes}
    one = grid.config_at(index)
    try:
        budget, case = predict(one, **free), solved(one, **free)
    except SpecbenchError as error:
        assert grid.verdict.at(index) is None, changes
        assert str(error).splitlines()[0] in grid.not_predicted
        assert all(np.ma.is_masked(grid[name][index]) for name in FIGURES)
        return
    refusal, point = refused_argument(case), case.span.point
    ends = case.span.all[1:3] if len(case.span.all) > 1 else (point, point)
    expected: dict[str, Any] = {
        name: None if budget.limits[name].value is None else budget.limits[name].value.point  # type: ignore[union-attr]
        for name in LIMITS
    }
    slack = budget.terms["slack"].bytes
    expected["slack_bytes"] = None if slack is None else slack.point
    for name in ("scratch_charged_bytes", "rest_bytes"):
        expected[name] = budget.details[name].point if name in budget.details else None
    # predict shows no slack where the pools stand and the draft does not fit any more; the grid says by how much
    found = {name: None if np.ma.is_masked(grid[name][index]) else int(grid[name][index]) for name in FIGURES}
    assert found == expected, changes
    assert grid.verdict.at(index) == budget.verdict, changes
    if refusal is None:
        assert (grid.verdict_low.at(index), grid.verdict_high.at(index)) == tuple(map(case.verdict, ends)), changes
        reason = point.pools.refusal or ("out_of_memory" if budget.verdict == "refused" else None)
        assert grid.refusal.at(index) == reason, changes
        assert grid.refused_key.at(index) is None
    else:
        assert (grid.refusal.at(index), grid.refused_key.at(index)) == ("arguments", refusal.key), changes
    assert bool(grid.known_fault[index]) == (budget.fault is not None), changes


AXES: dict[Any, list[Any]] = {
    "memory.max_running_requests": [None, 1, 2, 3, 5, 8, 13, 33, 64, 200, 4097, 100_000],
    "memory.max_mamba_cache_size": [None, None, 1, 4, 7, 40, 300, 20_000],
    "memory.max_total_tokens": [None, None, 1, 3, 100, 4_096, 150_001],
    "memory.mamba_full_memory_ratio": [None, 0.01, 0.3, 0.5, 0.9, 2.5, 40.0],
    "memory.mem_fraction_static": [None, 0.05, 0.3, 0.41, 0.5, 0.62, 0.7, 0.75, 0.88, 0.97],
    "memory.context_length": [None, 1, 5, 2_048, 32_768, 262_144, 300_000],
    "memory.mamba_radix_cache_strategy": ["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"],
    "memory.disable_radix_cache": [False, False, True],
    "memory.disable_overlap_schedule": [False, True],
    "memory.mamba_ssm_dtype": [None, "float32", "bfloat16"],
    "memory.kv_cache_dtype": ["auto", "fp8_e4m3"],
    "memory.page_size": [None, 1, 16, 64, 100],
    "speculative.num_draft_tokens": [None, 1, 4, 8, 16, 300],
    "engine.version": [*VERSIONS, "0.5.15", "0.5.17"],
    "parallel.tp_size": [1, 2, 4, 8, 3],
    ("parallel.dp_size", "parallel.tp_size", "parallel.enable_dp_attention"): [
        (1, 4, False),
        (2, 4, True),
        (2, 2, False),
    ],
    ("pre_bytes", "post_bytes"): [(94 * GIB, 43 * GIB), (139 * GIB, 70 * GIB + 12_345), (60 * GIB, 1 * GIB)],
}
MODELS = (
    *("Qwen/Qwen3.6-27B", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-9B"),
    *("moonshotai/Kimi-Linear-48B-A3B-Instruct", "nvidia/Nemotron-H-8B-Base-8K", "openai/gpt-oss-20b"),
    *("tiiuae/Falcon-H1-0.5B-Instruct", "deepseek-ai/DeepSeek-V2", "LiquidAI/LFM2-1.2B"),
)


def a_table(dice: random.Random, version: str) -> tuple[RunConfig, dict[Any, list[Any]]]:
    """A configuration and four axes of three values."""
    axes = {key: [dice.choice(AXES[key]) for _ in range(3)] for key in dice.sample([*AXES], 4)}
    if ("parallel.dp_size", "parallel.tp_size", "parallel.enable_dp_attention") in axes:
        axes.pop("parallel.tp_size", None)
    base = config(version, model=dice.choice(MODELS), speculative=dice.choice(ALGORITHMS))
    return base.replace({"gpu.emulate": "rtx-pro-6000"} if dice.random() < 0.2 else {}), axes


@pytest.mark.parametrize("version", VERSIONS)
def test_a_grid_is_predict_point_by_point(version: str) -> None:
    dice = random.Random(version)
    compared = 0
    for _ in range(5):
        base, axes = a_table(dice, version)
        try:
            grid = predict_grid(base, axes)
        except ConfigError:  # not one point can be sized
            first = {key: values[0] for key, values in axes.items() if isinstance(key, str)}
            for keys, rows in axes.items():
                first |= (
                    {} if isinstance(keys, str) or keys[0] == "pre_bytes" else dict(zip(keys, rows[0], strict=True))
                )
            with pytest.raises(SpecbenchError):
                predict(base.replace(first))
            continue
        for _ in range(6):
            assert_same(grid, tuple(dice.randrange(size) for size in grid.shape))
            compared += 1
    assert compared >= 18


def test_the_cliff_of_the_story() -> None:
    """Measured free memory of tests/test_sizing.py's table: 24, 18, 13, 8 and 2 slots; 5 requests are capped at 4."""
    base = config(memory={**MEMORY, "mamba_full_memory_ratio": 0.5})
    # 88 slots of 153,944,064 B and 87,061 and a half tokens of 86,016 B are left of 0.75 × 94.40 GiB
    left = 88 * 153_944_064 + 87_061 * 86_016 + 43_008
    pre = round(94.40 * GIB)
    grid = predict_grid(
        base,
        {
            "memory.max_running_requests": range(4, 9),
            ("pre_bytes", "post_bytes"): [(pre, round(pre * 0.25) + left)],
        },
    )
    assert grid.shape == (5, 1)
    assert grid["state_slots"][:, 0].tolist() == [24, 18, 13, 8, 2]
    assert grid["running_requests"][:, 0].tolist() == [4, 4, 3, 2, 0]
    assert grid["kv_tokens"][0, 0] == 87_061
    assert [grid.verdict.at((row, 0)) for row in range(5)] == ["serves", "capped", "capped", "capped", "refused"]
    assert grid.refusal.at((4, 0)) == "zero_requests"
    assert [grid.certainty.at((row, 0)) for row in range(5)] == ["sure", "no", "no", "no", "no"]


def test_what_cannot_be_sized_is_masked_and_said() -> None:
    grid = predict_grid(config(), {"parallel.tp_size": [1, 3], "memory.max_running_requests": [2, 4]})
    assert grid.verdict.at((1, 0)) is None
    assert grid.certainty.at((1, 0)) is None
    assert grid["kv_tokens"].mask.tolist() == [[False, False], [True, True]]
    ((why, points),) = grid.not_predicted.items()
    assert points == 2
    assert why.startswith("parallel.tp_size: ")
    assert "do not divide over 3 ranks" in why


def test_a_table_is_one_axis_of_all_keys() -> None:
    """Rows need no order, and None among numbers is 'not given': 48 requests with speculation."""
    keys = ("memory.max_running_requests", "memory.mem_fraction_static", "engine.version")
    rows = [(8, 0.75, "0.5.16"), (None, 0.8, "0.5.12"), (2, 0.75, "0.5.16"), (8, 0.7, "0.5.12")]
    grid = predict_grid(config(memory={"mamba_radix_cache_strategy": "extra_buffer"}), {keys: rows})
    assert grid.shape == (4,)
    for row in range(4):
        assert_same(grid, (row,))
    assert grid.values("engine.version") == ["0.5.16", "0.5.12", "0.5.16", "0.5.12"]


def test_ends_of_the_interval() -> None:
    """At a fraction where the least free memory refuses and the most serves, the likely one decides the word."""
    grid = predict_grid(
        config(gpu="rtx-pro-6000", memory={**MEMORY, "max_running_requests": 2}),
        {"memory.mem_fraction_static": np.linspace(0.55, 0.9, 400).tolist()},
    )
    seen = {CERTAINTIES[code] for code in grid.certainty.codes}
    assert seen == {"sure", "likely", "unlikely", "no"}
    first = int(np.argmax(grid.certainty.codes == CERTAINTIES.index("likely")))
    budget = predict(grid.config_at((first,)))
    assert budget.verdict == "serves"
    assert set(budget.verdicts) > {"serves"}


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"memory.max_running_request": [1]}, "axes: memory.max_running_request: no such key (did you mean"),
        (
            {"memory.max_running_requests": [1, 0]},
            "axes: memory.max_running_requests: got 0 (a whole number); expected",
        ),
        ({"memory.mem_fraction_static": [0.5, 75]}, "axes: memory.mem_fraction_static: got 75"),
        ({"memory.mem_fraction_static": 0.5}, "axes: memory.mem_fraction_static: got 0.5"),
        ({"memory.mem_fraction_static": []}, "axes: memory.mem_fraction_static: no value"),
        ({"memory.disable_radix_cache": ["off"]}, "axes: memory.disable_radix_cache: got 'off'"),
        ({("memory.page_size", "gpu.count"): [(1, 2), (1,)]}, "axes: memory.page_size, gpu.count: got (1,)"),
        ({"gpu.count": [1], ("gpu.count", "gpu.name"): [(1, "h200")]}, "axes: gpu.count: in two axes"),
        ({"pre_bytes": [GIB]}, "axes: only one of pre_bytes and post_bytes varies"),
        ({("pre_bytes", "post_bytes"): [(1.5, 1)]}, "axes: pre_bytes: got 1.5"),
        ({("pre_bytes", "post_bytes"): [(None, None)]}, "axes: pre_bytes: got None"),
        ({("pre_bytes", "post_bytes"): [(True, True)]}, "axes: pre_bytes: got True"),
        ({"memory.max_running_requests": range(1, 10**12)}, "axes: memory.max_running_requests: too many values"),
        ({"memory.max_running_requests": range(1, 10**30)}, "axes: memory.max_running_requests: too many values"),
        ({"memory.max_running_requests": np.array(3)}, "axes: memory.max_running_requests: got "),
        ({5: [1]}, "axes: 5 (a whole number): no key"),
        ({(): [()]}, "axes: () (tuple): no key"),
        ({"memory.mem_fraction_static": [float("nan")]}, "axes: memory.mem_fraction_static: got nan"),
        ({"memory.max_running_requests": range(1, 10_001), "memory.context_length": range(1, 10_001)}, "100,000,000"),
        ({"gpu.count": range(1, 201), "workload.seed": range(101)}, "axes: 20,200 combinations of what is no number"),
        ({"engine.version": ["0.4.9"]}, "engine.version: 0.4.9 is older than any sizing rule here"),
    ],
)
def test_a_wrong_axis_is_said_in_two_lines(axes: dict[Any, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        predict_grid(config(), axes)
    assert said in str(error.value)
    assert str(error.value).count("\n") == 1


def test_figures_beyond_64_bits_are_refused() -> None:
    """2^31 requests × 2^31 draft tokens × 150 MB of state: Python can, an array cannot."""
    largest = 2**31 - 1
    axes: dict[Any, list[int]] = {
        "memory.max_running_requests": [1, largest],
        "speculative.num_draft_tokens": [2, largest],
    }
    with pytest.raises(ConfigError, match="64 bits"):
        predict_grid(config(memory={"mem_fraction_static": 0.5, "disable_radix_cache": True}), axes)


def test_a_million_points_are_a_frame_without_a_loop() -> None:
    """The last axis is the fastest; what does not vary stands in every row."""
    grid = predict_grid(
        config(memory={**MEMORY, "context_length": 8_192}),
        {("parallel.tp_size", "gpu.count"): [(1, 1), (2, 2)], "memory.max_running_requests": [1, 8, 64]},
    )
    rows = frames.grid(grid)
    assert list(rows["setting"]) == ["TP1"] * 3 + ["TP2"] * 3
    assert list(rows["asked_requests"]) == [1, 8, 64] * 2
    assert set(rows["context_length"]) == {8_192}
    assert list(rows["kv_tokens"].dropna()) == grid["kv_tokens"].compressed().tolist()
    # 64 requests want 64 × 16 rows of scratch, 147 GiB on one card: refused, so no token
    assert rows["verdict"].tolist()[:3] == ["serves", "serves", "refused"]
    assert rows["tokens_per_request"][1] == rows["kv_tokens"][1] // 8
    assert rows["tokens_per_request"].isna().tolist() == [False, False, True, False, False, True]


def test_more_memory_is_more_free_before_and_after_loading() -> None:
    """Of 8 GiB more 0.75 are for pools, a third of that for state (ratio 0.5): 2 GiB, 13.95 slots of 153,944,064 B."""
    base = config(memory={**MEMORY, "max_running_requests": 4, "mamba_full_memory_ratio": 0.5})
    rows = frames.gib_curve({"now": base, "none": base.replace({"speculative": {}})}, [0, 8])
    assert list(rows["setting"]) == ["now", "now", "none", "none"]
    assert rows["pre_bytes"].diff()[1] == 8 * GIB
    now = predict(base).limits["state_slots"].value
    assert now is not None
    assert rows["state_slots"][0] == now.point
    assert rows["state_slots"][1] - rows["state_slots"][0] in (13, 14)
    with pytest.raises(ConfigError, match="more_gib: -200 GiB: the weights would not fit"):
        frames.gib_curve({"now": base}, [-200, 0])


def test_what_fits_is_on_more_cards_and_without_speculation() -> None:
    """The story, 0.5.12: 4 requests on one card, 22 on two; the tokens of 8 on two cards are shared by 8."""
    base = config(
        gpu="rtx-pro-6000",
        memory={**MEMORY, "max_running_requests": 8, "mamba_full_memory_ratio": 0.5, "context_length": 32_768},
    )
    rows = frames.what_fits(base)
    served = rows[rows["verdict"] == "serves"].groupby("setting")["asked_requests"].max()
    assert (served["DFLASH · TP1"], served["DFLASH · TP2"]) == (4, 22)
    assert set(served.index) == {f"{what} · TP{tp}" for what in ("DFLASH", "no speculation") for tp in (1, 2, 4, 8)}
    assert set(rows["context_len"].dropna()) == {262_144}  # the model's own
    two = rows[(rows["setting"] == "DFLASH · TP2") & (rows["asked_requests"] == 8)].iloc[0]
    assert two["tokens_per_request"] == two["kv_tokens"] // 8


def test_knobs_are_changes_one_at_a_time() -> None:
    base = config(memory={**MEMORY, "max_running_requests": 8}).replace({"speculative.num_draft_tokens": 16})
    found = frames.knobs(base)
    assert list(found) == ["as it is", "4 requests asked", "8 draft tokens", "no speculation", "state in bfloat16"]
    assert found["as it is"] == base
    assert found["8 draft tokens"].memory == base.memory
    assert found["no speculation"].speculative.algorithm == "none"
    chain = frames.knobs(config(speculative=NEXTN, memory={"mamba_ssm_dtype": "bfloat16"}))
    assert list(chain) == ["as it is", "no speculation"]  # a chain's width follows its steps
