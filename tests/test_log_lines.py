"""Every wording of every line, version by version: one line in, its figures and the versions that print it out.

The figures are of real servers where one was at hand; the wording is the engine's.
"""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

from typing import Any

import pytest

from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.engines.sglang.form import Form
from specbench.engines.sglang.logs import formats
from specbench.units import GIB, Quantity

HALF = 5_368_710  # half of 0.01 GiB, rounded up


def gib(size: float) -> Quantity:
    return Quantity(round(size * GIB), HALF)


def read(*lines: str) -> ServerLog:
    return logs.read([f"[2026-05-20 10:11:12 TP0] {line}" for line in lines])


def figures(entry: object, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(entry, name) for name in names)


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_begin_and_end_are_one_load() -> None:
    log = read(
        "Load weight begin. avail mem=94.23 GB",
        "Load weight end. elapsed=21.07 s, type=Qwen3_5ForConditionalGeneration, avail mem=43.02 GB, mem usage=51.21 GB.",
    )
    (load,) = log.weights
    assert figures(load, "rank", "role", "model_class") == ("TP0", "target", "Qwen3_5ForConditionalGeneration")
    assert figures(load, "before", "available", "used") == (gib(94.23), gib(43.02), gib(51.21))
    assert figures(load, "elapsed_s", "line") == (21.07, 2)
    assert log.memory_before == {"TP0": gib(94.23)}
    assert log.version_range == ("0.5.9", None)


@pytest.mark.parametrize(
    ("line", "until", "elapsed"),
    [
        ("type=Lfm2ForCausalLM, dtype=torch.bfloat16, avail mem=13.81 GB, mem usage=1.52 GB.", "0.5.8", None),
        ("elapsed=1.25 s, type=Lfm2ForCausalLM, avail mem=13.81 GB, mem usage=1.52 GB.", None, 1.25),
        (
            "elapsed=329.53 s, type=Lfm2ForCausalLM, quant=fp8, fmt=e4m3, avail mem=13.81 GB, mem usage=1.52 GB.",
            None,
            329.53,
        ),
        (
            "elapsed=1.25 s, type=Lfm2ForCausalLM, dtype=torch.bfloat16, avail mem=13.81 GB, mem usage=1.52 GB.",
            None,
            1.25,
        ),
    ],
)
def test_weights_end(line: str, until: str | None, elapsed: float | None) -> None:
    log = read("Load weight end. " + line)
    (load,) = log.weights
    assert figures(load, "model_class", "available", "used", "elapsed_s") == (
        "Lfm2ForCausalLM",
        gib(13.81),
        gib(1.52),
        elapsed,
    )
    assert log.version_range[1] == until
    assert log.unread == ()


def test_a_load_that_never_ended_is_known_by_its_begin() -> None:
    (load,) = read("Load weight begin. avail mem=94.23 GB").weights
    assert figures(load, "before", "available", "used", "line") == (gib(94.23), None, None, 1)


# ── state pool ───────────────────────────────────────────────────────────────────────────────────────────────────────

STATE = "Mamba Cache is allocated. max_mamba_cache_size: 24, conv_state size: 0.07GB, ssm_state size: 3.52GB "
SCRATCH = "intermediate_ssm_state_cache size: 11.25GB intermediate_conv_window_cache size: 0.22GB "


def test_state_pool_with_scratch() -> None:
    (pool,) = read(STATE + SCRATCH).state_pools
    assert figures(pool, "rank", "slots", "conv", "ssm") == ("TP0", 24, gib(0.07), gib(3.52))
    assert figures(pool, "scratch_ssm", "scratch_conv") == (gib(11.25), gib(0.22))


def test_state_pool_without_speculation_has_no_scratch_rather_than_none_of_it() -> None:
    (pool,) = read(STATE).state_pools
    assert figures(pool, "slots", "scratch_ssm", "scratch_conv") == (24, None, None)


def test_scratch_of_size_zero_is_zero() -> None:
    """ReplaySSM keeps no intermediate state: the line says 0.00GB, which is not the same as saying nothing."""
    (pool,) = read(
        STATE + "intermediate_ssm_state_cache size: 0.00GB intermediate_conv_window_cache size: 0.02GB "
    ).state_pools
    assert pool.scratch_ssm == Quantity(0, HALF)


