"""What 0.5.6 and 0.5.7 alone do, and where it ends: found by its own sizing code (oracle/README.md), checked by hand.

Sources: server_args.py, model_executor/model_runner.py, managers/tp_worker.py and mem_cache/mamba_radix_cache.py of
0.5.6, 0.5.6.post2 and 0.5.8, and model_runner_kv_cache_mixin.py of 0.5.7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oracle.compare.points import Point, predicted
from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.sizing import rule_for
from specbench.engines.sglang.sizing.contract import Demand
from specbench.engines.sglang.sizing.steps import solve
from specbench.units import GIB, Interval
from tests.oracle_points import point_of

OLDEST = "0.5.6.post2"
FALCON, JET, NEXT = "tiiuae/Falcon-H1-0.5B-Instruct", "jet-ai/Jet-Nemotron-2B", "Qwen/Qwen3-Next-80B-A3B-Instruct"
DRAFT: dict[str, Any] = {"algorithm": "EAGLE", "draft_model_path": "Qwen/Qwen3-8B"}
TREE = DRAFT | {"num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 8}
CARD = (143771, 10**11, 6 * 10**10)  # MiB; free before loading and when sizing, bytes
SMALL = (15360, 15602810880, 7801405440)  # 15 GiB; 14.53125 and 7.265625 GiB


def point(version: str, model: str, card: tuple[int, int, int] = CARD, **sections: dict[str, Any]) -> Point:
    return point_of(
        version, model, *card, **sections | {"memory": {"mem_fraction_static": 0.9, **sections.get("memory", {})}}
    )


def config(version: str, model: str, **sections: dict[str, Any]) -> RunConfig:
    return point(version, model, CARD, **sections).config


@pytest.mark.parametrize(
    ("version", "model", "algorithm", "widths"),
    [
        (OLDEST, "Qwen/Qwen3-8B", "EAGLE", (5, 4, 8)),
        (OLDEST, "Qwen/Qwen3-235B-A22B", "EAGLE3", (5, 4, 8)),
        (OLDEST, NEXT, "NEXTN", (5, 4, 8)),
        (OLDEST, "meta-llama/Meta-Llama-3.1-8B", "EAGLE", (5, 4, 8)),
        (OLDEST, "deepseek-ai/DeepSeek-V3.2", "EAGLE", (3, 1, 4)),
        (OLDEST, "Qwen/Qwen3-8B", "STANDALONE", (3, 1, 4)),
        ("0.5.8", "Qwen/Qwen3-8B", "EAGLE", (3, 1, 4)),
        ("0.5.8", "meta-llama/Meta-Llama-3.1-8B", "EAGLE", (5, 4, 8)),
    ],
)
def test_widths_that_nobody_gives(version: str, model: str, algorithm: str, widths: tuple[int, int, int]) -> None:
    shape = settings(config(version, model, speculative=DRAFT | {"algorithm": algorithm})).shape
    assert (shape.steps, shape.topk, shape.verify_width) == widths
    assert shape.longest_accept == widths[0] + 1


def test_a_tree_by_default_does_not_run_over_pages_of_triton() -> None:
    for version, refused in ((OLDEST, True), ("0.5.8", False)):
        run = config(version, "Qwen/Qwen3-8B", speculative=DRAFT, memory={"page_size": 16})
        stated = run.model_copy(
            update={"engine": run.engine.model_copy(update={"args": {"attention-backend": "triton"}})}
        )
        assert ["memory.page_size" in one.key for one in check(stated)] == ([True] if refused else [])


def test_a_simulated_length_is_held_against_the_default_tree() -> None:
    """6 tokens of a tree with 5 steps; 4 of a chain with 3."""
    for version, told in (
        (OLDEST, []),
        ("0.5.8", ["a step of 4 tokens cannot yield more than 4, bonus token included"]),
    ):
        run = config(version, "Qwen/Qwen3-8B", speculative=DRAFT)
        wished = run.model_copy(update={"workload": run.workload.model_copy(update={"simulate_acc_len": 5.5})})
        assert [one.reason for one in check(wished) if one.key == "workload.simulate_acc_len"] == told


@pytest.mark.parametrize(
    ("version", "speculative", "tokens"),
    [
        # 94 layers × 4 heads × 2 × 128 × 2 B = 192,512 B; 7.265625 - 14.53125 × (1 - 0.624) GiB // 192,512 B = 10,050;
        # 48 requests × (3 steps × 2 + 8 verified) + 100 = 772
        (OLDEST, TREE, 10_050 + 772),
        (OLDEST, TREE | {"algorithm": "STANDALONE"}, 10_050 + 772),
        (OLDEST, DRAFT, 10_050 + 48 * (5 * 4 + 8) + 100),
        (OLDEST, {"algorithm": "NGRAM"}, 10_050),
        (OLDEST, {}, 10_050),
        ("0.5.8", TREE, 10_050),
    ],
)
def test_what_requests_draft_and_verify_is_added_to_the_tokens_that_fit(
    version: str, speculative: dict[str, Any], tokens: int
) -> None:
    memory = {"mem_fraction_static": 0.624}
    found = predicted(point(version, "Qwen/Qwen3-235B-A22B", SMALL, speculative=speculative, memory=memory))
    assert found["tokens"] == tokens


def test_the_limit_and_whole_pages_come_after_what_is_added() -> None:
    """381,904 = 16 × 23,869. (60 - 10) × 10^9 B // 131,072 B = 381,469, + 48 × (3 × 1 + 4) + 100 = 381,905."""
    draft = {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3-8B"}
    memory: dict[str, Any] = {"page_size": 16}
    run = point(OLDEST, "meta-llama/Meta-Llama-3.1-8B", speculative=draft, memory=memory)
    assert predicted(run)["tokens"] == 381_904
    capped = point(OLDEST, "meta-llama/Meta-Llama-3.1-8B", speculative=draft, memory={"max_total_tokens": 381_700})
    assert predicted(capped)["tokens"] == 381_700


def test_a_pool_of_nothing_but_what_is_added_does_not_fit() -> None:
    """-1 token fits: weights took a byte more than the fraction. 48 × 28 + 100 - 1 are allocated all the same."""
    run = point(OLDEST, "Qwen/Qwen3-235B-A22B", speculative=DRAFT, memory={"mem_fraction_static": 0.5})
    pre, post = Interval.exact(10**11), Interval.exact(5 * 10**10 - 1)
    found = predict(run.config, pre_bytes=pre, post_bytes=post)
    tokens = found.limits["kv_tokens"]
    assert tokens.value is not None and tokens.value.point == 1_443
    assert tokens.formula.endswith("and what all requests draft and verify at once, whether it fits or not")
    assert tokens.numbers.endswith("+ 1,444 = 1,443")


def test_requests_follow_from_the_tokens_that_fit_up_to_0_5_8() -> None:
    """50 × 10^9 B // 147,456 B = 339,084 tokens fit; / 40,960 × 512 = 4,238. Of 170,000 it would be 2,125."""
    memory: dict[str, Any] = {"max_total_tokens": 170_000}
    for version, requests in ((OLDEST, 4096), ("0.5.8", 4096), ("0.5.10", 2125)):
        found = predicted(point(version, "Qwen/Qwen3-8B", memory=memory))
        assert (found["tokens"], found["requests"]) == (170_000, requests)


def test_dp_attention_divides_the_slots_of_gated_delta_nets_alone() -> None:
    parallel = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
    memory: dict[str, Any] = {"max_mamba_cache_size": 33, "disable_radix_cache": True, "max_running_requests": 9}
    slots = {
        (version, model): predicted(point(version, model, parallel=parallel, memory=memory))["slots"]
        for version in (OLDEST, "0.5.8")
        for model in (FALCON, NEXT)
    }
    assert slots == {(OLDEST, FALCON): 33, (OLDEST, NEXT): 16, ("0.5.8", FALCON): 16, ("0.5.8", NEXT): 16}


def test_a_stage_holds_kv_and_state_of_all_layers() -> None:
    """36 layers × 2 heads × 2 × 64 × 2 B = 18,432 B a token on each of two stages, not 9,216 B: half the tokens."""
    memory: dict[str, Any] = {"max_mamba_cache_size": 8, "disable_radix_cache": True, "max_running_requests": 8}
    found = {
        version: predicted(point(version, FALCON, parallel={"pp_size": 2}, memory=memory))
        for version in (OLDEST, "0.5.8")
    }
    assert [answer["cell_bytes"] for answer in found.values()] == [18_432, 9_216]


def test_no_stage_is_without_kv_where_each_holds_all() -> None:
    """Jet-Nemotron keeps KV in layers 14, 19, 20 and 21 of 28."""
    for version, refused in ((OLDEST, False), ("0.5.8", True)):
        keys = [one.key for one in check(config(version, JET, parallel={"pp_size": 2}))]
        assert ("parallel.pp_size" in keys) == refused


@pytest.mark.parametrize("model", [FALCON, JET, NEXT])
def test_pages_of_models_with_state_before_0_5_11(model: str) -> None:
    """They stay as asked, and the prefix cache asserts one token; without it 1,000 tokens are 960 in pages of 64."""
    told = {
        OLDEST: ["AssertionError: Only support page_size=1 in mamba radix cache now."],
        "0.5.8": ["AssertionError: Page size must be 1 for MambaRadixCache v1, got 64"],
        "0.5.10": ["AssertionError: Page size must be 1 for MambaRadixCache v1, got 64"],
        "0.5.12": [],
    }
    for version, errors in told.items():
        assert [one.engine_error for one in check(config(version, model, memory={"page_size": 64}))] == errors
        memory = {"page_size": 64, "disable_radix_cache": True, "max_total_tokens": 1000, "max_running_requests": 4}
        assert predicted(point(version, model, memory=memory))["tokens"] == 960


def test_sparse_attention_turns_dp_attention_on() -> None:
    model = "deepseek-ai/DeepSeek-V3.2"
    for version, dp, errors in ((OLDEST, 2, [None]), (OLDEST, 3, ["AssertionError"]), ("0.5.8", 2, [])):
        found = check(config(version, model, parallel={"tp_size": 4, "dp_size": dp}))
        assert [one.engine_error for one in found if one.key == "parallel.enable_dp_attention"] == errors
    stated = config(OLDEST, model, parallel={"tp_size": 4, "dp_size": 2, "enable_dp_attention": True})
    assert [one.key for one in check(stated)] == []


def test_there_is_no_flag_for_a_strategy_not_even_for_the_only_one() -> None:
    found = check(config(OLDEST, "Qwen/Qwen3-8B", memory={"mamba_radix_cache_strategy": "no_buffer"}))
    assert [one.engine_error for one in found] == [
        "error: unrecognized arguments: --mamba-scheduler-strategy no_buffer"
    ]


#: One GiB a slot and 4 draft tokens; 2 requests of two workers.
ASKED = Demand(
    slot_bytes=GIB,
    cell_bytes=65_536,
    draft_tokens=4,
    slots_per_request=1,
    requests=2,
    attention_dp=2,
    explicit_slots=None,
    radix=True,
    ratio=1.0,
    max_total_tokens=None,
    page_size=1,
    context_len=4096,
)


@pytest.mark.parametrize(
    ("version", "changes", "slots", "left"),
    [
        ("0.5.7", {}, 6, 6.0),  # 20 - 2 × 4 of all requests: half of 12
        ("0.5.8", {}, 8, 8.0),  # 20 - 1 × 4 of this worker's: half of 16
        ("0.5.7", {"radix": False}, 1, 19.0),  # nothing for drafts: 20 - 1
        ("0.5.8", {"radix": False}, 1, 15.0),
        ("0.5.7", {"explicit_slots": 10}, 5, 15.0),
        ("0.5.8", {"explicit_slots": 10}, 5, 11.0),
        (
            "0.5.7",
            {"radix": False, "requests": None, "draft_tokens": 0, "slot_bytes": GIB // 64},
            256,
            16.0,
        ),  # 512 // 2
        # ratio 1 of 20 GiB without a prefix cache and a limit, from 0.5.9
        ("0.5.9", {"radix": False, "requests": None, "draft_tokens": 0, "slot_bytes": GIB // 64}, 640, 10.0),
    ],
)
def test_what_0_5_7_sets_aside(version: str, changes: dict[str, Any], slots: int, left: float) -> None:
    rule = rule_for(version)
    pools = solve(rule, replace(ASKED, **changes), 20.0)
    assert (pools.slots, pools.left_gib) == (slots, left)


@pytest.mark.parametrize(
    ("version", "memory", "slots"),
    [
        ("0.5.7", {}, 5),
        ("0.5.7", {"mamba_radix_cache_strategy": "extra_buffer"}, 5),
        ("0.5.7", {"disable_radix_cache": True}, 1),
        ("0.5.8", {}, 3),
    ],
)
def test_five_slots_a_request_in_0_5_7(version: str, memory: dict[str, Any], slots: int) -> None:
    assert predicted(point(version, NEXT, memory=memory))["slots_per_request"] == slots
    drafts = predicted(point(version, NEXT, memory=memory, speculative={"algorithm": "NGRAM"}))
    assert drafts["slots_per_request"] == (4 if "mamba_radix_cache_strategy" in memory else slots)


def test_pages_of_extra_buffers_divide_a_chunk_in_0_5_7() -> None:
    memory = {"mamba_radix_cache_strategy": "extra_buffer", "page_size": 128}
    said = {
        version: [refusal.engine_error for refusal in check(config(version, NEXT, memory=memory))]
        for version in ("0.5.7", "0.5.8", "0.5.9")
    }
    page = "AssertionError: Page size for hybrid GDN model must be divisible by 64, got 128"
    assert said == {"0.5.7": [page], "0.5.8": [], "0.5.9": []}


def test_0_5_6_keeps_no_prefixes_of_mamba_2() -> None:
    """1,000 requests are 1,000 slots without a prefix cache, which the post releases have."""
    slots = {
        version: predicted(point(version, FALCON, memory={"max_running_requests": 1000}))["slots"]
        for version in ("0.5.6", "0.5.6.post1", "0.5.6.post2")
    }
    assert slots["0.5.6"] == 1000
    assert slots["0.5.6.post1"] == slots["0.5.6.post2"] != 1000


def test_nemotron_wants_the_default_fraction_before_0_5_6_post2() -> None:
    nano = "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
    said = "AttributeError: 'ServerArgs' object has no attribute 'model_config'"
    for version, errors in (("0.5.6", [said]), ("0.5.6.post1", [said]), ("0.5.6.post2", [])):
        assert [refusal.engine_error for refusal in check(config(version, nano))] == errors
    assert check(point_of("0.5.6", nano, *CARD).config) == []
