"""The pool report: asked beside got, per rank and role. Figures are those that the recordings' servers printed."""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.engines.contract import PoolReport
from specbench.engines.sglang import logs
from specbench.reading import pools
from specbench.units import GIB, Quantity

RECORDS = Path(__file__).parent / "records"


def gib(size: float) -> Quantity:
    return Quantity(round(size * GIB), 5_368_710)


def report(name: str) -> PoolReport:
    return pools.report(logs.read(RECORDS / name / "server.log"))


def read(*lines: str, info: dict[str, Any] | None = None) -> PoolReport:
    return pools.report(logs.read(lines), info)


def test_asked_beside_got() -> None:
    """The silent cap: 8 asked, 1 served."""
    found = report("dflash_r8")
    assert found.requested == {
        "running_requests": 8,
        "state_slots": None,
        "kv_tokens": None,
        "context_len": 32768,
        "mem_fraction_static": 0.508124,
    }
    assert (found.running_requests, found.state_slots, found.kv_tokens) == (1, 8, 158177)
    assert (found.context_len, found.max_input_tokens) == (32768, 32762)
    assert found.disagreements == ()


def test_rows_of_target_and_draft() -> None:
    target, draft = report("dflash_r8").ranks
    assert (target.rank, target.role, draft.role) == ("", "target", "draft")
    assert (target.weights, draft.weights) == (gib(51.05), gib(3.38))
    assert (target.state_conv, target.state_ssm) == (gib(0.02), gib(1.27))
    assert (target.scratch_ssm, target.scratch_conv) == (gib(4.50), gib(0.03))
    assert (target.k, target.v, draft.k) == (gib(4.83), gib(4.83), gib(1.51))
    assert target.kv == Quantity(2 * round(4.83 * GIB), 2 * 5_368_710)
    assert (target.graphs, draft.graphs) == (gib(0.09), gib(0.05))
    assert (target.available, draft.available) == (gib(69.07), gib(66.04))
    assert (draft.state_slots, draft.scratch_ssm) == (None, None)
    assert target.lines["state_ssm"] == 35
    assert (target.lines["kv"], draft.lines["kv"], draft.lines["weights"]) == (36, 38, 30)


def test_free_memory_before_and_when_the_pools_are_sized() -> None:
    """0.5.16 loads the draft before it sizes the pools, 0.5.12 after: `post` is another line."""
    later, earlier = report("dflash_r8"), report("0512_dflash_r4_exact")
    assert (later.pre, later.post) == ({"": gib(139.13)}, {"": gib(84.68)})
    assert (earlier.pre, earlier.post) == ({"": gib(139.13)}, {"": gib(88.07)})
    assert report("var_noradix_r8").post == {"": gib(84.68)}  # died before any pool


@pytest.mark.parametrize(("name", "free"), [("tp8-quarters_story-8", 26.95), ("tp8-quarters_dflash-8", 26.21)])
def test_a_rank_whose_pool_lines_are_lost_is_sized_when_the_others_are(name: str, free: float) -> None:
    """Up to 0.5.13 its draft loads after the pools: what is free then (9.19 GiB) is no memory for them."""
    lines = (RECORDS / name / "server.log").read_bytes().splitlines(keepends=True)
    whole = pools.report(logs.read(lines)).post
    lost = [line for line in lines if not (b" TP3]" in line and b" is allocated" in line)]
    assert pools.report(logs.read(lost)).post == whole
    assert round(whole["TP3"].bytes / GIB, 2) == free


def test_ranks() -> None:
    found = report("tp4_0512_dflash_r8")
    assert [(row.rank, row.role) for row in found.ranks] == [
        (rank, role) for rank in ("TP0", "TP1", "TP2", "TP3") for role in ("target", "draft")
    ]
    assert {row.weights for row in found.ranks} == {gib(13.05), gib(1.13)}
    assert (found.state_slots, found.kv_tokens, found.running_requests) == (488, 1750910, 8)
    assert found.pre == {"TP0": gib(138.05), "TP1": gib(138.00), "TP2": gib(138.00), "TP3": gib(138.24)}
    assert found.post == {"TP0": gib(125.00), "TP1": gib(124.95), "TP2": gib(124.95), "TP3": gib(125.19)}