# ── KV pool ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "label", "dtype", "sizes", "versions"),
    [
        (
            "KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB",
            None,
            None,
            (gib(2.66), gib(2.66)),
            (None, "0.5.12"),
        ),
        (
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB",
            None,
            "torch.bfloat16",
            (gib(2.66), gib(2.66)),
            ("0.5.13", None),
        ),
        (
            "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB",
            "Full",
            "torch.bfloat16",
            (gib(2.66), gib(2.66)),
            ("0.5.17", None),
        ),
        (
            "SWA KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB",
            "SWA",
            "torch.float8_e4m3fn",
            (gib(2.66), gib(2.66)),
            ("0.5.17", None),
        ),
        (
            (
                "MiniMax MSA-v1 main NVFP4 KV Cache is allocated. dtype: torch.uint8, #tokens: 87061, "
                "K size: 2.66 GB, V size: 2.66 GB"
            ),
            "MiniMax MSA-v1 main NVFP4",
            "torch.uint8",
            (gib(2.66), gib(2.66)),
            ("0.5.17", None),
        ),
    ],
)
def test_kv_pool(
    line: str, label: str | None, dtype: str | None, sizes: tuple[Quantity, Quantity], versions: formats.VersionRange
) -> None:
    log = read(line)
    (pool,) = log.kv_pools
    assert figures(pool, "label", "dtype", "tokens", "k", "v") == (label, dtype, 87061, *sizes)
    assert pool.kv == Quantity(2 * round(2.66 * GIB), 2 * HALF)
    assert log.version_range == versions


@pytest.mark.parametrize(
    ("line", "versions"),
    [
        ("KV Cache is allocated. #tokens: 2659072, KV size: 87.01 GB", (None, "0.5.12")),
        ("KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 2659072, KV size: 87.01 GB", ("0.5.13", None)),
        ("Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 2659072, KV size: 87.01 GB", ("0.5.17", None)),
    ],
)
def test_kv_pool_of_mla_has_one_size(line: str, versions: formats.VersionRange) -> None:
    log = read(line)
    (pool,) = log.kv_pools
    assert figures(pool, "tokens", "k", "v", "kv") == (2659072, None, None, gib(87.01))
    assert log.version_range == versions


def test_dtype_of_early_versions_comes_from_its_own_line() -> None:
    log = read(
        "Using KV cache dtype: torch.float8_e4m3fn", "KV Cache is allocated. #tokens: 2659072, KV size: 87.01 GB"
    )
    assert log.kv_pools[0].dtype == "torch.float8_e4m3fn"


def test_sliding_window_pools_of_early_versions_get_their_names_from_the_summary() -> None:
    log = read(
        "Use sliding window memory pool. full_layer_tokens=400000, swa_layer_tokens=320000",
        "KV Cache is allocated. #tokens: 320000, K size: 3.66 GB, V size: 3.66 GB",
        "KV Cache is allocated. #tokens: 400000, K size: 4.58 GB, V size: 4.58 GB",
        "SWAKVPool mem usage: 16.48 GB, swa size: 320000, full size: 400000",
        "Memory pool end. avail mem=14.15 GB",
        "KV Cache is allocated. #tokens: 400000, K size: 0.38 GB, V size: 0.38 GB",
        "Memory pool end. avail mem=13.39 GB",
    )
    assert [(pool.role, pool.label) for pool in log.kv_pools] == [
        ("target", "SWA"),
        ("target", "Full"),
        ("draft", None),
    ]
    assert [notice.kind for notice in log.notices] == ["swa_sizes", "swa_pool"]


def test_unrounded_size_of_0_5_6() -> None:
    (notice,) = read("SWAKVPool mem usage: 16.479492187 GB, swa size: 320000, full size: 400000").notices
    assert notice.values["used"].bytes == round(16.479492187 * GIB)


