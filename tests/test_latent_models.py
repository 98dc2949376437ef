"""Families with latent attention, KDA or lightning attention: bytes at higher TP, public logs, weights, versions.

Figures of logs are GiB to two decimals ("GB" there), tokens and slots are exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.budget.case import over
from specbench.budget.predict import predict, solved
from specbench.configuration.config import RunConfig
from specbench.engines.sglang import faults
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.demand import units
from specbench.engines.sglang.resolve import Settings, settings
from specbench.engines.sglang.sizing.allocation import allocate, scratch_conv_per_row
from specbench.engines.sglang.sizing.cell import Cell
from specbench.engines.sglang.sizing.contract import Pools
from specbench.errors import ConfigError
from specbench.layers import LatentAttention
from specbench.specs import ModelSpec, load_model
from specbench.units import GIB, MIB, Interval

KIMI, LING_TINY, SALA = (
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "inclusionAI/Ling-3.0-tiny",
    "openbmb/MiniCPM-SALA",
)
V3, V32, GLM5, GLM53 = ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5", "zai-org/GLM-5.3")
LING, RING = "inclusionAI/Ling-3.0-flash", "inclusionAI/Ring-2.5-1T"
K3, GLM_FLASH, FLASH_NEXT = "moonshotai/Kimi-K3", "zai-org/GLM-5.3-Flash", "Qwen/Qwen3.8-Flash-Next"
NEXTN = {"algorithm": "NEXTN", "num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 2}


def config(
    model: str,
    version: str,
    *,
    tp: int = 1,
    gpu: str = "h200",
    speculative: Any = None,
    args: Any = None,
    **memory: Any,
) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "family",
            "engine": {"version": version, "args": args or {}},
            "model": model,
            "gpu": {"name": gpu, "count": 16},
            "parallel": {"tp_size": tp},
            "speculative": speculative or {"algorithm": "none"},
            "memory": {"mem_fraction_static": 0.8, **memory},
        }
    )


def resolved(model: str, version: str, **more: Any) -> Settings:
    return settings(config(model, version, **more))


def cell(model: str, version: str, **more: Any) -> Cell:
    return units(resolved(model, version, **more))[1]


def window(model: ModelSpec, tp: int) -> int:
    return sum(layer.conv_bytes(tp, 2) for layer in model.state_layers)


def state(model: ModelSpec, tp: int, itemsize: int = 4) -> int:
    return sum(layer.ssm_bytes(tp, itemsize) for layer in model.state_layers)


def token(model: ModelSpec, tp: int, itemsize: int = 2) -> int:
    return sum(layer.bytes_per_token(tp, itemsize) for layer in model.attention_layers)


def gib(count: float) -> float:
    """As a log prints it."""
    return round(count / GIB, 2)


# ── bytes on one of several ranks ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "tp", "per_token", "windows", "states"),
    [
        (KIMI, 2, 8064, 20 * 36864, 20 * MIB),  # 16 heads × 64 KiB
        (KIMI, 8, 8064, 20 * 9216, 20 * MIB // 4),
        (LING_TINY, 8, 6912, 18 * 4608, 18 * 131072),  # 2 heads × 64 KiB
        (SALA, 2, 4096, 0, 24 * MIB),  # one of 2 KV heads × 512 B × 8 layers
        (SALA, 4, 4096, 0, 12 * MIB),  # a KV head for two ranks
        (V3, 16, 70272, 0, 0),
        (K3, 8, 27648, 69 * 27648, 69 * 786432),  # 12 heads × 64 KiB
        (K3, 16, 27648, 69 * 13824, 69 * 393216),
        (GLM_FLASH, 4, 11627, 34 * 36864, 34 * MIB),
        (GLM_FLASH, 2, 11627, 34 * 73728, 68 * MIB),
        (LING, 4, 8064, 35 * 18432, 35 * MIB // 2),
        (RING, 8, 11520, 0, 70 * MIB // 2),
        # a KV head on each of two ranks, the index key whole: 12 × (1,024 + 64)
        (FLASH_NEXT, 2, 13056, 36 * 30720, 54 * MIB),
        (FLASH_NEXT, 8, 13056, 36 * 7680, 27 * MIB // 2),
    ],
)
def test_bytes_on_one_of_several_ranks(name: str, tp: int, per_token: int, windows: int, states: int) -> None:
    model = load_model(name)
    assert (token(model, tp), window(model, tp), state(model, tp)) == (per_token, windows, states)


@pytest.mark.parametrize(
    ("name", "tp", "reason", "sizes"),
    [
        (KIMI, 3, "KDA heads of moonshotai/Kimi-Linear-48B-A3B-Instruct .32. do not divide over 3", "1, 2, 4, 8, 16"),
        (V3, 3, "attention heads of deepseek-ai/DeepSeek-V3 .128. do not divide over 3", "1, 2, 4, 8, 16"),
        (LING_TINY, 5, "KDA heads of inclusionAI/Ling-3.0-tiny .16.", "1, 2, 4, 8, 16"),
        (SALA, 3, "KV heads of openbmb/MiniCPM-SALA .2.", "1, 2, 4, 8, 16"),
        (RING, 16, "norm groups of linear attention of inclusionAI/Ring-2.5-1T .8.", "1, 2, 4, 8"),
        (K3, 5, "KDA heads of moonshotai/Kimi-K3 .96.", "1, 2, 3, 4, 6, 8, 12, 16"),
        (FLASH_NEXT, 3, "linear key heads of Qwen/Qwen3.8-Flash-Next .16.", "1, 2, 4, 8"),
    ],
)
def test_heads_that_do_not_divide_are_refused(name: str, tp: int, reason: str, sizes: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        resolved(name, "0.5.23", tp=tp)
    assert str(caught.value).endswith(f"Sizes that work: {sizes} (of 1 to 16).")


# ── public logs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_kimi_linear_state_and_weights() -> None:
    """Two ranks, '... ssm_state size: 32.81GB', 45.84 GB of weights each: 1,679 slots and a padding one, of 20 MiB."""
    model = load_model(KIMI)
    assert gib(1680 * state(model, 2)) == 32.81
    assert gib(1679 * state(model, 2)) != 32.81 != gib(1681 * state(model, 2))
    weights = model.weights_bytes(2)
    assert weights is not None and weights.low < 45.84 * GIB < weights.high


def test_a_server_of_ling_3_tiny() -> None:
    """614 slots: 0.38GB and 10.81GB; 1,933,682 tokens: 12.45 GB, one size for all of MLA.

    The tokens are no multiple of the page of 64 that was asked: without extra buffers (the version had none for this
    architecture) a page is one token.
    """
    model = load_model(LING_TINY)
    assert (gib(615 * window(model, 1)), gib(615 * state(model, 1))) == (0.38, 10.81)
    assert gib(1_933_682 * token(model, 1)) == 12.45  # no multiple of 64


def test_weights_of_ling_3_tiny_lack_what_an_integrated_card_counts() -> None:
    """15.47 GB logged; the tensors in bf16 are 14.8, with the head in float32 that the version then had 15.26.

    The card shares the host's memory (113 GiB), of which the engine logs what is free: the rest, 1.4 %, is the host's.
    """
    model = load_model(LING_TINY)
    weights = model.weights_bytes(1)
    assert weights is not None and gib(weights.point) == 14.8
    more = 157_184 * 1_536 * 2  # two bytes more for each number of the head
    assert 0.985 < (weights.point + more) / (15.47 * GIB) < 1


def test_a_server_of_minicpm_sala() -> None:
    """20 slots without a prefix cache: 0.00GB, 0.98GB; 6,612,763 tokens: K 25.23 GB, V 25.23 GB; weights 17.99 GB."""
    model = load_model(SALA)
    assert (window(model, 1), gib(21 * state(model, 1))) == (0, 0.98)
    assert gib(6_612_763 * token(model, 1) / 2) == 25.23
    weights = model.weights_bytes(1)
    assert weights is not None and abs(weights.point / (17.99 * GIB) - 1) < 0.01
    assert sum(getattr(part, "parameters", 0) for part in model.family.tensors(model.config, 1)) * 2 // MIB == 18076


def test_eight_ranks_of_a_deepseek_v3() -> None:
    """2,659,072 tokens of fp8: 87.01 GB on every rank, in pages of 64."""
    # 2,659,072 = 41,548 × 64, and one page beside them
    assert gib((2_659_072 + 64) * token(load_model(V3), 8, 1)) == 87.01


def test_a_server_of_ling_3_flash() -> None:
    """117 slots: 0.28GB and 8.07GB; 1,226,984 tokens: 9.21 GB. So one rank, or two of a model with 64 heads."""
    model = load_model(LING)
    assert (gib(118 * window(model, 1)), gib(118 * state(model, 1))) == (0.28, 8.07)
    assert gib(1_226_984 * token(model, 1)) == 9.21


def test_eight_ranks_of_a_kimi_k3() -> None:
    """257 slots: 0.46GB and 13.04GB; 1,167,552 tokens of fp8: 15.03 GB; '56.4 MB per slot, 13.8 KB per token'."""
    model = load_model(K3)
    assert (gib(258 * window(model, 8)), gib(258 * state(model, 8))) == (0.46, 13.04)
    assert gib((1_167_552 + 64) * token(model, 8, 1)) == 15.03
    slot = window(model, 8) + state(model, 8)
    assert (slot, token(model, 8, 1)) == (56_171_520, 13_824)
    # the example divides by the 257 slots and forgets the padding one: 56.4 × 10^6 B, worth 4,080 tokens
    each = round(13.50 * GIB / 257 / 1e6, 1)
    assert (each, round(each * 1e6 / 13_824)) == (56.4, 4080)


def left(slots: int, slot: int, tokens: int, cell_bytes: int) -> float:
    """GiB that a pool line accounts for: what the solver had, to one token."""
    return (slots * slot + (tokens + 0.5) * cell_bytes) / GIB


def slots_of(model: str, version: str, left_gib: float, **more: Any) -> int:
    """Slots by the default ratio when so much is left: nothing kept back of 1,000 GiB, so much of them free."""
    case = config(model, version, **{"mem_fraction_static": 0.5, **more})
    post = Interval.exact(round((500 + left_gib) * GIB))
    return solved(case, pre_bytes=Interval.exact(1000 * GIB), post_bytes=post).span.point.pools.slots


@pytest.mark.parametrize(
    ("model", "tp", "slots", "tokens", "page", "era_2", "era_3"),
    [
        # a build with the sizing of 0.5.13 to 0.5.16: the later one, which charges the padding slot, gives one fewer
        (LING, 1, 117, 1_226_984, 1, 117, 116),
        (LING_TINY, 1, 614, 1_933_682, 1, 614, 614),
        (K3, 8, 257, 1_167_552, 64, 257, 257),
        # only with the index keys in the cell: 13,056 B and not 12,288, which gives 94
        (FLASH_NEXT, 2, 97, 484_032, 64, 97, 97),
    ],
)
def test_slots_follow_from_what_the_pools_took(
    model: str, tp: int, slots: int, tokens: int, page: int, era_2: int, era_3: int
) -> None:
    """Slots and tokens of a log give what was left, and that gives the slots again by the default ratio of 0.9."""
    fp8 = {"kv_cache_dtype": "fp8_e4m3"} if model == K3 else {}
    strategy = {"mamba_radix_cache_strategy": "extra_buffer", "page_size": page} if page > 1 else {}
    for version, padding, expected in (("0.5.16", 0, era_2), ("0.5.20", 1, era_3)):
        slot, kv = units(resolved(model, version, tp=tp, **fp8))
        reserve = 100 / 1024 if padding and load_model(model).multimodal else 0.0
        rest = left(slots + padding, slot.charged_bytes, tokens, kv.charged_bytes) + reserve
        assert slots_of(model, version, rest, tp=tp, **fp8, **strategy) == expected


def gib_logged(figure: float, unsure: float = 0.005) -> Interval:
    """A figure to two decimals; what is added up of two is twice as unsure."""
    return Interval(round((figure - unsure) * GIB), round(figure * GIB), round((figure + unsure) * GIB))


@pytest.mark.parametrize(("version", "fits"), [("0.5.10", True), ("0.5.16", True), ("0.5.20", False)])
def test_tokens_of_minicpm_sala_on_the_measured_basis(version: str, fits: bool) -> None:
    """64.60 GB free of 82.59 (with 17.99 of weights), fraction 0.84, 20 requests without a prefix cache: 6,612,763.

    The build is a fork of a version before 0.5.18, by which a slot more is charged: 48 MiB are 6,144 tokens.
    """
    case = config(SALA, version, mem_fraction_static=0.84, max_running_requests=20, disable_radix_cache=True)
    found = solved(case, pre_bytes=gib_logged(82.59, 0.01), post_bytes=gib_logged(64.60))
    assert found.span.point.pools.slots == 20
    tokens = over(found, lambda pools: pools.tokens)
    assert tokens is not None
    assert (tokens.low <= 6_612_763 <= tokens.high) == fits
    assert abs(tokens.point - 6_612_763) < 500 or not fits


def test_tokens_of_a_deepseek_v3_on_the_measured_basis() -> None:
    """Eight ranks, fraction 0.9: 143.07 GB before the weights, 101.33 after on the rank with least (101.35 is logged
    of one whose pool leaves 0.02 more): 2,659,072 tokens."""
    case = config(V3, "0.5.12", tp=8, mem_fraction_static=0.9, kv_cache_dtype="fp8_e4m3", page_size=64)
    budget = predict(case, pre_bytes=gib_logged(143.07, 0.01), post_bytes=gib_logged(101.33, 0.01))
    found = budget.limits["kv_tokens"].value
    assert found is not None and found.low <= 2_659_072 <= found.high
    assert found.high - found.low < 800


@pytest.mark.parametrize(("requests", "slots"), [(None, 69), (4, 69), (200, 69)])
def test_a_ratio_gives_slots_whatever_concurrency_is_asked(requests: int | None, slots: int) -> None:
    """Kimi-K3 on 16 ranks: what a report complains of. Of 3.9 GiB 0.9 / 1.9 are 1.85: 69 slots of 26.8 MiB and a
    padding one."""
    case = config(
        K3,
        "0.5.23",
        tp=16,
        gpu="h20",
        max_running_requests=requests,
        mem_fraction_static=0.5,
        mamba_full_memory_ratio=0.9,
        kv_cache_dtype="fp8_e4m3",
    )
    # 4 GiB left: 8 GiB free before loading, 8 after, half of the former kept back; 100 MiB for images
    budget = predict(case, pre_bytes=Interval.exact(8 * GIB), post_bytes=Interval.exact(8 * GIB))
    found = budget.limits["state_slots"].value
    assert found is not None and found.point == slots


def test_usage_of_a_glm_5_3_flash_pool_is_in_28ths() -> None:
    """28 slots on two ranks, 'mamba usage' 0.29, 0.43, 0.89: 8, 12 and 25 of them. The next admission asks for more
    than the 3 that are free: with extra buffers a request takes several."""
    assert [round(used / 28, 2) for used in (8, 12, 25)] == [0.29, 0.43, 0.89]
    found = resolved(GLM_FLASH, "0.5.23", tp=2, max_mamba_cache_size=28, max_running_requests=4)
    assert (found.slots_per_request, found.page_size, 28 // found.slots_per_request) == (5, 256, 5)


# ── Qwen3.8-Flash-Next ───────────────────────────────────────────────────────────────────────────────────────────────


def test_two_ranks_of_a_flash_next() -> None:
    """97 slots: 0.10GB and 5.17GB; 484,032 tokens, pages of 64: K 2.77 GB, V 2.77 GB (the index is in neither)."""
    model = load_model(FLASH_NEXT)
    assert (gib(98 * window(model, 2)), gib(98 * state(model, 2))) == (0.1, 5.17)
    assert gib((484_032 + 64) * 12 * 256 * 2) == 2.77
    assert 484_032 % 64 == 0 and resolved(FLASH_NEXT, "0.5.20").page_size == 64


def test_a_flash_next_with_its_head() -> None:
    """48 slots of bf16 state: 0.10GB and 2.58GB; scratch of 4 requests and 4 tokens: 1.05GB, 0.02GB; 240,128 tokens
    of fp8: K 1.37 GB."""
    model = load_model(FLASH_NEXT)
    assert (gib(49 * window(model, 1)), gib(49 * state(model, 1, 2))) == (0.1, 2.58)
    assert gib(5 * 4 * state(model, 1, 2)) == 1.05
    shared = sum(layer.conv_bytes_overlapping(1, 2, 4) for layer in model.state_layers)
    assert shared == 36 * 10240 * 6 * 2 and gib(5 * shared) == 0.02
    assert gib((240_128 + 64) * 12 * 2 * 256) == 1.37


def test_24_slots_of_bf16_and_a_head_in_fp8() -> None:
    """'831,872 KV tokens in 10.3 GiB, 24 slots in 1.4 GiB': keys and values of 12 layers and of the head's one."""
    model = load_model(FLASH_NEXT)
    assert round(25 * (window(model, 1) + state(model, 1, 2)) / GIB, 1) == 1.4
    assert round(831_872 * 13 * 2 * 512 / GIB, 1) == 10.3