def test_several_captures_are_added_up() -> None:
    target, draft = report("nextn_r4_full").ranks
    assert target.graphs == gib(0.13)
    assert draft.graphs == Quantity(round(0.08 * GIB) + round(0.05 * GIB), 2 * 5_368_710)


def test_a_start_that_died_keeps_what_it_had_and_knows_nothing_more() -> None:
    """The story's 8 requests on 0.5.12: pools are printed, then the server dies without a summary."""
    found = report("0512_dflash_r8_exact")
    assert (found.state_slots, found.kv_tokens) == (2, 11893)
    assert (found.running_requests, found.context_len, found.max_input_tokens) == (None, None, None)
    assert found.requested["running_requests"] == 8


def test_no_pools_at_all() -> None:
    found = report("nemo_nano_r32")
    assert (found.ranks, found.pre, found.post) == ((), {}, {})
    assert set(found.requested.values()) == {None}


@pytest.mark.parametrize("name", ["dflash_r8", "dflash_r8_full", "nospec_r4", "tp2_dflash_r8", "0512_dflash_r4"])
def test_the_server_says_the_same_as_its_log(name: str) -> None:
    """/server_info was recorded too: what we work out from the log alone must be what the server answered."""
    log = logs.read(RECORDS / name / "server.log")
    info = json.loads((RECORDS / name / "server_info.json").read_text())
    alone, with_info = pools.report(log), pools.report(log, info)
    assert alone.max_input_tokens == info["max_req_input_len"]
    assert alone.state_slots == info["internal_states"][0]["max_mamba_cache_size"]
    assert alone.running_requests == info["internal_states"][0]["effective_max_running_requests_per_dp"]
    assert with_info == alone


def test_the_longest_input_is_bounded_by_the_pool_when_that_is_smaller() -> None:
    """min(context, tokens) - 6: SGLang keeps one token of each and five for the output."""
    summary = (
        "max_total_num_tokens=11893, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2, "
        "context_len=32768, available_gpu_mem=17.40 GB"
    )
    assert read(summary).max_input_tokens == 11887
    assert read(summary, info={"max_req_input_len": 11880}).max_input_tokens == 11880


def test_server_info_alone() -> None:
    info = {
        "max_total_num_tokens": 158177,
        "context_length": 32768,
        "max_running_requests": 8,
        "mem_fraction_static": 0.5,
        "internal_states": [{"effective_max_running_requests_per_dp": 1, "max_mamba_cache_size": 8}],
    }
    found = read("nothing of use", info=info)
    assert (found.kv_tokens, found.running_requests, found.state_slots) == (158177, 1, 8)
    assert (found.requested["running_requests"], found.requested["mem_fraction_static"]) == (8, 0.5)


def test_a_warning_stands_in_for_a_missing_summary() -> None:
    found = read(
        "max_running_requests is capped to 9 by the mamba state cache (max_mamba_cache_size=47, 5 state slots per request)"
    )
    assert (found.running_requests, found.state_slots) == (9, 47)


KV = "[2026-05-20 10:11:12 {}] KV Cache is allocated. #tokens: {}, K size: {} GB, V size: {} GB"
STATE = "[2026-05-20 10:11:12 {}] Mamba Cache is allocated. max_mamba_cache_size: {}, conv_state size: 0.10GB, ssm_state size: 5.17GB"


def test_ranks_that_differ_are_named_and_the_least_counts() -> None:
    found = read(
        STATE.format("TP0", 97),
        STATE.format("TP1", 96),
        KV.format("TP0", 31229, "0.18", "0.18"),
        KV.format("TP1", 28390, "0.16", "0.16"),
    )
    assert (found.state_slots, found.kv_tokens) == (96, 28390)
    assert found.disagreements == (
        "target: state slots differ between ranks: 97 (TP0), 96 (TP1)",
        "target: KV tokens differ between ranks: 31,229 (TP0), 28,390 (TP1)",
    )


def test_a_summary_that_differs_from_the_pool_is_named() -> None:
    found = read(
        KV.format("TP0", 300000, "9.16", "9.16"),
        "[2026-05-20 10:11:12 TP0] max_total_num_tokens=273152, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=6, context_len=262144, available_gpu_mem=3.01 GB",
    )
    assert found.kv_tokens == 273152
    assert found.disagreements == ("KV tokens of TP0: the pool's line says 300,000, the summary 273,152",)


