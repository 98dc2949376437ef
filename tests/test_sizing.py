"""The solvers, era by era, against worked tables and against SGLang's own sizing code.

The tables: Qwen3.6-27B + DFLASH 16 on a 95.6 GiB card, extra_buffer. Inputs: pre 94.40 GiB (93.8 for TP4 and TP8), W =
51.208922 GiB over the ranks (so that 0.75 × 94.40 - W = 19.591078, the middle of what 24 slots and 87,061 tokens leave
open), draft 3.5e9 B over the ranks from 0.5.14. The 100 MiB that 0.5.18 keeps back for images are in.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.sizing import RULES, caveat, rule_for, rule_version
from specbench.engines.sglang.sizing.cell import stage_layers
from specbench.engines.sglang.sizing.contract import Demand
from specbench.engines.sglang.sizing.span import span
from specbench.engines.sglang.sizing.steps import solve
from specbench.errors import ConfigError, SpecError
from specbench.specs import load_model
from specbench.units import GIB, Interval

SLOT = 153_944_064
CELL = 86_016
#: (24 + 4 × 16) slots and 87,061.5 tokens: what the table's server had left, to half a token.
LEFT_GIB = (88 * SLOT + 87_061.5 * CELL) / GIB
WEIGHTS_GIB = 0.75 * 94.40 - LEFT_GIB
DRAFT_GIB = 3.5e9 / GIB
VERSIONS = ("0.5.12", "0.5.13", "0.5.16", "0.5.23")
NO_RESERVE = {"SGLANG_VLM_CACHE_SIZE_MB": "0"}
DFLASH = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
DSPARK = DFLASH | {"algorithm": "DSPARK"}
NEXTN = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


def config(
    version: str,
    *,
    tp: int = 1,
    speculative: dict[str, Any] = DFLASH,
    env: dict[str, str] | None = None,
    **memory: Any,
) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "table",
            "engine": {"version": version, "env": env or {}},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "rtx-pro-6000", "count": 8},
            "parallel": {"tp_size": tp},
            "speculative": speculative,
            "memory": {"mamba_radix_cache_strategy": "extra_buffer", **memory},
        }
    )


def budget(case: RunConfig, pre_gib: float, loaded_gib: float) -> MemoryBudget:
    """What is left is rounded up to a byte: the tables know it to half a token only."""
    return predict(
        case,
        pre_bytes=Interval.exact(round(pre_gib * GIB)),
        post_bytes=Interval.exact(math.ceil((pre_gib - loaded_gib) * GIB)),
    )


def table(version: str, tp: int, fraction: float, ratio: float, requests: int | None) -> MemoryBudget:
    draft = DRAFT_GIB if rule_for(version).draft_loads_first else 0
    case = config(
        version,
        tp=tp,
        mem_fraction_static=fraction,
        mamba_full_memory_ratio=ratio,
        max_running_requests=requests,
    )
    return budget(case, 94.40 if tp == 1 else 93.8, (WEIGHTS_GIB + draft) / tp)


def figures(found: MemoryBudget) -> tuple[int | None, int | None, int | None]:
    limits = [found.limits[name].value for name in ("state_slots", "kv_tokens", "running_requests")]
    slots, tokens, requests = (value.point if value else None for value in limits)
    return slots, tokens, requests


REFUSED = (4, None, 0)
ONE_GPU = {
    # fraction, ratio, asked: one (slots, tokens, requests) per version of VERSIONS
    (0.75, 0.5, 4): ((24, 87_061, 4), (9, 171_178, 2), (9, 159_123, 1), REFUSED),
    (0.75, 0.5, 8): ((2, 11_893, 0), (9, 171_178, 2), (9, 159_123, 1), REFUSED),
    (0.75, 0.9, 4): ((34, 69_164, 4), (12, 137_173, 3), (12, 125_118, 2), (8, 129_268, 1)),
    (0.75, 0.9, 8): ((4, 8_314, 1), (12, 137_173, 3), (12, 125_118, 2), (8, 129_268, 1)),
    (0.85, 0.9, 4): ((65, 131_523, 4), (19, 213_850, 4), (20, 171_370, 4), (16, 175_520, 3)),
    (0.85, 0.9, 8): ((35, 70_672, 8), (19, 213_850, 4), (20, 171_370, 4), (16, 175_520, 3)),
    (0.75, 0.9, None): ((0, None, 0), (12, 137_173, 3), (12, 125_118, 2), (8, 129_268, 1)),
}
#: Free memory goes through 32 bits here, which moves some of the figures that are computed without that by a token.
SEVERAL_GPUS = {
    (4, 0.75, 0.5, 4): ((513, 1_840_821), (107, 2_567_445), (125, 2_494_540), (121, 2_466_397)),
    (4, 0.75, 0.5, 8): ((492, 1_763_863), (107, 2_452_903), (125, 2_379_998), (121, 2_351_855)),
    (4, 0.75, 0.9, 4): ((730, 1_452_453), (152, 2_486_908), (178, 2_399_685), (174, 2_371_542)),
    (4, 0.75, 0.9, 8): ((699, 1_393_392), (152, 2_372_366), (178, 2_285_143), (174, 2_257_000)),
    (4, 0.85, 0.9, 4): ((854, 1_698_892), (176, 2_912_318), (208, 2_814_357), (203, 2_788_004)),
    (4, 0.85, 0.9, 8): ((823, 1_639_831), (176, 2_797_777), (208, 2_699_815), (203, 2_673_463)),
    (8, 0.75, 0.5, 4): ((1168, 2_090_644), (237, 2_923_756), (281, 2_864_037), (276, 3_233_344)),
    (8, 0.75, 0.5, 8): ((1146, 2_053_060), (237, 2_866_485), (281, 2_806_766), (276, 3_168_334)),
    (8, 0.75, 0.9, 4): ((1659, 1_651_269), (338, 2_833_375), (399, 2_758_444), (395, 3_112_466)),
    (8, 0.75, 0.9, 8): ((1629, 1_620_844), (338, 2_776_104), (399, 2_701_173), (395, 3_047_456)),
    (8, 0.85, 0.9, 4): ((1907, 1_897_708), (387, 3_257_891), (458, 3_174_011), (454, 3_584_191)),
    (8, 0.85, 0.9, 8): ((1877, 1_867_283), (387, 3_200_620), (458, 3_116_740), (454, 3_519_181)),
}


@pytest.mark.parametrize("case", ONE_GPU, ids=str)
def test_every_version_on_one_gpu(case: tuple[float, float, int | None]) -> None:
    for version, expected in zip(VERSIONS, ONE_GPU[case], strict=True):
        assert figures(table(version, 1, *case)) == expected, version


@pytest.mark.parametrize("case", SEVERAL_GPUS, ids=str)
def test_every_version_on_several_gpus(case: tuple[int, float, float, int]) -> None:
    for version, (slots, tokens) in zip(VERSIONS, SEVERAL_GPUS[case], strict=True):
        found = table(version, *case)
        assert figures(found) == (slots, tokens, case[3]), version
        assert found.verdict == "serves"


@pytest.mark.parametrize("version", ["0.5.11", "0.5.12"])
def test_versions_of_one_column_agree(version: str) -> None:
    assert figures(table(version, 1, 0.75, 0.5, 4)) == (24, 87_061, 4)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.15", "0.5.16"])
def test_era_two_with_the_draft_first(version: str) -> None:
    assert figures(table(version, 1, 0.75, 0.9, 8)) == (12, 125_118, 2)


@pytest.mark.parametrize("version", ["0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"])
def test_era_three(version: str) -> None:
    assert figures(table(version, 1, 0.85, 0.9, 4)) == (16, 175_520, 3)


def test_era_three_begins_with_0_5_17() -> None:
    """Nothing is kept back for images yet: 100 MiB are 1,219 tokens of 86,016 B, and no whole slot with its scratch."""
    assert 100 * 2**20 // 86_016 == 1_219
    assert figures(table("0.5.17", 1, 0.85, 0.9, 4)) == (16, 175_520 + 1_219, 3)


# ── the two runs that started it ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cells", [0.0, 0.5, 0.9999])
def test_the_story_holds_over_its_whole_interval(cells: float) -> None:
    """24 slots and 87,061 tokens fix what was left to one token: [19.59104, 19.59112] GiB."""
    left_gib = (88 * SLOT + (87_061 + cells) * CELL) / GIB
    assert 19.59103 < left_gib < 19.59112
    four = config("0.5.12", mem_fraction_static=0.75, mamba_full_memory_ratio=0.5, max_running_requests=4)
    eight = four.replace({"memory.max_running_requests": 8})
    loaded = 0.75 * 94.40 - left_gib
    assert figures(budget(four, 94.40, loaded)) == (24, 87_061, 4)
    refused = budget(eight, 94.40, loaded)
    assert figures(refused) == (2, 11_893, 0)
    assert refused.verdict == "refused"
    assert refused.engine_error == "AssertionError: capture_bs=[0]"


def test_four_more_requests_take_their_scratch_and_nothing_else() -> None:
    # the signature of era I: (24 p + 87,061 c) - (2 p + 11,893 c) = 4 × 16 × p, without remainder
    assert (24 * SLOT + 87_061 * CELL) - (2 * SLOT + 11_893 * CELL) == 4 * 16 * SLOT == 9_852_420_096


def test_unit_sizes_of_the_story() -> None:
    found = table("0.5.12", 1, 0.75, 0.5, 4)
    details = {name: value.point for name, value in found.details.items()}
    assert details["slot_bytes"] == SLOT
    assert details["charged_cell_bytes"] == CELL
    assert details["cell_bytes"] == 65_536
    assert details["draft_cell_bytes"] == 20_480
    assert details["scratch_per_request_bytes"] / GIB == pytest.approx(2.2939, abs=0.00005)
    state = sum(
        found.terms[term].bytes.point  # type: ignore[union-attr]
        for term in ("state_conv", "state_ssm", "scratch_conv", "scratch_ssm")
    )
    assert state / 24 / GIB == pytest.approx(0.627, abs=0.0005)  # "all in, per slot"


@pytest.mark.parametrize(
    ("tp", "slot", "scratch_gib", "cell", "old_cell", "new_cell"),
    [
        (1, 153_944_064, 2.2939, 65_536, 86_016, 86_016),
        (4, 38_486_016, 0.5735, 16_384, 21_504, 21_504),
        (8, 19_243_008, 0.2867, 16_384, 21_504, 18_944),
    ],
)
def test_unit_sizes(tp: int, slot: int, scratch_gib: float, cell: int, old_cell: int, new_cell: int) -> None:
    old, new = table("0.5.16", tp, 0.85, 0.9, 4).details, table("0.5.23", tp, 0.85, 0.9, 4).details
    assert old["slot_bytes"].point == new["slot_bytes"].point == slot
    assert old["scratch_per_request_bytes"].point / GIB == pytest.approx(scratch_gib, abs=0.00005)
    assert old["cell_bytes"].point == cell
    assert (old["charged_cell_bytes"].point, new["charged_cell_bytes"].point) == (old_cell, new_cell)


@pytest.mark.parametrize(("tp", "slot"), [(1, 78_446_592), (4, 19_611_648), (8, 9_805_824)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_narrow_state_halves_the_slot_but_not_its_convolution(tp: int, slot: int, dtype: str) -> None:
    case = config("0.5.16", tp=tp, mem_fraction_static=0.85, mamba_ssm_dtype=dtype, max_running_requests=4)
    assert budget(case, 93.8, WEIGHTS_GIB / tp).details["slot_bytes"].point == slot


# ── other algorithms, 0.5.23, TP1, f 0.80, r 0.9, 8 asked ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("speculative", "draft_gib", "cell", "expected", "scratch_gib"),
    [
        ({"algorithm": "none"}, 0.0, 65_536, (78, 211_141, 8), 0.0),
        # charged only with a draft path: here the model itself, whose head it then uses
        ({**NEXTN, "draft_model_path": "Qwen/Qwen3.6-27B"}, 0.8, 69_632, (40, 190_807, 8), 5.16),
        (DFLASH, DRAFT_GIB, 86_016, (12, 152_394, 2), 6.88),
        ({"algorithm": "NGRAM"}, 0.0, 65_536, (19, 236_980, 3), 6.88),
        (DSPARK, DRAFT_GIB, 86_016, (23, 147_025, 4), 5.73),  # gamma 7: 8 tokens
        # as NGRAM's 12 tokens: nothing is charged for either
        ({"algorithm": "UNO", "num_draft_tokens": 12}, 0.0, 65_536, (19, 236_980, 3), 6.88),
        (
            {"algorithm": "MY_SPEC", "num_draft_tokens": 12, "custom": {"overlap": True}},
            0,
            65_536,
            (19, 236_980, 3),
            6.88,
        ),
        # a class that answers to is_dflash_family
        (
            {
                **DFLASH,
                "algorithm": "MY_SPEC",
                "num_draft_tokens": 16,
                "custom": {"overlap": True, "draft_kv": "dflash"},
            },
            DRAFT_GIB,
            86_016,
            (12, 152_394, 2),
            6.88,
        ),
    ],
)
def test_other_algorithms(
    speculative: dict[str, Any], draft_gib: float, cell: int, expected: tuple[int, int, int], scratch_gib: float
) -> None:
    args = {"DSPARK": {"speculative-dspark-block-size": 7}, "UNO": {"uno-lora-path": "adapter"}}
    case = config("0.5.23", speculative=speculative, mem_fraction_static=0.80, max_running_requests=8)
    case = case.replace({"engine.args": args.get(speculative["algorithm"], {})})
    found = budget(case, 94.40, WEIGHTS_GIB + draft_gib)
    assert figures(found) == expected
    assert found.details["charged_cell_bytes"].point == cell
    assert found.details["scratch_charged_bytes"].point / GIB == pytest.approx(scratch_gib, abs=0.005)


@pytest.mark.parametrize(
    ("version", "path", "cell"),
    [
        ("0.5.13", True, 65_536),
        ("0.5.16", False, 65_536),
        # up to 0.5.17 the head of a model with a vision tower counts as all 64 layers: 65,536 × (1 + 64 / 16)
        ("0.5.16", True, 327_680),
        ("0.5.17", True, 327_680),
        ("0.5.18", True, 69_632),  # then as one: 65,536 × (1 + 1 / 16)
        ("0.5.23", True, 69_632),
        ("0.5.23", False, 65_536),
    ],
)
def test_the_heads_kv_is_charged_with_a_draft_path_only(version: str, path: bool, cell: int) -> None:
    speculative = {**NEXTN, "draft_model_path": "Qwen/Qwen3.6-27B" if path else None}
    case = config(version, speculative=speculative, mem_fraction_static=0.85, max_running_requests=4)
    found = budget(case, 94.40, WEIGHTS_GIB)
    assert found.details["charged_cell_bytes"].point == cell
    assert found.details["draft_cell_bytes"].point == 4_096  # allocated all the same


@pytest.mark.parametrize(
    ("budget_nodes", "width", "scratch_gib", "expected"),
    [
        (15, 16, 2.29, (13, 153_613, 3)),
        (16, 17, 2.44, (13, 148_244, 3)),
        (32, 33, 4.73, (7, 191_197, 1)),
        (64, 65, 9.32, (4, 139_295, 1)),
    ],
)
def test_ddtree_on_0_5_15(budget_nodes: int, width: int, scratch_gib: float, expected: tuple[int, int, int]) -> None:
    """Era II, four slots per request (no overlap), draft KV as DFLASH's, whole windows for every node."""
    run = config(
        "0.5.15", speculative=DFLASH | {"algorithm": "DDTREE"}, mem_fraction_static=0.80, max_running_requests=4
    )
    run = run.replace({"engine.sizing": "0.5.15", "engine.args": {"speculative-ddtree-budget": budget_nodes}})
    found = budget(run, 94.40, WEIGHTS_GIB + DRAFT_GIB)
    assert figures(found) == expected
    assert found.details["draft_tokens"].point == width
    assert found.details["scratch_per_request_bytes"].point / GIB == pytest.approx(scratch_gib, abs=0.005)
    assert any("in no SGLang release up to 0.5.23" in warning for warning in found.warnings)
    # allocated: a row more, and no shared columns: requests + 1 rows × width × (48 layers × 61,440 B)
    windows = found.terms["scratch_conv"].bytes
    assert windows is not None and windows.point == (expected[2] + 1) * width * 48 * 61_440


