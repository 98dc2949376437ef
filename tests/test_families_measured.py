"""Real starts of many families on H200s (2026-11-30, random weights, mem_fraction_static 0.8, no CUDA graphs).

Server arguments: --context-length 32768, --max-running-requests 32 unless `requests` says otherwise, and what `changes`
says; attention by Triton. Three models were cut to fewer layers (and experts) to fit; `cut` says how.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.specs import load_model
from specbench.units import GIB, Interval

QWEN, MOE = "Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-35B-A3B"
CHAIN = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
TREE = {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}
#: A draft of one layer of Llama's for a vocabulary of 32,000.
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32_000}
DP2 = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    model: str
    version: str = "0.5.16"
    parallel: dict[str, Any] = field(default_factory=dict)
    speculative: dict[str, Any] = field(default_factory=lambda: {"algorithm": "none"})
    memory: dict[str, Any] = field(default_factory=dict)
    cut: dict[str, Any] = field(default_factory=dict)  # laid over config.json
    draft_cut: dict[str, Any] = field(default_factory=dict)
    requests: int = 32
    pre: float  # GiB, as logged, rank with least
    post: float
    weights: float
    draft_weights: float | None = None
    slots: int | None = None
    tokens: int
    running: int | None = None  # None: the server ended before it said so


STARTS = {
    "kimi-linear": Start(
        model="moonshotai/Kimi-Linear-48B-A3B-Instruct",
        pre=139.12,
        post=47.57,
        weights=91.55,
        slots=231,
        tokens=1_383_571,
        running=32,
    ),
    "two-stages": Start(
        model=QWEN,
        parallel={"pp_size": 2},
        pre=138.31,
        post=112.31,
        weights=26.00,
        slots=279,
        tokens=1_462_424,
        running=32,
    ),
    "two-stages-0.5.12": Start(
        model=QWEN,
        version="0.5.12",
        parallel={"pp_size": 2},
        pre=138.31,
        post=112.31,
        weights=26.00,
        slots=279,
        tokens=1_462_426,
        running=32,
    ),
    "data-parallel-attention": Start(
        model=QWEN,
        parallel=DP2,
        pre=138.21,
        post=104.22,
        weights=33.99,
        slots=253,
        tokens=660_356,
        running=16,
    ),
    "fp8-blocks": Start(
        model="Qwen/Qwen3.6-27B-FP8",
        pre=139.12,
        post=110.66,
        weights=28.47,
        slots=273,
        tokens=715_315,
        running=32,
    ),
    "fp8-blocks-tp2-0.5.12": Start(
        model="Qwen/Qwen3.6-27B-FP8",
        version="0.5.12",
        parallel={"tp_size": 2},
        pre=138.28,
        post=123.80,
        weights=14.48,
        slots=635,
        tokens=1_658_157,
        running=32,
    ),
    "fp8-experts": Start(
        model="Qwen/Qwen3-30B-A3B-FP8",
        pre=139.11,
        post=109.96,
        weights=29.15,
        tokens=896_949,
        running=32,
    ),
    "fp8-per-tensor": Start(
        model="Qwen/Qwen3-32B-FP8-Static-PerTensor",
        pre=139.12,
        post=107.06,
        weights=32.06,
        tokens=324_500,
        running=32,
    ),
    "awq-experts": Start(
        model="cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit",
        pre=139.11,
        post=116.24,
        weights=22.86,
        slots=698,
        tokens=2_440_372,
        running=32,
    ),
    "nvfp4-mixed": Start(
        model="nvidia/Qwen3.6-27B-NVFP4",
        pre=139.12,
        post=118.83,
        weights=20.29,
        slots=300,
        tokens=1_572_203,
        running=32,
    ),
    "lightning": Start(
        model="inclusionAI/Ring-2.5-1T",
        cut={"num_hidden_layers": 8, "first_k_dense_replace": 1, "num_experts": 64},
        pre=139.12,
        post=83.72,
        weights=55.41,
        slots=968,
        tokens=27_413_253,
    ),
    "mla-tp2": Start(
        model="deepseek-ai/DeepSeek-V2",
        parallel={"tp_size": 2},
        cut={"num_hidden_layers": 12},
        pre=138.21,
        post=95.81,
        weights=42.40,
        tokens=5_294_906,
        running=32,
    ),
    "mixtral-tp2": Start(
        model="mistralai/Mixtral-8x7B-v0.1",
        parallel={"tp_size": 2},
        cut={"num_hidden_layers": 16},
        pre=138.21,
        post=116.33,
        weights=21.88,
        tokens=2_906_174,
        running=32,
    ),
    "nextn-path-bf16-state-pages": Start(
        model=QWEN,
        speculative={"algorithm": "NEXTN", "draft_model_path": QWEN, **CHAIN},
        memory={"mamba_ssm_dtype": "bfloat16", "page_size": 64},
        requests=8,
        pre=139.12,
        post=82.53,
        weights=51.05,
        draft_weights=5.53,
        slots=196,
        tokens=124_608,
        running=8,
    ),
    "lazy-buffer-fp8-kv": Start(
        model=MOE,
        memory={"mamba_radix_cache_strategy": "extra_buffer_lazy", "kv_cache_dtype": "fp8_e4m3"},
        pre=139.11,
        post=73.61,
        weights=65.49,
        slots=361,
        tokens=2_527_789,
        running=32,
    ),
    "ngram-tp2": Start(
        model=MOE,
        parallel={"tp_size": 2},
        speculative={"algorithm": "NGRAM", "num_draft_tokens": 8},
        requests=16,
        pre=138.19,
        post=105.41,
        weights=32.79,
        slots=472,
        tokens=6_265_653,
        running=16,
    ),
    "windows-mxfp4": Start(
        model="openai/gpt-oss-20b",
        pre=139.12,
        post=124.10,
        weights=15.02,
        tokens=2_336_597,
        running=32,
    ),
    "windows-mxfp4-0.5.12": Start(
        model="openai/gpt-oss-20b",
        version="0.5.12",
        pre=139.13,
        post=124.10,
        weights=15.02,
        tokens=2_336_598,
        running=32,
    ),
    "windows-mxfp4-tp2": Start(
        model="openai/gpt-oss-20b",
        parallel={"tp_size": 2},
        pre=138.21,
        post=129.69,
        weights=8.53,
        tokens=4_953_789,
        running=32,
    ),
    # its window pool was of 24,609 tokens: see test_windows.py
    "windows-mxfp4-no-prefix-cache": Start(
        model="openai/gpt-oss-20b",
        memory={"disable_radix_cache": True},
        pre=139.12,
        post=124.10,
        weights=15.02,
        tokens=4_181_266,
        running=32,
    ),
    "experts-two-stages": Start(
        model=MOE,
        parallel={"pp_size": 2},
        pre=138.29,
        post=105.08,
        weights=33.21,
        slots=611,
        tokens=4_274_020,
        running=32,
    ),
    "eagle3-tree": Start(
        model="meta-llama/Meta-Llama-3.1-8B",
        speculative={"algorithm": "EAGLE3", "draft_model_path": "meta-llama/Meta-Llama-3.1-8B", **TREE},
        draft_cut=EAGLE3,
        requests=16,
        pre=139.12,
        post=121.96,
        weights=15.02,
        draft_weights=2.14,
        tokens=747_683,
        running=16,
    ),
    "eagle3-tree-0.5.12": Start(
        model="meta-llama/Meta-Llama-3.1-8B",
        version="0.5.12",
        speculative={"algorithm": "EAGLE3", "draft_model_path": "meta-llama/Meta-Llama-3.1-8B", **TREE},
        draft_cut=EAGLE3,
        requests=16,
        pre=139.13,
        post=124.11,
        weights=15.02,
        draft_weights=2.14,
        tokens=788_618,
        running=16,
    ),
    "standalone": Start(
        model="Qwen/Qwen3-8B",
        speculative={"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3-8B", **CHAIN},
        draft_cut={"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_hidden_layers": 28}
        | {"tie_word_embeddings": True},  # Qwen3-1.7B
        requests=16,
        pre=139.12,
        post=120.59,
        weights=15.28,
        draft_weights=3.26,
        tokens=379_900,
        running=16,
    ),
    "standalone-0.5.12": Start(
        model="Qwen/Qwen3-8B",
        version="0.5.12",
        speculative={"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3-8B", **CHAIN},
        draft_cut={"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_hidden_layers": 28}
        | {"tie_word_embeddings": True},
        requests=16,
        pre=139.13,
        post=123.85,
        weights=15.28,
        draft_weights=3.26,
        tokens=699_117,
    ),
}

#: Within 1 %, but not within the margin of bf16 weights. Hopper has no FP4: Marlin repacks the weights for it.
BEYOND_THE_MARGIN = {"nvfp4-mixed"}
#: Known to an interval only: kernels lay MXFP4 out anew; what was made twice stays until it is collected.
AN_INTERVAL_ONLY = {name for name in STARTS if name.startswith(("windows-mxfp4", "eagle3"))}


def write(folder: Path, model: str, cut: dict[str, Any]) -> str:
    """A folder with that model's config.json, changed; the model's name where nothing is."""
    if not cut:
        return model
    config = json.loads((load_model(model).folder / "config.json").read_text(encoding="utf-8"))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | cut), encoding="utf-8")
    return str(folder)


def config(start: Start, folder: Path) -> RunConfig:
    speculative = dict(start.speculative)
    if "draft_model_path" in speculative:
        speculative["draft_model_path"] = write(folder / "draft", speculative["draft_model_path"], start.draft_cut)
    memory = {"mem_fraction_static": 0.8, "max_running_requests": start.requests, "context_length": 32_768}
    gpus = start.parallel.get("tp_size", 1) * start.parallel.get("pp_size", 1)
    return RunConfig.model_validate(
        {
            "name": "measured",
            "engine": {"version": start.version},
            "model": write(folder / "model", start.model, start.cut),
            "gpu": {"name": "h200", "count": gpus},
            "parallel": start.parallel,
            "speculative": speculative,
            "memory": memory | start.memory,
        }
    )


def printed(gib: float) -> Interval:
    """A figure of two decimals."""
    return Interval(*(round((gib + off) * GIB) for off in (-0.005, 0, 0.005)))


@pytest.mark.parametrize("name", STARTS)
def test_a_start_from_the_configuration_alone(name: str, tmp_path: Path) -> None:
    start = STARTS[name]
    found = predict(config(start, tmp_path))
    weights, draft = found.terms["weights"].bytes, found.terms["draft_weights"].bytes
    assert weights is not None and draft is not None
    if name not in AN_INTERVAL_ONLY:
        assert weights.point / GIB == pytest.approx(start.weights, rel=0.01)
        assert draft.point / GIB == pytest.approx(start.draft_weights or 0, rel=0.01)
    if name not in BEYOND_THE_MARGIN:
        assert weights.low <= start.weights * GIB <= weights.high
    assert draft.low <= (start.draft_weights or 0) * GIB <= draft.high
    slots, tokens = found.limits["state_slots"].value, found.limits["kv_tokens"].value
    assert tokens is not None
    assert tokens.low <= start.tokens <= tokens.high
    assert tokens.point == pytest.approx(start.tokens, rel=0.025 if name in AN_INTERVAL_ONLY else 0.005)
    assert (slots is None) == (start.slots is None)
    if slots is not None and start.slots is not None:
        assert slots.low <= start.slots <= slots.high
        assert abs(slots.point - start.slots) <= 1
    if start.running is not None:
        running = found.limits["running_requests"].value
        assert running is not None and running.point == start.running


@pytest.mark.parametrize("name", STARTS)
def test_a_start_with_the_logged_free_memory(name: str, tmp_path: Path) -> None:
    """Printed figures are rounded and a little early or late: the pools follow within 0.2 %, the slots within one."""
    start = STARTS[name]
    found = predict(config(start, tmp_path), pre_bytes=printed(start.pre), post_bytes=printed(start.post))
    slots, tokens = found.limits["state_slots"].value, found.limits["kv_tokens"].value
    assert tokens is not None and tokens.point == pytest.approx(start.tokens, rel=0.002)
    if start.slots is not None:
        assert slots is not None and abs(slots.point - start.slots) <= 1