def test_sliding_window_pools_are_one_row() -> None:
    line = "{} KV Cache is allocated. dtype: torch.bfloat16, #tokens: {}, K size: {} GB, V size: {} GB"
    found = read(
        line.format("SWA", 320000, "3.66", "3.66"),
        line.format("Full", 400000, "4.58", "4.58"),
        "Memory pool end. avail mem=14.15 GB",
    )
    (row,) = found.ranks
    assert (row.kv_tokens, row.label) == (400000, "SWA + Full")
    assert row.k == Quantity(round(3.66 * GIB) + round(4.58 * GIB), 2 * 5_368_710)


def test_ten_ranks_are_in_their_order() -> None:
    found = read(*(KV.format(f"TP{rank}", 1000, "0.10", "0.10") for rank in range(11, -1, -1)))
    assert [row.rank for row in found.ranks] == [f"TP{rank}" for rank in range(12)]


def test_what_is_not_logged_is_none() -> None:
    (row,) = read(KV.format("TP0", 1000, "0.10", "0.10")).ranks
    assert (row.weights, row.state_slots, row.graphs, row.available, row.scratch_ssm) == (None,) * 5
    assert set(row.lines) == {"kv_tokens", "k", "v", "kv", "dtype", "label"}


def of_lines(name: str, *, begin: int = 1, end: int | None = None, without: str = " no such line ") -> PoolReport:
    """A recording's log from one of its lines to another, without the lines that contain a text."""
    text = (RECORDS / name / "server.log").read_text().splitlines()[begin - 1 : end]
    return read(*(line for line in text if without not in line))


@pytest.mark.parametrize("begin", [35, 41, 42, 43, 44, 45, 46, 47])
@pytest.mark.parametrize("end", [None, 49])
def test_the_drafts_init_is_no_communication_of_the_target(begin: int, end: int | None) -> None:
    """Lines 30, 31: the target's inits; 34 to 41: its loads; 46, 47: the draft's, "mem usage=0.00"; 49: it loads."""
    assert of_lines("h200-tp2_dflash-8-full-card", begin=begin, end=end).communication == {}


def test_a_ranks_init_counts_when_its_target_is_loaded_next() -> None:
    name = "h200-tp2_dflash-8-full-card"
    assert of_lines(name, begin=27).communication == {"TP0": gib(1.07), "TP1": gib(1.07)}
    assert of_lines(name, begin=31).communication == {"TP1": gib(1.07)}
    assert of_lines(name, begin=27, end=35).communication == {"TP1": gib(1.07)}  # TP0 begins to load in line 36
    assert of_lines(name, begin=27, end=33).communication == {}
    assert of_lines(name, without="TP1] Init torch distributed ends. elapsed=2.10").communication == {"TP0": gib(1.07)}


def test_an_init_before_a_draft_of_a_plain_class_is_not_the_targets() -> None:
    draft = ("Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB", "Load weight begin. avail mem=88.05 GB")
    loaded = "Load weight end. elapsed=0.01 s, type=Qwen3ForCausalLM, avail mem=84.68 GB, mem usage=3.38 GB."
    assert read(*draft, loaded).communication == {}


def test_the_deciding_rank_is_known_when_all_ranks_logged_their_free_memory() -> None:
    """138.03, 137.99, 137.99 and 138.22 before loading: without those of TP1 and TP2 the least is not among them."""
    assert report("tp4_dflash_r8").deciding_rank == "TP1"
    found = of_lines("tp4_dflash_r8", without="Load weight begin. avail mem=137.99")
    assert found.pre == {"TP0": gib(138.03), "TP3": gib(138.22)}
    assert (found.deciding_rank, found.least(found.pre), found.least(found.post)) == (None, None, gib(123.80))
    assert report("dflash_r8").deciding_rank == ""
    assert of_lines("dflash_r8", without="Load weight begin").deciding_rank is None


def test_an_init_counts_when_the_server_died_before_it_loaded_anything() -> None:
    """The log has its beginning, server_args in line 7, so no draft came first."""
    name = "h200-tp2_dflash-8-full-card"
    assert of_lines(name, end=33).communication == {"TP0": gib(1.07), "TP1": gib(1.07)}
