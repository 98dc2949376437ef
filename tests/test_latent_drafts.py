"""Latent and sparse attention: what drafting charges, what is refused.

Cells and texts as SGLang's own solver and argument checks answered, asked with these configurations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.engines.sglang import faults
from specbench.engines.sglang.checks import check
from specbench.specs import load_model
from tests.test_latent_models import (
    FLASH_NEXT,
    GLM5,
    GLM53,
    GLM_FLASH,
    LING_TINY,
    RING,
    V3,
    V32,
    cell,
    config,
    resolved,
)

K2 = "moonshotai/Kimi-K2-Instruct"
DENSE = {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3-8B"}  # 36 layers
NGRAM = {"algorithm": "NGRAM"}


def refused(model: str, version: str, **more: Any) -> dict[str, str | None]:
    return {refusal.key: refusal.engine_error for refusal in check(config(model, version, tp=8, **more))}


@pytest.mark.parametrize(
    ("name", "version", "charged"),
    [
        # each of the 36 draft layers like one of the target: 1,152 B, and from 0.5.18 an index key of 132 B of its own
        (V32, "0.5.18", 61 * 1284 + 36 * 1284),
        (V32, "0.5.23", 124548),
        (GLM53, "0.5.16", 146376),  # 78 + 36 layers × 1,284
        (GLM53, "0.5.18", 138852),  # 78 × 1,152 and 21 indexes, 36 × 1,284
        (V3, "0.5.23", 61 * 1152 + 36 * 1152),
        (FLASH_NEXT, "0.5.23", 52224),
    ],
)
def test_a_dense_draft_is_charged_as_layers_of_the_target(name: str, version: str, charged: int) -> None:
    assert cell(name, version, tp=4, speculative=DENSE).charged_bytes == charged


def test_trees_do_not_go_over_fixed_pages() -> None:
    tree = {**DENSE, "num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 4}
    assert "got attention_backend='dsa'" in str(refused(GLM5, "0.5.16", speculative=tree)["speculative.eagle_topk"])
    assert "'flashinfer' backend" in str(refused(GLM5, "0.5.12", speculative=tree)["speculative.eagle_topk"])
    assert not refused(FLASH_NEXT, "0.5.23", speculative=tree)
    assert not refused(V3, "0.5.16", speculative=tree)


@pytest.mark.parametrize(("name", "version"), [(GLM5, "0.5.12"), (V32, "0.5.16"), (FLASH_NEXT, "0.5.23")])
def test_ngram_drafts_a_tree_unless_told_otherwise(name: str, version: str) -> None:
    key = "engine.args.speculative-ngram-max-bfs-breadth"
    assert str(refused(name, version, speculative=NGRAM)[key]).startswith(
        "ValueError: speculative_eagle_topk(10) > 1 with page_size(64) > 1 is unstable"
    )
    assert key not in refused(name, version, speculative=NGRAM, args={"speculative-ngram-max-bfs-breadth": 1})
    assert not refused(V3, version, speculative=NGRAM) or name == FLASH_NEXT
    # the backend of sparse latent attention is no choice; another's, when stated, is
    flashinfer = refused(name, version, speculative=NGRAM, args={"attention-backend": "flashinfer"})
    assert (key in flashinfer) is (name != FLASH_NEXT)


@pytest.mark.parametrize(("name", "version"), [(K2, "0.5.16"), (RING, "0.5.16"), (LING_TINY, "0.5.22")])
def test_a_checkpoint_without_a_head_is_no_draft(name: str, version: str) -> None:
    for path in (None, name):
        eagle = {"algorithm": "EAGLE", "draft_model_path": path}
        assert "Only 1 nextn layer is supported" in str(faults.of(resolved(name, version, tp=8, speculative=eagle)))
    own = {"algorithm": "EAGLE", "draft_model_path": V3}
    assert faults.of(resolved(V3, "0.5.16", tp=8, speculative=own)) is None


def test_glm_53_is_read_wrongly_by_two_versions() -> None:
    """Their cell comes out at 78 × 1,540 B: rotary keys of 192."""
    wrong = [version for version in ("0.5.10", "0.5.11", "0.5.12", "0.5.13") if faults.of(resolved(GLM53, version))]
    assert wrong == ["0.5.11", "0.5.12"]
    assert faults.of(resolved(GLM5, "0.5.12")) is None


@pytest.mark.parametrize("name", [GLM_FLASH, FLASH_NEXT])
def test_fixed_pages_want_extra_buffers(name: str) -> None:
    found = resolved(name, "0.5.23", tp=4, disable_overlap_schedule=True)
    assert (found.strategy, found.slots_per_request) == ("extra_buffer", 4)  # 3 and 1 without overlap
    key = "memory.mamba_radix_cache_strategy"
    for more in ({"args": {"linear-attn-backend": "cutedsl"}}, {key.split(".")[1]: "no_buffer"}):
        assert refused(name, "0.5.23", **more)[key] == "AssertionError: no_buffer only supports page_size=1."
    assert key not in refused(name, "0.5.23", mamba_radix_cache_strategy="no_buffer", disable_radix_cache=True)


def test_sparse_latent_attention_has_two_types() -> None:
    found = refused(V32, "0.5.16", kv_cache_dtype="fp8_e5m2")
    assert str(found["memory.kv_cache_dtype"]).startswith("AssertionError: DeepSeek DSA only supports bf16/bfloat16")
    once = [one.key for one in check(config(V32, "0.5.16", tp=8, kv_cache_dtype="fp8_e5m2"))]
    assert once == ["memory.kv_cache_dtype"]  # one fact, one refusal
    assert not refused(V32, "0.5.16", kv_cache_dtype="fp8_e4m3")
    assert not refused(V3, "0.5.16", kv_cache_dtype="fp8_e5m2")
    assert not refused(FLASH_NEXT, "0.5.23", kv_cache_dtype="fp8_e5m2")


def test_kimi_k2_once_needed_its_own_code() -> None:
    assert list(refused(K2, "0.5.11")) == ["engine.args.trust-remote-code"]
    assert not refused(K2, "0.5.11", args={"trust-remote-code": True})
    assert not refused(K2, "0.5.12")


def test_the_head_of_an_nvfp4_checkpoint_is_not_quantized(tmp_path: Path) -> None:
    """SGLang: "Overriding DeepseekV3ForCausalLMNextN quant config for modelopt_fp4 Deepseek model.\""""
    numbers = json.loads((load_model(V3).folder / "config.json").read_text(encoding="utf-8"))
    del numbers["quantization_config"]
    nvfp4 = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    for name in ("plain", "packed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(numbers), encoding="utf-8")
    (tmp_path / "packed" / "hf_quant_config.json").write_text(json.dumps({"quantization": nvfp4}), encoding="utf-8")
    plain, packed = load_model(tmp_path / "plain"), load_model(tmp_path / "packed")
    heads = [model.builtin_draft() for model in (plain, packed)]
    assert heads[0] is not None and heads[1] is not None
    assert heads[0].weights_bytes(8) == heads[1].weights_bytes(8)
    whole, less = plain.weights_bytes(8), packed.weights_bytes(8)
    assert whole is not None and less is not None and less.point < 0.4 * whole.point
