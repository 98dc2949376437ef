"""Families with latent attention, KDA or lightning attention: bytes at higher TP, public logs, weights, versions.

Figures of logs are GiB to two decimals ("GB" there), tokens and slots are exact.
"""

from __future__ import annotations

from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.demand import units
from specbench.engines.sglang.resolve import Settings, settings
from specbench.engines.sglang.sizing.allocation import scratch_conv_per_row
from specbench.engines.sglang.sizing.cell import Cell
from specbench.errors import ConfigError
from specbench.specs import ModelSpec, load_model
from specbench.units import GIB, MIB

KIMI, LING_TINY, SALA = (
    "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "inclusionAI/Ling-3.0-tiny",
    "openbmb/MiniCPM-SALA",
)
V3, V32, GLM5, GLM53 = ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5", "zai-org/GLM-5.3")
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
    assert gib(1_933_682 * token(model, 1)) == 12.45
    assert 1_933_682 % 64 != 0


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
    assert gib((2_659_072 + 64) * token(load_model(V3), 8, 1)) == 87.01
    assert 2_659_072 % 64 == 0


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *[(KIMI, 49.12), (LING_TINY, 7.89), (SALA, 9.48), (V3, 671.03), (GLM5, 743.91)],
        *[("deepseek-ai/DeepSeek-V2", 235.74), ("moonshotai/Kimi-K2-Instruct", 1026.41)],
    ],
)
def test_parameters(name: str, billions: float) -> None:
    """As published: 48B, 8B, 9B, 671B, 744B, 236B, 1.03T."""
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
    ("version", "expected"), [("0.5.12", 78 * 1284), ("0.5.16", 78 * 1284), ("0.5.18", 92628), ("0.5.23", 92628)]
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
    """Up to 0.5.20 int(c × (1 + d / n)): 70,272 × 1.0163934 is a fraction short of 71,424."""
    assert cell(V3, "0.5.20", speculative=NEXTN).charged_bytes == int(70272 * (1 + 1 / 61))
    assert cell(V3, "0.5.22", speculative=NEXTN).charged_bytes == 71424


@pytest.mark.parametrize(
    ("name", "version", "strategy", "slots"),
    [
        (KIMI, "0.5.12", "no_buffer", 3),
        (KIMI, "0.5.15", "no_buffer", 3),  # not on the list of 0.5.14 and 0.5.15
        (KIMI, "0.5.16", "extra_buffer", 5),
        (LING_TINY, "0.5.20", "extra_buffer", 5),
        (SALA, "0.5.20", None, 1),  # the engine turns the prefix cache off
    ],
)
def test_auto_depends_on_the_architecture(name: str, version: str, strategy: str | None, slots: int) -> None:
    found = resolved(name, version)
    assert (found.strategy, found.slots_per_request) == (strategy, slots)
    assert found.radix == (strategy is not None)


def test_without_extra_buffers_a_page_is_one_token() -> None:
    assert resolved(KIMI, "0.5.15", page_size=64).page_size == 1
    assert resolved(KIMI, "0.5.16", page_size=64).page_size == 64
    assert resolved(V3, "0.5.12", page_size=64).page_size == 64  # nothing to buffer


@pytest.mark.parametrize(
    ("name", "version", "first"),
    [
        (LING_TINY, "0.5.18", "0.5.20"),
        (SALA, "0.5.16", "0.5.20"),
        (GLM5, "0.5.8", "0.5.10"),
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