def test_address_space_reserved_before_capture_is_no_pool() -> None:
    log = read(
        "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 300000, K size: 9.16 GB, V size: 9.16 GB",
        "Post-capture KV sizing: full_layer_tokens=273152, swa_layer_tokens=0",
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 273152, KV size: 16.67 GB, "
        "avail mem=3.01 GB",
        "Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 273152, KV size: 1.04 GB",
    )
    assert [(p.role, p.tokens, p.kv) for p in log.kv_pools] == [
        ("target", 273152, gib(16.67)),
        ("draft", 273152, gib(1.04)),
    ]
    assert [end.available for end in log.pool_ends] == [gib(3.01)]
    assert log.notices[0].kind == "kv_upper_bound"
    assert log.notices[0].values["tokens"] == 300000
    assert log.version_range == ("0.5.22", None)


# ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lines", "role", "kind", "sizes", "versions"),
    [
        (
            (
                "Capture cuda graph begin. This can take up to several minutes. avail mem=19.59 GB",
                "Capture cuda graph bs [1, 2, 4]",
                "Capture cuda graph end. Time elapsed: 6.41 s. mem usage=1.18 GB. avail mem=18.41 GB.",
            ),
            "target",
            "decode",
            (1, 2, 4),
            (None, "0.5.13"),
        ),
        (
            (
                "Capture draft cuda graph begin. This can take up to several minutes. avail mem=19.59 GB",
                "Capture draft cuda graph end. Time elapsed: 6.41 s. mem usage=1.18 GB. avail mem=18.41 GB.",
            ),
            "draft",
            "decode",
            None,
            (None, "0.5.13"),
        ),
        (
            (
                "Capture draft extend cuda graph begin (step 2). This can take up to several minutes. avail mem=19.59 GB",
                "Capture draft extend cuda graph end. Time elapsed: 6.41 s. mem usage=1.18 GB. avail mem=18.41 GB.",
            ),
            "draft",
            "extend",
            None,
            (None, "0.5.13"),
        ),
        (
            (
                "Capture piecewise CUDA graph begin. avail mem=19.59 GB",
                "Capture piecewise CUDA graph end. Time elapsed: 6.41 s. mem usage=1.18 GB. avail mem=18.41 GB.",
            ),
            "target",
            "prefill",
            None,
            (None, "0.5.13"),
        ),
        (
            (
                (
                    "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4], "
                    "avail mem=19.59 GB"
                ),
                "Capture target decode CUDA graph end. elapsed=6.41 s, mem usage=1.18 GB, avail mem=18.41 GB.",
            ),
            "target",
            "decode",
            (1, 2, 4),
            ("0.5.14", "0.5.15"),
        ),
        (
            (
                (
                    "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=16, bs=[1, 2, 4], "
                    "avail mem=19.59 GB"
                ),
                "Capture target verify CUDA graph end. elapsed=6.41 s, mem usage=1.18 GB, avail mem=18.41 GB.",
            ),
            "target",
            "verify",
            (1, 2, 4),
            ("0.5.16", "0.5.21"),
        ),
        (
            (
                "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=16, avail mem=19.59 GB",
                (
                    "Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=6.41 s, mem usage=1.18 GB, "
                    "avail mem=18.41 GB."
                ),
            ),
            "target",
            "verify",
            (1, 2, 4),
            ("0.5.22", None),
        ),
        (
            (
                "Capture draft extend CUDA graph begin. step=1, avail mem=19.59 GB",
                "Capture draft extend CUDA graph end. step=1, elapsed=6.41 s, mem usage=1.18 GB, avail mem=18.41 GB.",
            ),
            "draft",
            "extend",
            None,
            ("0.5.14", None),
        ),
        (
            (
                "Capture UNO tree draft CUDA graph begin. num_tokens_per_req=8, avail mem=19.59 GB",
                "Capture UNO tree draft CUDA graph end. elapsed=6.41 s, mem usage=1.18 GB, avail mem=18.41 GB.",
            ),
            "draft",
            "decode",
            None,
            ("0.5.20", None),
        ),
    ],
)
def test_graph_capture(
    lines: tuple[str, ...],
    role: str,
    kind: str,
    sizes: tuple[int, ...] | None,
    versions: formats.VersionRange,
) -> None:
    log = read(*lines)
    (capture,) = log.graphs
    assert figures(capture, "role", "kind", "batch_sizes") == (role, kind, sizes)
    assert figures(capture, "used", "available", "elapsed_s", "line") == (gib(1.18), gib(18.41), 6.41, len(lines))
    assert log.version_range == versions
    assert log.unread == ()