def test_three_uneven_ranks_take_the_cell_of_0_5_20() -> None:
    """'cell_size=14143' of fp8: (12 × (2 heads × 512 + 64)) × (1 + 1 / 12), a float a fraction short of 14,144.

    The ranks hold a third of the tokens each and both KV heads (31,229 tokens: K 0.18 GB), the draft all tokens and
    one head (90,816: K 0.02 GB): a fork's way to split, of which no release knows.
    """
    found = cell(FLASH_NEXT, "0.5.20", speculative=NEXTN, kv_cache_dtype="fp8_e4m3")
    assert found.charged_bytes == 14143
    assert cell(FLASH_NEXT, "0.5.23", speculative=NEXTN, kv_cache_dtype="fp8_e4m3").charged_bytes == 14144
    assert (gib(31_229 * 12 * 512), gib(28_390 * 12 * 512), gib(90_816 * 256)) == (0.18, 0.16, 0.02)
    for left, tokens in ((5_074_821_120, 358_784), (4_659_785_728, 329_472)):
        assert left // found.charged_bytes // 64 * 64 == tokens


@pytest.mark.parametrize(("slots", "served"), [(40, 8), (2, 0)])
def test_a_flash_next_takes_five_slots_for_a_request(slots: int, served: int) -> None:
    """40 slots serve 8 requests, each of which holds 4; 2 slots serve none: the fork ended there."""
    found = resolved(FLASH_NEXT, "0.5.20", speculative=NEXTN)
    assert (found.strategy, found.slots_per_request) == ("extra_buffer", 5)
    assert slots // found.slots_per_request == served
    assert [round(4 * running / 40, 2) for running in (1, 2, 4, 8)] == [0.1, 0.2, 0.4, 0.8]