@pytest.mark.parametrize(
    ("version", "charged", "own"),
    [
        ("0.5.13", 0, 32_768),  # 8 full layers × 4 KV heads × 512 × 2 B: allocated outside the budget
        ("0.5.16", 147_456 * 32 // 36, 32_768),  # all 32 layers of its config, each as one of the target's 36
        ("0.5.23", 147_456 * 32 // 36, 32_768),
    ],
)
def test_a_standalone_draft_is_charged_by_all_its_layers(version: str, charged: int, own: int) -> None:
    draft = {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3.5-9B"}
    run = config(version, speculative=draft, mem_fraction_static=0.85, max_running_requests=4)
    run = run.replace({"model": "Qwen/Qwen3-8B", "memory.mamba_radix_cache_strategy": "auto"})
    found = budget(run, 94.40, 33.0)
    assert found.details["charged_cell_bytes"].point == 147_456 + charged
    assert found.details["draft_cell_bytes"].point == own


def test_a_frozen_draft_is_charged_and_keeps_nothing() -> None:
    draft = {"algorithm": "FROZEN_KV_MTP", "draft_model_path": "Qwen/Qwen3-8B"}
    widths = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    run = config("0.5.16", speculative=draft | widths, mem_fraction_static=0.85, max_running_requests=4)
    found = budget(run.replace({"model": "meta-llama/Meta-Llama-3.1-8B"}), 94.40, 33.0)
    # the target's 32 layers × 8 heads × 256 × 2 B = 131,072; 36 layers of the draft more
    assert found.details["charged_cell_bytes"].point == 131_072 + 131_072 * 36 // 32
    assert found.details["draft_cell_bytes"].point == 0


@pytest.mark.parametrize(("dtype", "cell"), [(None, 86_016), ("fp8_e4m3", 65_536 + 10_240), ("auto", 86_016)])
def test_the_drafts_kv_has_a_type_of_its_own_from_0_5_18(dtype: str | None, cell: int) -> None:
    run = config("0.5.23", mem_fraction_static=0.85, max_running_requests=4)
    run = run.replace({"engine.args": {"speculative-draft-kv-cache-dtype": dtype}})
    found = budget(run, 94.40, WEIGHTS_GIB + DRAFT_GIB)
    assert found.details["charged_cell_bytes"].point == cell
    assert found.details["draft_cell_bytes"].point == cell - 65_536
    assert not any("kv-cache-dtype" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("model", "version", "own"),
    [
        ("nvidia/Qwen3.8-27B-NVFP4", "0.5.16", 2_048),  # 4 heads × 512 × 1 B: the target's type, as the checkpoint asks
        ("nvidia/Qwen3.8-27B-NVFP4", "0.5.18", 4_096),  # the head is not quantized
        ("nvidia/Qwen3.8-27B-NVFP4", "0.5.23", 4_096),
        ("nvidia/Qwen3.5-122B-A10B-NVFP4", "0.5.23", 2_048),  # 2 heads × 512 × 2 B
    ],
)
def test_a_head_goes_by_its_own_quantization_from_0_5_18(model: str, version: str, own: int) -> None:
    run = config(version, speculative={"algorithm": "NEXTN"}, mem_fraction_static=0.85, max_running_requests=4)
    found = budget(run.replace({"model": model}), 94.40, 30.0)
    assert found.details["draft_cell_bytes"].point == own


# ── SGLang's own code, run without a GPU: 95.6 GiB before, 43 after loading ──────────────────────────────────────────


ORACLE_0_5_23 = {
    (0.9, 0.85, 4): (12, 191_320, 4),
    (0.9, 0.85, 8): (12, 191_320, 4),
    (0.9, 0.90, 4): (14, 247_410, 4),
    (0.9, 0.90, 8): (14, 247_410, 4),
    (0.5, 0.85, 4): (7, 257_540, 2),
    (0.5, 0.85, 8): (7, 257_540, 2),
    (0.5, 0.90, 4): (9, 284_994, 3),
    (0.5, 0.90, 8): (9, 284_994, 3),
}
ORACLE_0_5_12 = {
    (0.5, 0.85, 4): (45, 162_685, 4),
    (0.5, 0.85, 8): (23, 87_517, 5),
    (0.5, 0.90, 4): (56, 202_667, 4),
    (0.5, 0.90, 8): (35, 125_709, 8),
    (0.9, 0.85, 4): (64, 128_680, 4),
    (0.9, 0.85, 8): (34, 67_830, 8),
    (0.9, 0.90, 4): (80, 159_714, 4),
    (0.9, 0.90, 8): (49, 100_653, 8),
}


@pytest.mark.parametrize("case", ORACLE_0_5_23, ids=str)
def test_oracle_0_5_23(case: tuple[float, float, int]) -> None:
    ratio, fraction, requests = case
    run = config(
        "0.5.23",
        env=NO_RESERVE,
        mem_fraction_static=fraction,
        mamba_full_memory_ratio=ratio,
        max_running_requests=requests,
        mamba_radix_cache_strategy="no_buffer",  # three slots per request
        disable_overlap_schedule=True,
    )
    assert figures(budget(run, 95.6, 95.6 - 43)) == ORACLE_0_5_23[case]


@pytest.mark.parametrize("case", ORACLE_0_5_12, ids=str)
def test_oracle_0_5_12(case: tuple[float, float, int]) -> None:
    ratio, fraction, requests = case
    run = config("0.5.12", mem_fraction_static=fraction, mamba_full_memory_ratio=ratio, max_running_requests=requests)
    assert figures(budget(run, 95.6, 95.6 - 43)) == ORACLE_0_5_12[case]


@pytest.mark.parametrize(("requests", "expected"), [(4, (24, 87_061, 4)), (8, (2, 11_893, 0))])
def test_oracle_story(requests: int, expected: tuple[int, int, int]) -> None:
    run = config("0.5.12", mem_fraction_static=0.85, mamba_full_memory_ratio=0.5, max_running_requests=requests)
    assert figures(budget(run, 95.6, 95.6 - 33.93111)) == expected


def test_a_live_server_without_a_gpu() -> None:
    """0.5.23 on a CPU with the 27B geometry, told 95.6 and 33.93111 GiB: 4 slots, 234,067 tokens, 1 request."""
    run = config(
        "0.5.23",
        env=NO_RESERVE,  # its copy of the model has no vision tower
        speculative={"algorithm": "NEXTN", "num_steps": 15, "eagle_topk": 1, "num_draft_tokens": 16},
        mem_fraction_static=0.85,
        mamba_full_memory_ratio=0.5,
        max_running_requests=4,
        context_length=4096,
        mamba_radix_cache_strategy="no_buffer",
        disable_overlap_schedule=True,
    )
    assert figures(budget(run, 95.6, 95.6 - 33.93111)) == (4, 234_067, 1)


# ── variants ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_0_5_6_gives_every_slot_its_own_scratch() -> None:
    # 15 GiB × 0.9 / 1.9 = 7.105 GiB; // 153,944,064 B // (1 + 4) = 49 // 5 = 9 slots, each with four states of scratch
    run = config(
        "0.5.6.post2",
        speculative=NEXTN,
        mem_fraction_static=0.75,
        max_running_requests=8,
        mamba_radix_cache_strategy="auto",
    )
    found = budget(run, 80.0, 0.75 * 80.0 - 15.0)
    # (15 GiB - 9 × 5 × 153,944,064 B) // 65,536 B = (16,106,127,360 - 6,927,482,880) // 65,536
    # = 140,055; and 3 requests × (3 steps × 1 + 4 verified) + 100 = 121 beyond what fits
    assert figures(found) == (9, 140_176, 3)
    scratch = found.terms["scratch_ssm"].bytes
    assert scratch is not None and scratch.point == (9 + 1) * 4 * 150_994_944


def test_explicit_slots_and_their_dp_share() -> None:
    for version in ("0.5.12", "0.5.16", "0.5.23"):
        run = config(version, mem_fraction_static=0.85, max_running_requests=2, max_mamba_cache_size=11)
        slots, _, requests = figures(budget(run, 94.40, WEIGHTS_GIB))
        assert (slots, requests) == (11, 2), version


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_without_a_radix_cache_there_is_a_slot_per_request(version: str) -> None:
    run = config(
        version,
        mem_fraction_static=0.85,
        max_running_requests=3,
        disable_radix_cache=True,
        mamba_radix_cache_strategy="auto",
    )
    slots, _, requests = figures(budget(run, 94.40, WEIGHTS_GIB))
    assert (slots, requests) == (3, 3)


def test_radix_off_without_a_limit_is_512_slots_in_0_5_8() -> None:
    run = config(
        "0.5.8",
        speculative={"algorithm": "none"},
        mem_fraction_static=0.95,
        disable_radix_cache=True,
        mamba_radix_cache_strategy="auto",
        mamba_ssm_dtype="bfloat16",
    )
    assert figures(budget(run, 139.0, 51.05))[0] == 512
    later = config(
        "0.5.9",
        speculative={"algorithm": "none"},
        mem_fraction_static=0.95,
        disable_radix_cache=True,
        mamba_radix_cache_strategy="auto",
        mamba_ssm_dtype="bfloat16",
    )
    # from the ratio: (0.95 × 139 - 51.05) × 0.9 / 1.9 = 38.37 GiB // 78,446,592 B
    assert figures(budget(later, 139.0, 51.05))[0] == 525


def test_pages_and_the_users_limit() -> None:
    base = config("0.5.16", mem_fraction_static=0.85, max_running_requests=1, page_size=64)
    tokens = figures(budget(base, 94.40, WEIGHTS_GIB))[1]
    assert tokens is not None and tokens % 64 == 0
    limited = base.replace({"memory.max_total_tokens": 100_000})
    assert figures(budget(limited, 94.40, WEIGHTS_GIB))[1] == 99_968  # 1,562 pages of 64
    above = base.replace({"memory.max_total_tokens": 10_000_000})
    assert figures(budget(above, 94.40, WEIGHTS_GIB))[1] == tokens


def test_fp8_kv_doubles_the_tokens() -> None:
    base = config("0.5.16", mem_fraction_static=0.85, max_running_requests=1)
    plain = budget(base, 94.40, WEIGHTS_GIB)
    narrow = budget(base.replace({"memory.kv_cache_dtype": "fp8_e4m3"}), 94.40, WEIGHTS_GIB)
    assert narrow.details["charged_cell_bytes"].point == CELL // 2
    wide_tokens, narrow_tokens = figures(plain)[1], figures(narrow)[1]
    assert wide_tokens is not None and narrow_tokens in (2 * wide_tokens, 2 * wide_tokens + 1)


def test_attention_dp_shares_requests_and_splits_less() -> None:
    """TP4 with four attention ranks: each has the whole state of one GPU, and a fourth of the requests."""
    run = RunConfig.model_validate(
        config("0.5.16", tp=4, speculative=NEXTN, mem_fraction_static=0.85, max_running_requests=8).to_sections()
        | {"parallel": {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}}
    )
    found = budget(run, 94.40, WEIGHTS_GIB)
    assert found.details["slot_bytes"].point == SLOT
    assert figures(found)[2] == 2


def test_pipeline_stages_hold_their_own_layers() -> None:
    """Two stages of the 27B: 24 linear and 8 full-attention layers each. Only from 0.5.17 is less state charged."""
    for version, charged in (("0.5.16", SLOT), ("0.5.17", SLOT // 2), ("0.5.23", SLOT // 2)):
        run = RunConfig.model_validate(
            config(version, speculative={"algorithm": "none"}, mem_fraction_static=0.85).to_sections()
            | {"parallel": {"pp_size": 2}}
        )
        found = budget(run, 94.40, WEIGHTS_GIB / 2)
        assert found.details["slot_bytes"].point == charged
        assert found.details["cell_bytes"].point == 32_768
        assert found.details["slot_ssm_bytes"].point == 24 * 3_145_728


def test_more_stages_than_layers_leave_some_empty() -> None:
    six = load_model("Qwen/Qwen3.6-27B").layers[:6]
    assert [len(stage) for stage in stage_layers(six, 4)] == [1, 1, 2, 2]
    assert [len(stage) for stage in stage_layers(six, 2**31 - 1)] == [1] * 6
    assert stage_layers((), 3) == [()]


def test_a_model_without_state_has_tokens_only() -> None:
    run = config("0.5.16", speculative={"algorithm": "none"}, mem_fraction_static=0.85, max_running_requests=64)
    found = budget(run.replace({"model": "Qwen/Qwen3-8B"}), 94.40, 15.28)
    slots, tokens, requests = figures(found)
    # (0.85 × 94.40 - 15.28) GiB // 147,456 B
    assert (slots, requests) == (None, 64)
    assert tokens == int((0.85 * 94.40 - 15.28) * GIB) // 147_456
    assert found.verdict == "serves"


def test_a_model_without_full_attention_has_no_kv_to_size(tmp_path: Path) -> None:
    data = json.loads((load_model("Qwen/Qwen3.6-27B").folder / "config.json").read_text("utf-8"))
    data["text_config"]["layer_types"] = ["linear_attention"] * 64
    (tmp_path / "config.json").write_text(json.dumps(data), encoding="utf-8")
    run = config("0.5.16", speculative={"algorithm": "none"}, mem_fraction_static=0.85)
    with pytest.raises(SpecError, match="has no full-attention layer, so there is no KV pool to size"):
        budget(run.replace({"model": str(tmp_path)}), 94.40, WEIGHTS_GIB)


def test_the_image_reserve_and_its_variable() -> None:
    """0.5.18 keeps 100 MiB back: with a fixed number of slots, 1,600 tokens of 65,536 B."""
    keep = config("0.5.23", speculative={"algorithm": "none"}, mem_fraction_static=0.8, max_mamba_cache_size=20)
    none = config(
        "0.5.23", speculative={"algorithm": "none"}, env=NO_RESERVE, mem_fraction_static=0.8, max_mamba_cache_size=20
    )
    kept, whole = figures(budget(keep, 94.40, WEIGHTS_GIB))[1], figures(budget(none, 94.40, WEIGHTS_GIB))[1]
    assert kept is not None and whole is not None
    assert whole - kept == 1600  # 100 × 2^20 / 65,536
    wrong = config("0.5.23", env={"SGLANG_VLM_CACHE_SIZE_MB": "much"}, mem_fraction_static=0.8)
    with pytest.raises(ConfigError, match="SGLANG_VLM_CACHE_SIZE_MB: got 'much'"):
        budget(wrong, 94.40, WEIGHTS_GIB)


# ── choosing the rule ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("0.5.6.post2", "0.5.6.post2"),
        ("0.5.6.post1", "0.5.6"),
        ("0.5.7", "0.5.7"),
        ("0.5.9", "0.5.9"),
        ("0.5.12.post1", "0.5.12"),
        ("0.5.15.post1", "0.5.15"),
        ("0.5.17", "0.5.17"),
        ("0.5.16.post1", "0.5.16"),
        ("0.5.21", "0.5.21"),
        ("0.6.0", "0.5.23"),
    ],
)
def test_the_nearest_earlier_rule_applies(version: str, rule: str) -> None:
    assert rule_for(version).version == rule


def test_versions_that_were_not_read_say_so() -> None:
    assert caveat("0.5.12") is None
    assert caveat("0.5.15") is None
    assert caveat("0.5.12.post1") is None
    assert caveat("0.5.16.post1") == (
        "sglang 0.5.16.post1: its sizing was not read; the sizing rules of 0.5.16 are assumed."
    )
    assert caveat("0.6.1") == (
        "sglang 0.6.1 is later than any whose sizing was read; the sizing rules of 0.5.23 are assumed."
    )


def test_versions_before_the_first_rule_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.5\.5 is older than any sizing rule"):
        rule_for("0.5.5")


def test_a_development_build_names_its_rule() -> None:
    engine = config("0.5.12").engine
    with pytest.raises(ConfigError, match=r"engine\.sizing"):
        rule_version(engine.model_copy(update={"version": "0.0.0.dev1+g977830e91"}))
    build = engine.model_copy(update={"version": "0.0.0.dev1+g977830e91", "sizing": "0.5.12"})
    assert rule_version(build) == "0.5.12"


def test_the_budget_of_a_development_build_names_both() -> None:
    run = config("0.5.12", mem_fraction_static=0.75, mamba_full_memory_ratio=0.5, max_running_requests=4)
    build = RunConfig.model_validate(
        run.to_sections() | {"engine": {"version": "0.0.0.dev1+g977830e91", "sizing": "0.5.12"}}
    )
    found = budget(build, 94.40, WEIGHTS_GIB)
    assert figures(found) == (24, 87_061, 4)
    assert found.version == "0.0.0.dev1+g977830e91"
    assert found.rule == "sglang 0.5.12"
    assert "is sized by the rules of 0.5.12" in found.warnings[0]


def test_every_rule_is_complete() -> None:
    model = load_model("Qwen/Qwen3.6-27B")
    for version, rule in RULES.items():
        assert rule.version == version
        case = config(
            version, speculative={"algorithm": "none"}, mem_fraction_static=0.8, mamba_radix_cache_strategy="auto"
        )
        found = predict(case, model, pre_bytes=Interval.exact(100 * GIB), post_bytes=Interval.exact(48 * GIB))
        assert found.verdict == "serves"
        assert found.rule == f"sglang {version}"
        assert found.rule_words.startswith(f"the rules of SGLang {version}: ") and "era" not in found.rule_words.split()


@pytest.mark.parametrize(
    ("version", "context", "verdict", "input_tokens"),
    [
        # up to 0.5.13 a worker asserts min(context, tokens) - 6 > 0, from 0.5.14 on min(context, tokens) - 1 > 0
        ("0.5.13", 6, "refused", None),
        ("0.5.13", 7, "serves", 1),
        ("0.5.14", 1, "refused", None),
        ("0.5.14", 6, "serves", 0),
        ("0.5.14", 8, "serves", 2),
    ],
)
def test_a_context_without_room_for_an_input(
    version: str, context: int, verdict: str, input_tokens: int | None
) -> None:
    found = predict(config(version, speculative={}, context_length=context, max_running_requests=4))
    value = found.limits["max_input_tokens"].value
    assert (found.verdict, None if value is None else value.point) == (verdict, input_tokens)
    told = [text for text in found.warnings if "takes no request" in text]
    assert len(told) == (input_tokens is not None and input_tokens < 2)  # an input is shorter than the limit
    if verdict == "refused":
        assert found.engine_error == "AssertionError: Memory pool size is too small"
        assert found.reason == f"A context of {context} token{'' if context == 1 else 's'} has no room for any request."


def test_slot_steps_are_looked_for_among_figures_that_no_card_has() -> None:
    """Above 2**22 GiB neighbouring numbers are more than half a byte apart: the search has to end all the same."""
    demand = Demand(
        slot_bytes=SLOT,
        cell_bytes=CELL,
        draft_tokens=0,
        slots_per_request=3,
        requests=8,
        attention_dp=1,
        explicit_slots=None,
        radix=True,
        ratio=0.9,
        max_total_tokens=None,
        page_size=1,
        context_len=4096,
    )
    found = span(rule_for("0.5.23"), demand, -1.7e10, -1.6e10, -1.6e10)
    assert {solved.pools.refusal for solved in found.all} == {"no_state"}
    assert len(span(rule_for("0.5.23"), demand, 1e19, 1e20, 1e20).all) > 3  # more steps than 64 bits count


def test_fewer_than_no_slots_are_no_pools() -> None:
    """0.5.8 rounds down: -0.1 GiB and a ratio of 100 make -1 slot of 0.143 GiB, and 0.043 GiB are left for KV."""
    demand = Demand(
        slot_bytes=SLOT,
        cell_bytes=CELL,
        draft_tokens=0,
        slots_per_request=3,
        requests=None,
        attention_dp=1,
        explicit_slots=None,
        radix=True,
        ratio=100.0,
        max_total_tokens=None,
        page_size=1,
        context_len=4096,
    )
    found = solve(rule_for("0.5.8"), demand, -0.1)
    assert (found.slots, found.tokens, found.allocated) == (-1, 541, False)  # (153,944,064 - 107,374,182.4) // 86,016