def test_prefill_graph_and_other_devices() -> None:
    log = read(
        "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8, 12], avail mem=14.77 GB",
        "Capture target prefill CUDA graph end. elapsed=17.92 s, mem usage=3.85 GB, avail mem=10.85 GB.",
        "Capture target decode NPU graph begin. backend=full, num_tokens_per_req=1, bs=[1], avail mem=10.85 GB",
        "Capture target decode NPU graph end. elapsed=6.90 s, mem usage=6.13 GB, avail mem=4.72 GB.",
    )
    assert [(g.kind, g.batch_sizes, g.used) for g in log.graphs] == [
        ("prefill", None, gib(3.85)),
        ("decode", (1,), gib(6.13)),
    ]


def test_a_capture_that_never_ended_has_no_size() -> None:
    (capture,) = read("Capture cuda graph begin. This can take up to several minutes. avail mem=84.49 GB").graphs
    assert figures(capture, "used", "available") == (None, gib(84.49))


# ── summary ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_summary(device: str) -> None:
    (resolved,) = read(
        "max_total_num_tokens=87061, chunked_prefill_size=-1, max_prefill_tokens=16384, max_running_requests=4, "
        f"context_len=262144, available_{device}_mem=17.40 GB"
    ).resolved
    assert figures(resolved, "kv_tokens", "running_requests", "context_len") == (87061, 4, 262144)
    assert figures(resolved, "chunked_prefill_size", "max_prefill_tokens", "available") == (-1, 16384, gib(17.40))


def test_ready_line() -> None:
    assert logs.read(["[2026-05-20 10:11:12] The server is fired up and ready to roll!"]).ready_line == 1