def test_the_side_state_is_allocated_and_not_charged() -> None:
    """184,336 B a slot: 4 streams × 2,560 × 9 columns × 2 B, and the last two tokens of 8 B."""
    model = load_model(FLASH_NEXT)
    assert model.side_state is not None and model.side_state.bytes(2) == 184_336
    found = resolved(FLASH_NEXT, "0.5.23", speculative=NEXTN, max_running_requests=4, max_mamba_cache_size=48)
    slot, kv = units(found)
    assert slot.charged_bytes == 115_458_048
    pools = Pools(
        slots=48, scratch_charged_bytes=0, tokens=64_000, requests=4, left_gib=1.0, refusal=None, allocated=True
    )
    assert allocate(found, slot, kv, pools).side_state_bytes == (49 + 2 * 5) * 184_336
    assert load_model("Qwen/Qwen3.6-27B").side_state is None


@pytest.mark.parametrize(
    ("version", "kept", "page"), [("0.5.21", 11 * (1024 + 132), 64), ("0.5.22", 11 * 1057, 256), ("0.5.23", 11627, 256)]
)
def test_pooled_index_keys_from_0_5_22(version: str, kept: int, page: int) -> None:
    found = cell(GLM_FLASH, version)
    assert (found.target_bytes, found.charged_bytes) == (kept, kept)
    assert resolved(GLM_FLASH, version).page_size == page


