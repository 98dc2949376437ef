"""Parameter counts: by part, by layer, tied heads, built-in heads, against what is published and by hand."""

from __future__ import annotations

import pytest

from specbench.budget.predict import predict
from specbench.budget.to_json import to_document
from specbench.configuration.config import RunConfig
from specbench.parameters import Parameters, parameters
from specbench.specs import known_models, load_model

#: Name -> 10^9 parameters as published (model card, or the name), and how exactly that is told.
PUBLISHED = [
    ("deepseek-ai/DeepSeek-V3", 671.0, 0.1),
    ("meta-llama/Meta-Llama-3.1-8B", 8.03, 0.005),
    ("mistralai/Mixtral-8x7B-v0.1", 46.7, 0.05),
    ("mistralai/Mixtral-8x22B-v0.1", 140.6, 0.05),
    ("Qwen/Qwen3-30B-A3B", 30.5, 0.05),
    ("Qwen/Qwen3-235B-A22B", 235.0, 0.1),
    ("Qwen/Qwen3-32B", 32.8, 0.05),
    ("Qwen/Qwen3.6-27B", 27.36, 0.01),
    ("LiquidAI/LFM2-700M", 0.742, 0.001),  # its head is the embedding
    ("LiquidAI/LFM2-1.2B", 1.17, 0.005),
]


def counted(name: str) -> Parameters:
    found = parameters(load_model(name))
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "billions", "within"), PUBLISHED)
def test_as_many_as_published(name: str, billions: float, within: float) -> None:
    assert counted(name).total / 1e9 == pytest.approx(billions, abs=within)


def test_parts_of_a_hybrid_by_hand() -> None:
    found = counted("Qwen/Qwen3.6-27B")
    assert found.by_part["embedding"] == found.by_part["head"] == 248_320 * 5_120
    assert found.by_part["mlp"] == 64 * 3 * 17_408 * 5_120
    # q and gate 2 × 24 × 256, k and v 4 × 256 each, and the output projection
    assert found.by_part["attention"] == 16 * (12_288 + 2 * 1_024 + 6_144) * 5_120
    # convolution 10,240 × 4; qkvz 16,384, ba 96 and out 6,144 rows or columns of 5,120; A_log and dt_bias of 48 heads
    assert found.by_part["state"] == 48 * (10_240 * 4 + (16_384 + 96 + 6_144) * 5_120 + 2 * 48)
    assert sum(found.by_part.values()) == found.total
    assert found.by_layer[0] == sum((10_240 * 4, 22_624 * 5_120, 96, 128, 3 * 17_408 * 5_120, 2 * 5_120))
    assert len(found.by_layer) == 64
    # fc 2 × 5,120 × 5,120, an attention layer with its MLP, five norms and those of q and k
    assert found.builtin_head == 5_120 * (2 * 5_120 + 20_480 + 3 * 17_408 + 5) + 2 * 256


def test_experts_by_hand() -> None:
    found = counted("Qwen/Qwen3-30B-A3B")
    assert found.by_part["experts"] == 48 * 128 * 3 * 768 * 2_048
    assert found.by_part["router"] == 48 * 128 * 2_048
    assert (found.tied, found.builtin_head) == (False, None)


def test_a_tied_head_counts_once() -> None:
    found = counted("LiquidAI/LFM2-700M")
    assert found.tied
    assert "head" not in found.by_part
    assert found.by_part["embedding"] == 65_536 * 1_536


def test_every_part_of_every_model_has_a_name() -> None:
    """What has none (input projections of drafts, hyper-connections) stays below 8 % of a model."""
    for name in known_models():
        found = parameters(load_model(name))
        if found is not None:
            assert found.by_part.get("other", 0) < 0.08 * found.total, name


def test_predict_tells_them() -> None:
    config = RunConfig.model_validate(
        {"name": "parameters", "model": "Qwen/Qwen3.6-27B", "gpu": {"name": "h200"}, "engine": {"version": "0.5.16"}}
    )
    details = to_document(predict(config))["details"]
    found = counted("Qwen/Qwen3.6-27B")
    assert details["parameters"] == found.total
    assert details["parameters_vision"] == found.by_part["vision"]
    assert details["parameters_builtin_head"] == found.builtin_head