# ── infos and warnings ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "kind", "values", "versions"),
    [
        (
            "Init torch distributed ends. mem usage=0.83 GB",
            "distributed_ready",
            {"used": gib(0.83)},
            (None, "0.5.8"),
        ),
        (
            "Init torch distributed ends. elapsed=1.34 s, mem usage=0.83 GB",
            "distributed_ready",
            {"used": gib(0.83), "elapsed_s": 1.34},
            ("0.5.9", "0.5.20"),
        ),
        ("Init parallel ends. elapsed=0.02 s", "parallel_ready", {"elapsed_s": 0.02}, ("0.5.21", None)),
        ("Memory baseline taken. mem usage=0.83 GB", "memory_baseline", {"used": gib(0.83)}, ("0.5.21", None)),
        (
            (
                "Load weight end. Committed real weights after CUDA graph capture in 3.25 s (capture overlap window 9.10 s, "
                "startup overlap total 12.35 s)"
            ),
            "weights_committed",
            {"elapsed_s": 3.25},
            ("0.5.18", None),
        ),
        (
            "GDN ReplaySSM ring buffers allocated (L=64): d=0.125GB, k=0.062GB, g=0.001GB",
            "replayssm_buffers",
            {"length": 64, "d": Quantity(134217728, 536871), "k": Quantity(66571993, 536871)},
            ("0.5.15", "0.5.16"),
        ),
        (
            (
                "GDN ReplaySSM ring buffers allocated (record_len=16, fold=True): d=0.125GB, k=0.062GB, g=0.001GB "
                "rawv=0.125GB, rawk=0.062GB, "
            ),
            "replayssm_buffers",
            {"length": 16, "fold": True, "rawv": Quantity(134217728, 536871)},
            ("0.5.17", None),
        ),
        (
            (
                "int8 mamba checkpoint pool: 512 slots, 9.38GB (qdata 9.00 + scale 0.25 + conv 0.13); active mamba pool 64 "
                "slots; free HBM 21.50GB"
            ),
            "int8_checkpoint_pool",
            {"slots": 512, "size": gib(9.38), "state_slots": 64, "free": gib(21.50)},
            ("0.5.14", None),
        ),
        (
            (
                "int8 mamba checkpoint pool (9.38GB) is allocated from --mem-fraction-static headroom and is not reflected "
                "in max_total_num_tokens; ensure headroom covers it."
            ),
            "int8_checkpoint_outside_budget",
            {"size": gib(9.38)},
            ("0.5.14", None),
        ),
        (
            (
                "[unified-memory-pool]   total_bytes=17179869184, max_total_num_tokens=131072, max_mamba_cache_size=40, "
                "max_num_reqs=8, speculative_num_draft_tokens=None"
            ),
            "unified_memory_pool",
            {"total_bytes": 17179869184, "kv_tokens": 131072, "state_slots": 40, "running_requests": 8},
            ("0.5.15", None),
        ),
        (
            "KV Cache skipped (no-op pool). Logical #tokens: 65536, physical K/V size: ~4.0 KB placeholder",
            "kv_pool_skipped",
            {"tokens": 65536, "kilobytes": 4.0},
            ("0.5.12", None),
        ),
        (
            "Use sliding window memory pool (all SWA). swa_layer_tokens=320000",
            "swa_sizes",
            {"swa_tokens": 320000},
            ("0.5.9", None),
        ),
        (
            (
                "Disable DFLASH draft cuda graph because only 0.61 GB GPU memory is available after target backend "
                "initialization."
            ),
            "draft_graph_skipped",
            {"available": gib(0.61)},
            ("0.5.14", None),
        ),
        (
            (
                "Disabling auto-selected prefill CUDA graph: only 1.52 GiB is free after model/KV/eager-buffer allocation; "
                "at least 2.00 GiB is required for capture. Set an explicit prefill CUDA graph backend to override this "
                "safety gate."
            ),
            "prefill_graph_skipped",
            {"available": gib(1.52), "required": gib(2.0)},
            ("0.5.16", None),
        ),
        (
            "Post-capture KV sizing: max_total_num_tokens=273152, free memory=19.68 GB",
            "post_capture_sized",
            {"kv_tokens": 273152, "available": gib(19.68)},
            ("0.5.16", "0.5.16"),
        ),
        (
            "Post-capture KV sizing: max_running_requests 8 -> 6",
            "requests_reduced",
            {"requested": 8, "resolved": 6},
            ("0.5.16", None),
        ),
        (
            "Post-capture KV sizing: decode CUDA graph max_bs=4 < max_running_requests=8; reserving activation headroom",
            "post_capture_headroom",
            {"graph_batch": 4, "running_requests": 8},
            ("0.5.16", None),
        ),
        (
            (
                "Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=16, "
                "draft_window_size=None, compact_cache=False"
            ),
            "draft_runner",
            {"algorithm": "DFLASH", "model_class": "DFlashDraftModel", "block_size": "16"},
            ("0.5.11", None),
        ),
        (
            (
                "Initialized DSpark draft runner. attention_backend=fa3, model=Qwen3DSparkModel, gamma=7, "
                "verify_num_draft_tokens=8, mask_token_id=248070, markov_head=True"
            ),
            "draft_runner",
            {"algorithm": "DSpark", "gamma": "7", "block_size": "8"},
            ("0.5.16", None),
        ),
        (
            "Initialized DDTree worker. block_size=16, tree_budget=64, max_tree_nodes=65",
            "draft_runner",
            {"algorithm": "DDTree", "block_size": "16", "tree_budget": "64"},
            (None, None),
        ),
        (
            (
                "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting "
                "--max-running-requests."
            ),
            "requests_default_48",
            {"requests": 48},
            (None, None),
        ),
        (
            "Max concurrent requests (per dp worker) from the finalized token capacity: max_num_reqs=6.",
            "requests_from_capacity",
            {"requests": 6},
            ("0.5.13", "0.5.13"),
        ),
        (
            (
                "max_running_requests was reduced from the requested 8 to 1 (per dp worker) due to the available KV cache "
                "capacity."
            ),
            "requests_reduced",
            {"requested": 8, "resolved": 1},
            ("0.5.14", None),
        ),
        (
            (
                "max_running_requests is capped to 9 by the mamba state cache (max_mamba_cache_size=47, 5 state slots per "
                "request). To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state "
                "size with --mamba-ssm-dtype bfloat16."
            ),
            "requests_capped_by_state",
            {"resolved": 9, "state_slots": 47, "slots_per_request": 5},
            ("0.5.17", None),
        ),
        (
            "max_total_tokens=500000 is larger than the profiled value 87061. Use the profiled value instead.",
            "tokens_above_profile",
            {"requested": 500000, "profiled": 87061},
            (None, None),
        ),
        (
            (
                "Reserving 1.25 GB of the KV budget for post-sizing multimodal allocations (feature-transport pools + "
                "embedding cache)."
            ),
            "multimodal_reserve",
            {"size": gib(1.25)},
            ("0.5.18", None),
        ),
        (
            "Overlap scheduler is disabled when using DFLASH speculative decoding (spec v2 is not supported yet).",
            "overlap_disabled",
            {},
            ("0.5.11", "0.5.13"),
        ),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.5990 -> 0.8990",
            "retracted",
            {"requests": 1, "ratio_before": 0.599, "ratio_after": 0.899},
            (None, "0.5.6"),
        ),
        (
            (
                "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 1087, "
                "#mamba_num_gained: 4, #new_token_ratio: 0.5990 -> 0.8990"
            ),
            "retracted",
            {"requests": 1, "tokens_gained": 1087, "slots_gained": 4},
            ("0.5.11", None),
        ),
        (
            "[http_server] Error: The input (33000 tokens) is longer than the model's context length (32768 tokens).",
            "input_above_context",
            {"input_tokens": 33000, "context_len": 32768},
            (None, None),
        ),
        (
            (
                "[http_server] Error: Input length (12000 tokens) exceeds the maximum allowed length (11887 tokens). Use a "
                "shorter input or enable --allow-auto-truncate."
            ),
            "input_above_pool",
            {"input_tokens": 12000, "max_input_tokens": 11887},
            (None, None),
        ),
        (
            (
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
                "10:11:12. last_heartbeat time: 10:10:52"
            ),
            "health_check_failed",
            {"seconds": 20.0},
            (None, None),
        ),
    ],
)
def test_notice(line: str, kind: str, values: dict[str, Any], versions: formats.VersionRange) -> None:
    log = read(line)
    (notice,) = log.notices
    assert notice.kind == kind
    assert {name: notice.values[name] for name in values} == values
    assert None not in notice.values.values()
    assert log.version_range == versions
    assert log.unread == ()


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "values", "versions"),
    [
        (
            (
                "Decode batch. #running-req: 1, #token: 186, token usage: 0.00, accept len: 1.95, accept rate: 0.49, "
                "cuda graph: True, gen throughput (token/s): 178.86, #queue-req: 0, "
            ),
            (1, 186, 0.0, None, None, 1.95, 0.49, 178.86, 0, True),
            (None, "0.5.5"),
        ),
        (
            (
                "Decode batch, #running-req: 3, #token: 186, token usage: 0.12, cuda graph: False, "
                "gen throughput (token/s): 178.86, #queue-req: 2, "
            ),
            (3, 186, 0.12, None, None, None, None, 178.86, 2, False),
            (None, "0.5.8"),
        ),
        (
            (
                "Decode batch, #running-req: 3, #token: 186, token usage: 0.12, cuda graph: False, "
                "gen throughput (token/s): 178.86, #queue-req: 2"
            ),
            (3, 186, 0.12, None, None, None, None, 178.86, 2, False),
            ("0.5.10", None),
        ),
        (
            (
                "Decode batch, #running-req: 68, #full token: 321920, full token usage: 0.49, mamba num: 66, "
                "mamba usage: 0.54, accept len: 2.99, accept rate: 0.66, npu graph: True, "
                "gen throughput (token/s): 2499.67, #queue-req: 0"
            ),
            (68, 321920, 0.49, 66, 0.54, 2.99, 0.66, 2499.67, 0, True),
            ("0.5.10", None),
        ),
        (
            (
                "Decode batch [1234], #running-req: 4, #full token: 100, full token usage: 0.10, #swa token: 80, "
                "swa token usage: 0.20, mamba num: 16, mamba usage: 0.40, accept len: 3.00, accept rate: 0.13, "
                "cap len: 5.00, block accept len: 2.50, pre-allocated usage: 0.05, #prealloc-req: 1, #transfer-req: 2, "
                "#retracted-req: 0, cuda graph: True, gen throughput (token/s): 55.50, #queue-req: 7, "
                "est. decode TFLOPS/s (per GPU): 1.50, est. read BW (GB/s per GPU): 900.00, "
                "est. write BW (GB/s per GPU): 3.00, fwd occupancy: 91.20%"
            ),
            (4, 100, 0.10, 16, 0.40, 3.0, 0.13, 55.5, 7, True),
            ("0.5.16", None),
        ),
    ],
)
def test_decode_line(line: str, values: tuple[Any, ...], versions: formats.VersionRange) -> None:
    log = read(line)
    names = (
        "running_requests", "tokens", "token_usage", "state_slots_used", "state_usage", "accept_length", "accept_rate",
        "throughput", "queued_requests", "graph",
    )  # fmt: skip
    assert tuple(log.decode[name][0] for name in names) == values
    assert (log.decode["rank"], log.decode["time"], log.decode["line"]) == (["TP0"], ["2026-05-20 10:11:12"], [1])
    assert log.version_range == versions
    assert log.unread == ()