@pytest.mark.parametrize("name", [K3, GLM_FLASH])
def test_weights_that_are_not_modelled_are_said_to_be_that(name: str) -> None:
    model = load_model(name)
    assert model.weights_bytes(8) is None
    assert "are not modelled" in model.why_no_weights


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *[(KIMI, 49.12), (LING_TINY, 7.89), (SALA, 9.48), (V3, 671.03), (GLM5, 743.91)],
        *[("deepseek-ai/DeepSeek-V2", 235.74), ("moonshotai/Kimi-K2-Instruct", 1026.41)],
        *[(LING, 124.41), (RING, 1012.23), (FLASH_NEXT, 126.19)],
    ],
)
def test_parameters(name: str, billions: float) -> None:
    """As published: 48B, 8B, 9B, 671B, 744B, 236B, 1.03T, 124B, 1012.5B; 125B without the vision tower."""
    model = load_model(name)
    found = sum(getattr(part, "parameters", 0) for part in model.family.tensors(model.config, 1))
    assert round(found / 1e9, 2) == billions


def test_the_copies_of_the_up_projection_are_weights_too() -> None:
    # w_kc and w_vc: 7 layers × 32 heads × (128 + 128) × 512 × 2 B, twice what is in kv_b_proj already
    model = load_model(KIMI)
    copies = [part for part in model.family.tensors(model.config, 1) if getattr(part, "parameters", 1) == 0]
    assert sum(part.bytes for part in copies) == 7 * 32 * 256 * 512 * 2
    assert len(copies) == 14


