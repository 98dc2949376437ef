"""Families with Mamba2 layers: bytes at higher TP, pools that public logs show, weights, pipeline stages, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.engines.sglang.sizing.cell import stage_layers
from specbench.errors import SpecError
from specbench.layers import NOTHING, FullAttention, Mamba2, Together, UnevenSplitError, parts
from specbench.specs import ModelSpec, load_model
from specbench.units import GIB
from specbench.weights import Repacked, Tensor

NANO, SUPER = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"
ULTRA, NANO_9B = "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"


def token(model: ModelSpec, tp: int, itemsize: int = 2) -> int:
    return sum(layer.bytes_per_token(tp, itemsize) for layer in model.attention_layers)


def windows(model: ModelSpec, tp: int) -> int:
    return sum(layer.conv_bytes(tp, 2) for layer in model.state_layers)


def states(model: ModelSpec, tp: int, itemsize: int = 4) -> int:
    return sum(layer.ssm_bytes(tp, itemsize) for layer in model.state_layers)


@pytest.mark.parametrize(
    ("name", "tp", "per_token", "window", "state"),
    [
        # 2 KV heads: one each on 2 ranks and more. 8 groups divide up to 8 ranks: everything of the state does.
        (NANO, 2, 3_072, 23 * 3_072 * 6, 23 * 1_048_576),
        (NANO, 4, 3_072, 23 * 1_536 * 6, 23 * 524_288),
        (NANO, 8, 3_072, 23 * 768 * 6, 23 * 262_144),
        (SUPER, 8, 4_096, 40 * 1_280 * 6, 40 * 524_288),
        (ULTRA, 8, 6_144, 48 * 2_304 * 6, 48 * 1_048_576),
        # 128 heads of 80: 16 on a rank of 8, 1,280 channels and 2 × 128 of its one group
        (NANO_9B, 8, 2_048, 27 * 1_536 * 6, 27 * 655_360),
    ],
)
def test_bytes_on_one_of_several_ranks(name: str, tp: int, per_token: int, window: int, state: int) -> None:
    model = load_model(name)
    assert (token(model, tp), windows(model, tp), states(model, tp)) == (per_token, window, state)


def test_a_single_group_is_copied_to_every_rank() -> None:
    """Falcon-H1 and Granite: inner channels divide, the 2 × 128 of the one group do not."""
    layer = Mamba2(heads=24, head_dim=64, state_size=128, groups=1, kernel=4)
    assert [layer.conv_channels(tp) for tp in (1, 2, 4, 8)] == [1_792, 1_024, 640, 448]  # 1,536 / tp + 256
    assert layer.ssm_bytes(8, 4) == 3 * 64 * 128 * 4


def test_several_groups_must_divide() -> None:
    """SGLang's mixer asserts it, although the shape of the state allows one group per rank."""
    layer = Mamba2(heads=64, head_dim=64, state_size=128, groups=8, kernel=4)
    with pytest.raises(UnevenSplitError, match="Mamba2 groups: 8 cannot be split over 16"):
        layer.split_over(16)


# ── what public logs show ────────────────────────────────────────────────────────────────────────────────────────────


def gib(size: int) -> float:
    """As SGLang prints it."""
    return round(size / GIB, 2)


def test_nemotron_3_nano_on_four_ranks_is_the_public_log() -> None:
    """Case nemotron3-nano-omni-4xgb10: 2,211 slots and a padding one of fp32 state, 19,644,177 tokens of fp8 KV."""
    model = load_model(NANO)
    assert gib(2_212 * windows(model, 4)) == 0.44
    assert gib(2_212 * states(model, 4)) == 24.84
    # half of a token's bytes are its keys: 6 layers × 1 head × 128
    assert token(model, 4, itemsize=1) == 2 * 768
    assert gib(19_644_177 * 768) == 14.05
    # the same server with a bf16 state: 4,348 slots
    assert gib(4_349 * states(model, 4, itemsize=2)) == 24.42
    # 9 parts of state to 10 of KV: what a slot more would have cost is all that is left over
    share = 0.9 / 1.9 * (2_212 * (windows(model, 4) + states(model, 4)) + 19_644_177 * 1_536)
    assert int(share // (windows(model, 4) + states(model, 4))) - 1 == 2_211


def test_nemotron_nano_9b_is_the_unnamed_model_of_a_public_log() -> None:
    """Case hybrid-pdmux-48slots: 48 slots, 2,618,868 tokens of bf16 KV at TP1, the model not named.

    Four layers of 8 heads and a state of 135 MiB fit no other published model of the family.
    """
    model = load_model(NANO_9B)
    assert gib(49 * windows(model, 1)) == 0.09
    assert gib(49 * states(model, 1)) == 6.46
    assert gib(2_618_868 * token(model, 1) // 2) == 19.98


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "billions"),
    [(NANO, 31.58), (SUPER, 120.67), (ULTRA, 549.3), (NANO_9B, 8.89), ("nvidia/Nemotron-H-8B-Base-8K", 8.10)],
)
def test_the_tensors_sum_to_the_published_number_of_parameters(name: str, billions: float) -> None:
    """31.6, 120.7, 550, 8.9 and 8.1 billion: the head that predicts several tokens is not among them."""
    model = load_model(name)
    tensors = model.family.tensors(model.config, 1)
    count = sum(part.parameters for part in tensors if isinstance(part, Tensor | Repacked))
    assert count / 1e9 == pytest.approx(billions, rel=0.0005)