@pytest.mark.parametrize(
    ("line", "values", "versions"),
    [
        (
            (
                "Prefill batch. #new-seq: 1, #new-token: 28, #cached-token: 0, token usage: 0.00, #running-req: 0, "
                "#queue-req: 0, "
            ),
            (1, 28, 0, 0.0, None, 0, 0, None),
            (None, "0.5.5"),
        ),
        (
            (
                "Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 4, token usage: 0.01, #running-req: 2, "
                "#queue-req: 3, "
            ),
            (1, 28, 4, 0.01, None, 2, 3, None),
            (None, "0.5.8"),
        ),
        (
            (
                "Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 4, token usage: 0.01, #running-req: 2, "
                "#queue-req: 3, cuda graph: False, input throughput (token/s): 24.92"
            ),
            (1, 28, 4, 0.01, None, 2, 3, 24.92),
            ("0.5.10", "0.5.10"),
        ),
        (
            (
                "Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 4, token usage: 0.01, #running-req: 2, "
                "#queue-req: 3, input throughput (token/s): 24.92, cuda graph: False"
            ),
            (1, 28, 4, 0.01, None, 2, 3, 24.92),
            ("0.5.9", "0.5.9"),
        ),
        (
            (
                "Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 4, token usage: 0.01, #running-req: 2, "
                "#queue-req: 3, #prealloc-req: 0, #inflight-req: 1, input throughput (token/s): 24.92, "
            ),
            (1, 28, 4, 0.01, None, 2, 3, 24.92),
            (None, "0.5.8"),
        ),
        (
            (
                "Prefill batch, #new-seq: 8, #new-token: 8064, #cached-token: 553600, full token usage: 0.53, "
                "mamba usage: 0.52, #running-req: 2, #queue-req: 0, #pending-token: 0, npu graph: False, "
                "input throughput (token/s): 1292.14"
            ),
            (8, 8064, 553600, 0.53, 0.52, 2, 0, 1292.14),
            ("0.5.11", None),
        ),
        (
            (
                "Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 4, full token usage: 0.01, "
                "swa token usage: 0.02, #running-req: 2, #queue-req: 3, #pending-token: 9, #replay-token: 5, "
                "#bootstrap-req: 1, #inflight-req: 1, #optimistic-req: 0, cuda graph: True, "
                "input throughput (token/s): 24.92"
            ),
            (1, 28, 4, 0.01, None, 2, 3, 24.92),
            ("0.5.21", None),
        ),
    ],
)
def test_prefill_line(line: str, values: tuple[Any, ...], versions: formats.VersionRange) -> None:
    log = read(line)
    names = (
        "new_requests", "new_tokens", "cached_tokens", "token_usage", "state_usage", "running_requests",
        "queued_requests", "throughput",
    )  # fmt: skip
    assert tuple(log.prefill[name][0] for name in names) == values
    assert log.version_range == versions
    assert log.unread == ()


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_as_an_object() -> None:
    log = read(
        "server_args=ServerArgs(model_path='/m/a, b', max_running_requests=8, fraction=0.75, flag=True, none=None, "
        "sizes=[1, 2, 4], graph=CudaGraphConfig(decode=PhaseConfig(bs=[1, 2])), "
        "quoted=\"it's, (odd\", escaped='a\\'b', nested={'a': (1, 2)}, last=3)"
    )
    assert dict(log.server_args or {}) == {
        "model_path": "/m/a, b",
        "max_running_requests": 8,
        "fraction": 0.75,
        "flag": True,
        "none": None,
        "sizes": [1, 2, 4],
        "graph": "CudaGraphConfig(decode=PhaseConfig(bs=[1, 2]))",
        "quoted": "it's, (odd",
        "escaped": "a'b",
        "nested": {"a": (1, 2)},
        "last": 3,
    }
    assert log.version_range == (None, "0.5.22")