# ── what versions do ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "gpu", "args", "kept", "charged"),
    [
        # fp8: 656 B of scaled latent + 132 of index, the solver counts 576 + 132 up to 0.5.16
        ("0.5.12", "h200", {}, 61 * 788, 61 * 708),
        ("0.5.16", "h200", {}, 61 * 788, 61 * 708),
        ("0.5.17", "h200", {}, 61 * 788, 61 * 788),
        ("0.5.18", "h200", {}, 61 * 788, 61 * 788),
        ("0.5.23", "h200", {}, 61 * 788, 61 * 788),
        # kernels that read bare fp8: asked for, or the default on Blackwell from 0.5.10
        ("0.5.23", "h200", {"dsa-decode-backend": "trtllm"}, 61 * 708, 61 * 708),
        ("0.5.23", "b200", {}, 61 * 708, 61 * 708),
        ("0.5.8", "b200", {}, 61 * 788, 61 * 708),
    ],
)
def test_fp8_of_sparse_latent_attention(version: str, gpu: str, args: dict[str, str], kept: int, charged: int) -> None:
    found = cell(V32, version, gpu=gpu, args=args, kv_cache_dtype="fp8_e4m3")
    assert (found.target_bytes, found.charged_bytes) == (kept, charged)


@pytest.mark.parametrize(("gpu", "itemsize"), [("h200", 2), ("b200", 1), ("rtx-pro-6000", 1)])
def test_sparse_latent_attention_takes_fp8_on_blackwell(gpu: str, itemsize: int) -> None:
    found = resolved(V32, "0.5.23", gpu=gpu, page_size=1)
    assert (found.kv_itemsize, found.page_size) == (itemsize, 64)
    assert resolved(V3, "0.5.23", gpu=gpu).kv_itemsize == 2


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.5.12", 78 * 1284), ("0.5.16", 78 * 1284), ("0.5.17", 78 * 1284), ("0.5.18", 92628), ("0.5.23", 92628)],
)
def test_shared_indices_take_no_memory_from_0_5_18(version: str, expected: int) -> None:
    found = cell(GLM53, version)
    assert (found.target_bytes, found.charged_bytes) == (expected, expected)


