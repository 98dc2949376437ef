"""Pools over pipeline stages and data-parallel attention, figures by hand; 20 GiB are left for the pools of a rank.

Qwen3.6-27B: 64 layers, every fourth of full attention (4 KV heads × 256 × 2 × 2 B = 4,096 B per token), the others with
a state of 3,207,168 B per slot on one rank.
"""

from __future__ import annotations

from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.sizing.cell import stage_layers
from specbench.errors import ConfigError
from specbench.specs import load_model
from specbench.units import GIB, Interval

MODEL = "Qwen/Qwen3.6-27B"
LAYER = 61_440 + 3_145_728  # convolution and state of one linear layer
SLOT = 48 * LAYER
LEFT = 20 * GIB
STATE_SHARE = LEFT * 9 // 19  # 10,172,290,964 B at the ratio of 0.9


def run(version: str, parallel: dict[str, Any], *, env: dict[str, str] | None = None, **more: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "ranks",
            "engine": {
                "version": version,
                "env": {"SGLANG_VLM_CACHE_SIZE_MB": "0"} | (env or {}),
                **more.pop("engine", {}),
            },
            "model": more.pop("model", MODEL),
            "gpu": {"name": "h200", "count": 8},
            "parallel": parallel,
            "speculative": more.pop("speculative", {"algorithm": "none"}),
            "memory": {
                "mem_fraction_static": 0.75,
                "mamba_radix_cache_strategy": "extra_buffer",
                "max_running_requests": 8,
                **more,
            },
        }
    )


def budget(config: RunConfig) -> MemoryBudget:
    """0.75 × 80 GiB less 40 GiB that loading took."""
    return predict(config, pre_bytes=Interval.exact(80 * GIB), post_bytes=Interval.exact(40 * GIB))


def figures(found: MemoryBudget) -> tuple[int | None, ...]:
    values = [found.limits[name].value for name in ("state_slots", "kv_tokens", "running_requests")]
    return tuple(None if value is None else value.point for value in values)


# ── pipeline stages ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "slot", "slots"),
    [
        ("0.5.8", SLOT, 66),  # all 48 states are charged: 10,172,290,964 // 153,944,064
        ("0.5.12", SLOT, 66),
        ("0.5.16", SLOT, 66),
        ("0.5.18", SLOT // 2, 131),  # a stage's 24; one slot of padding: (10,172,290,964 - 76,972,032) // 76,972,032
        ("0.5.23", SLOT // 2, 131),
    ],
)
def test_two_stages(version: str, slot: int, slots: int) -> None:
    found = budget(run(version, {"pp_size": 2}))
    assert found.details["slot_bytes"].point == slot
    assert found.details["cell_bytes"].point == 8 * 4_096  # of 8 layers a stage
    # 66 whole slots, or 131 halves and one of padding, leave 11,314,528,256 B; // 32,768. Overlap is off: q = 4
    assert figures(found) == (slots, 345_292, 8)


def test_what_does_not_divide_goes_to_the_last_stages() -> None:
    # 21, 21 and 22 layers, of which 5, 5 and 6 of full attention and 16 each with a state
    sizes = [len(stage) for stage in stage_layers(load_model(MODEL).layers, 3)]
    assert sizes == [21, 21, 22]
    found = budget(run("0.5.23", {"pp_size": 3}))
    assert found.details["slot_bytes"].point == 16 * LAYER == 51_314_688
    assert found.details["cell_bytes"].point == 6 * 4_096  # the fewest tokens of all stages count
    # (10,172,290,964 - 51,314,688) // 51,314,688 = 197; 198 × 51,314,688 = 10,160,308,224
    assert figures(found) == (197, 11_314_528_256 // 24_576, 8)


def test_a_partition_of_the_users_own() -> None:
    env = {"SGLANG_PP_LAYER_PARTITION": "40,24"}
    found = budget(run("0.5.23", {"pp_size": 2}, env=env))
    assert found.details["cell_bytes"].point == 10 * 4_096
    assert found.details["slot_bytes"].point == 30 * LAYER
    with pytest.raises(ConfigError, match=r"^engine\.env\.SGLANG_PP_LAYER_PARTITION: got '40,20'; expected 2 numbers"):
        budget(run("0.5.23", {"pp_size": 2}, env={"SGLANG_PP_LAYER_PARTITION": "40,20"}))
    # one stage has them all, whatever the variable says
    assert budget(run("0.5.23", {}, env=env)).details["cell_bytes"].point == 16 * 4_096


# ── data-parallel attention: four ranks, two groups of two ───────────────────────────────────────────────────────────

SHARED = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
HALF = SLOT // 2  # heads over two ranks


@pytest.mark.parametrize(
    ("version", "slots", "requests"),
    [
        ("0.5.8", 132, 4),  # 10,172,290,964 // 76,972,032; 8 requests over 2 groups
        ("0.5.12", 132, 4),
        ("0.5.16", 132, 4),
        ("0.5.23", 131, 4),
    ],
)
def test_groups_share_requests_and_split_heads_over_their_ranks(version: str, slots: int, requests: int) -> None:
    found = budget(run(version, SHARED))
    assert found.details["slot_bytes"].point == HALF
    assert found.details["cell_bytes"].point == 16 * 2_048
    assert figures(found) == (slots, 345_292, requests)


@pytest.mark.parametrize("version", ["0.5.8", "0.5.12", "0.5.16", "0.5.23"])
def test_explicit_slots_are_those_of_all_groups(version: str) -> None:
    found = budget(run(version, SHARED, max_mamba_cache_size=41))
    assert figures(found)[0] == 20
    padding = 1 if version == "0.5.23" else 0
    assert figures(found)[1] == (LEFT - (20 + padding) * HALF) // 32_768


def test_the_scratch_is_for_a_groups_requests() -> None:
    draft = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    for version, rows in (("0.5.12", 4), ("0.5.16", 4), ("0.5.23", 5)):  # era III charges a row of padding
        found = budget(run(version, SHARED, speculative=draft, engine={"args": {"enable-dp-lm-head": True}}))
        assert found.details["scratch_charged_bytes"].point == rows * 4 * HALF, version


def test_a_draft_splits_over_a_groups_ranks_too() -> None:
    draft = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
    found = budget(run("0.5.23", SHARED, speculative=draft, engine={"args": {"enable-dp-lm-head": True}}))
    # 8 KV heads over 2 ranks: 5 layers × 4 heads × 256 × 2 B
    assert found.details["draft_cell_bytes"].point == 10_240
    assert found.details["charged_cell_bytes"].point == 32_768 + 10_240


def test_kv_heads_fewer_than_ranks_are_kept_on_each() -> None:
    for tp, cell in ((2, 32_768), (4, 16_384), (8, 16_384)):
        found = budget(run("0.5.16", {"tp_size": tp}))
        assert found.details["cell_bytes"].point == cell
        assert found.details["slot_bytes"].point == SLOT // tp  # states are not: 16 key heads over 8


def test_groups_that_do_not_divide_the_ranks() -> None:
    found = check(run("0.5.16", {"tp_size": 4, "dp_size": 3, "enable_dp_attention": True}))
    assert (found[0].key, found[0].engine_error) == ("parallel.dp_size", "AssertionError")