def test_arguments_as_a_dict() -> None:
    log = read("server_args={'model_path': '/m/a', 'max_running_requests': 8, 'kv_cache_dtype': 'auto', 'x': None}")
    assert dict(log.server_args or {}) == {
        "model_path": "/m/a",
        "max_running_requests": 8,
        "kv_cache_dtype": "auto",
        "x": None,
    }
    assert log.version_range == ("0.5.23", None)


def test_nothing_in_the_arguments_is_evaluated() -> None:
    log = read("server_args=ServerArgs(a=__import__('os').getpid(), b=[1 for _ in range(9)], c=3)")
    assert dict(log.server_args or {}) == {"a": "__import__('os').getpid()", "b": "[1 for _ in range(9)]", "c": 3}


def test_arguments_that_were_cut_off_give_what_came_before() -> None:
    log = read("server_args=ServerArgs(model_path='/m/a', max_running_requests=8, mem_fraction_st")
    assert dict(log.server_args or {}) == {"model_path": "/m/a", "max_running_requests": 8}


# ── the chain of formats ─────────────────────────────────────────────────────────────────────────────────────────────


def kv_template(version: str) -> str:
    return formats.forms_of(version)["kv_pool"].template


def test_a_known_version_uses_the_nearest_earlier_file() -> None:
    assert kv_template("0.5.9").startswith("KV Cache is allocated. #tokens")
    assert kv_template("0.5.12") == kv_template("0.5.6.post2")
    assert kv_template("0.5.16") == kv_template("0.5.13") != kv_template("0.5.17")
    assert kv_template("0.6.0") == kv_template("0.5.23")
    assert kv_template("0.4.9") == kv_template("0.5.6")