@pytest.mark.parametrize(
    ("name", "version", "draft"),
    [
        (V3, "0.5.12", 0),  # outside the budget
        (V3, "0.5.14", 1152),  # the engine gives itself the target's path
        (V3, "0.5.23", 1152),
        (V32, "0.5.16", 1284),  # int(78,324 × 62 / 61) - 78,324
        (V32, "0.5.23", 1284),  # 70,272 / 61 + 132
        # the head's indexer is its own: int(89,856 / 78) + 132, where 0.5.16 takes 100,152 / 78
        (GLM53, "0.5.16", 1284),
        (GLM53, "0.5.18", 1284),
        (GLM53, "0.5.23", 1284),
    ],
)
def test_the_head_of_the_target_is_charged(name: str, version: str, draft: int) -> None:
    found = cell(name, version, speculative=NEXTN)
    assert found.draft_charged_bytes == draft
    assert found.draft_bytes == (1152 if name == V3 else 1284)


def test_a_scaled_cell_rounds_as_its_version_does() -> None:
    """Up to 0.5.21 int(c × (1 + d / n)): 70,272 × 1.0163934 is a fraction short of 71,424."""
    assert cell(V3, "0.5.21", speculative=NEXTN).charged_bytes == int(70272 * (1 + 1 / 61))
    assert cell(V3, "0.5.22", speculative=NEXTN).charged_bytes == 71424


@pytest.mark.parametrize(
    ("name", "version", "strategy", "slots"),
    [
        (KIMI, "0.5.12", None, 1),  # "not yet supported": the engine turns the prefix cache off
        (RING, "0.5.12", None, 1),
        (RING, "0.5.13", "no_buffer", 3),
        (RING, "0.5.14", "extra_buffer", 5),
        (KIMI, "0.5.15", "no_buffer", 3),  # not on the list of 0.5.14 and 0.5.15
        (KIMI, "0.5.16", "extra_buffer", 5),
        (LING_TINY, "0.5.19", "extra_buffer", 5),
        (SALA, "0.5.19", None, 1),  # the engine turns the prefix cache off
    ],
)
def test_auto_depends_on_the_architecture(name: str, version: str, strategy: str | None, slots: int) -> None:
    found = resolved(name, version)
    assert (found.strategy, found.slots_per_request) == (strategy, slots)
    assert found.radix == (strategy is not None)