# ── decoder layers that keep nothing ─────────────────────────────────────────────────────────────────────────────────


def test_experts_and_mlps_count_where_a_pipeline_is_cut() -> None:
    """52 decoder layers on 2 stages: 26 each, 3 of attention and 11 or 12 of Mamba2, by the pattern."""
    model = load_model(NANO)
    assert len(model.layers) == 52
    first, second = stage_layers(model.layers, 2)
    assert (len(first), len(second)) == (26, 26)
    kept = [[type(part).__name__ for part in parts(stage)] for stage in (first, second)]
    # MEMEM*EMEMEM*EMEMEM*EMEMEM | *EMEMEM*EMEMEMEM*EMEMEMEME
    assert [names.count("FullAttention") for names in kept] == [3, 3]
    assert [names.count("Mamba2") for names in kept] == [12, 11]


def test_a_layer_with_attention_and_state_is_one_layer() -> None:
    attention = FullAttention(kv_heads=2, head_dim=64, v_head_dim=64)
    mamba = Mamba2(heads=24, head_dim=64, state_size=128, groups=1, kernel=4)
    both = Together(parts=(attention, mamba))
    stages = stage_layers((both, NOTHING, both), 3)
    assert [len(stage) for stage in stages] == [1, 1, 1]
    assert [list(parts(stage)) for stage in stages] == [[attention, mamba], [], [attention, mamba]]
    with pytest.raises(UnevenSplitError, match="Mamba2 heads: 24 cannot be split over 16"):
        both.split_over(16)


# ── the built-in head ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_head_of_super_is_one_attention_layer_and_its_experts() -> None:
    head = load_model(SUPER).builtin_draft()
    assert head is not None
    assert head.layers == (FullAttention(kv_heads=2, head_dim=128, v_head_dim=128), NOTHING)
    tensors = head.family.draft_tensors
    assert tensors is not None
    count = sum(part.parameters for part in tensors(head.config, 1) if isinstance(part, Tensor))
    h, vocabulary = 4_096, 131_072
    attention = h * (32 + 2 + 2) * 128 + 32 * 128 * h
    experts = 512 * 2 * 2_688 * 1_024 + 2 * 5_376 * h + 2 * 1_024 * h + 512 * h + 512
    assert count == 2 * vocabulary * h + attention + experts + 2 * h * h + 5 * h  # 5 norms
    assert load_model(NANO).builtin_draft() is None


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hybrid_override_pattern": "MEX*"}, r"hybrid_override_pattern: 4 layers, unknown kinds \['X'\]"),
        ({"layers_block_type": ["mamba", "conv"]}, r"layers_block_type: 2 layers, unknown kinds \['conv'\]"),
        ({"hybrid_override_pattern": None}, r"hybrid_override_pattern: missing"),
        ({"hybrid_override_pattern": "M" * 5_000}, r"5000 layers, unknown kinds none"),
        ({"mtp_hybrid_override_pattern": "*M"}, r"mtp_hybrid_override_pattern: 2 layers, unknown kinds \['mamba'\]"),
        ({"ssm_state_size": 0}, r"ssm_state_size: got 0"),
    ],
)
def test_a_mistake_names_the_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    config = json.loads((load_model(SUPER).folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(SpecError, match=message) as caught:
        load_model(tmp_path).builtin_draft()
    assert len(str(caught.value).splitlines()) <= 2