def test_lines_that_a_version_dropped_are_not_among_its_forms() -> None:
    assert "graph_sizes" in formats.forms_of("0.5.13")
    assert "graph_sizes" not in formats.forms_of("0.5.14")
    assert "distributed_end" not in formats.forms_of("0.5.21")


def test_sliding_pools_are_named_alike_in_every_release() -> None:
    """From 0.5.18 only pools that are sized after capture say "VA upper bound" instead (mem_cache/swa_memory_pool.py)."""
    log = read("SWAKVPool mem usage: 3.20 GB, swa size: 125814, full size: 157268")
    assert log.version_range == (None, None)


def test_a_file_holds_only_what_changed() -> None:
    before: dict[str, Form] = {}
    for version, file in formats.FILES.items():
        same = [name for name, form in file.FORMS.items() if before.get(name) == form]
        assert same == [], f"{version} repeats {same}"
        before |= file.FORMS


def test_the_log_says_an_exact_version_when_somebody_wrote_it_down() -> None:
    assert logs.read(["Successfully installed sglang-0.5.12.post1"]).version == "0.5.12.post1"
    assert logs.read(["docker run lmsysorg/sglang:v0.5.16-cu129 python3 …"]).version == "0.5.16"
    assert logs.read(["sglang==0.5.23"]).version == "0.5.23"
    assert logs.read(["sglang-router 0.3.1, sglang-kernel 0.4.10"]).version is None
    assert logs.read(["x"], version="0.5.12").version == "0.5.12"


def test_a_known_version_is_told_when_its_lines_are_worded_otherwise() -> None:
    kv = "KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB"
    assert logs.read([kv], version="0.5.12").seen.get("other_wording") is None
    later = logs.read([kv], version="0.5.16")
    assert later.seen["other_wording"] == 1
    assert later.kv_pools[0].tokens == 87061
    assert logs.read([kv], version="0.0.0.dev1+g977830e91").seen.get("other_wording") is None
    assert logs.read([kv], version="my fork").version == "my fork"


def test_lines_of_two_versions_give_no_range() -> None:
    """A fork, or several servers in one file: 0.5.12's pool line beside 0.5.18's warning."""
    log = read(
        "KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB",
        "max_running_requests is capped to 9 by the mamba state cache (max_mamba_cache_size=47, 5 state slots per request)",
    )
    assert log.version_range == (None, None)