@pytest.mark.parametrize(
    ("name", "version", "speculative", "strategy", "allowed"),
    [
        (KIMI, "0.5.12", {"algorithm": "NGRAM"}, "extra_buffer", True),  # without a prefix cache it does not matter
        (KIMI, "0.5.14", {"algorithm": "none"}, "extra_buffer", False),
        (KIMI, "0.5.16", {"algorithm": "none"}, "extra_buffer", True),
        (KIMI, "0.5.12", {"algorithm": "NGRAM"}, "auto", True),
        (KIMI, "0.5.23", {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}, "auto", True),
        (KIMI, "0.5.16", {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}, "auto", False),
        (LING, "0.5.20", NEXTN, "auto", True),
        (SALA, "0.5.23", NEXTN, "auto", False),  # hands no embedding to a draft
    ],
)
def test_strategies_and_drafts_that_a_version_refuses(
    name: str, version: str, speculative: dict[str, Any], strategy: str, allowed: bool
) -> None:
    case = config(name, version, speculative=speculative, mamba_radix_cache_strategy=strategy)
    found = [refusal.reason for refusal in check(case) if not refusal.tolerated]
    fault = faults.of(settings(case))
    assert (not found and fault is None) == allowed, (found, fault)


def test_without_extra_buffers_a_page_is_one_token() -> None:
    assert resolved(KIMI, "0.5.15", page_size=64).page_size == 1
    assert resolved(KIMI, "0.5.16", page_size=64).page_size == 64
    assert resolved(V3, "0.5.12", page_size=64).page_size == 64  # nothing to buffer


@pytest.mark.parametrize(
    ("name", "version", "first"),
    [
        (LING_TINY, "0.5.18", "0.5.19"),
        (SALA, "0.5.16", "0.5.19"),
        (GLM5, "0.5.8", "0.5.9"),
        (KIMI, "0.5.6.post2", None),
    ],
)
def test_a_version_without_the_architecture_is_refused(name: str, version: str, first: str | None) -> None:
    found = [refusal for refusal in check(config(name, version)) if refusal.key == "engine.version"]
    assert [refusal.allowed for refusal in found] == ([f"{first} or later"] if first else [])


@pytest.mark.parametrize(
    ("version", "windows"),
    [
        ("0.5.13", 16 * 20 * 73728),
        # 0.5.14 and 0.5.15 share columns, but take KDA's channels for them: 3 × (16 + 12,288 - 1) × 2 B
        ("0.5.14", 20 * 73818),
        ("0.5.15", 20 * 73818),
        ("0.5.16", 16 * 20 * 73728),
        ("0.5.23", 16 * 20 * 73728),
    ],
)
def test_windows_of_kda_for_a_block_of_16(version: str, windows: int) -> None:
    dflash = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}  # its size does not matter here
    found = resolved(KIMI, version, speculative=dflash, disable_radix_cache=True)
    assert scratch_conv_per_row(found, units(found)[0]) == windows


def test_gigachat_is_delta_nets_with_latent_attention(tmp_path: Path) -> None:
    """No published config is shipped: the dimensions are the defaults of SGLang's own class for it."""
    numbers = {
        "architectures": ["GigaChat35ForCausalLM"],
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "linear_num_value_heads": 16,
        "linear_num_key_heads": 8,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 4096,
        "full_attention_layers": [3, 7, -1],
    }
    (tmp_path / "config.json").write_text(json.dumps(numbers), encoding="utf-8")
    model = load_model(tmp_path)
    assert [isinstance(layer, LatentAttention) for layer in model.layers] == [i in (3, 7, 11) for i in range(12)]
    assert token(model, 4) == 3 * 1152
    # 9 × (4,096 channels × 3 × 2 B) and 9 × 16 × 128 × 128 × 4 B
    assert (window(model, 1), state(model, 1)) == (9 * 24576, 9 * MIB)
    assert resolved(str(tmp_path), "0.5.23").strategy == "no_buffer"  # not on the list of extra buffers
