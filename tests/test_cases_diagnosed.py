"""Public cases: what each log (mostly an excerpt), with what its author told beside it, is diagnosed as.

A healthy excerpt gets no finding, whatever is told. `told` are the arguments that the author gives, by the engine's own
names; models, cards and releases only where specbench knows them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_log
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis
from specbench.errors import LogFormatError

CASES = Path(__file__).parent / "logs" / "sglang" / "cases"

#: case -> what was told, and the findings in their order.
DIAGNOSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    # healthy, or too little to find a fault in
    "b300-tp8-ratio-skill": ({"tp_size": 8, "mamba_radix_cache_strategy": "extra_buffer_lazy"}, ()),
    "deepseekv3-class-8rank": ({"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}, ()),
    "granite4-h-micro-one-batch": ({"model": "ibm-granite/granite-4.0-h-micro"}, ()),
    "inkling-eagle-draft-pools-oom": ({"tp_size": 8, "mem_fraction_static": 0.75}, ()),
    "kimi-linear-48b-32gb-state": ({"model": "moonshotai/Kimi-Linear-48B-A3B-Instruct", "tp_size": 2}, ()),
    "ling3-bailingv3-131k": ({"context_length": 131072, "chunked_prefill_size": 8192, "page_size": 64}, ()),
    "ling3-flash-fin-tp-unknown": ({}, ()),
    "plain-fp8-heavy-96gb": (
        {"context_length": 131072, "mem_fraction_static": 0.88, "max_running_requests": 16},
        (),
    ),
    "qwen3-coder-next-fp8-h200": ({"model": "Qwen/Qwen3-Coder-Next-FP8", "gpu": "h200"}, ()),
    "qwen35-35b-a3b-strix-halo": ({"model": "cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit"}, ()),
    "qwen38-27b-dflash-parser-fixture": ({"speculative_num_draft_tokens": 8}, ()),
    "qwen38-cookbook-191slots": (
        {"model": "Qwen/Qwen3.8-27B", "gpu": "rtx-pro-6000", "mamba_ssm_dtype": "float32"},
        (),
    ),
    "qwen38-flashnext-2xspark": (
        {
            "gpu": "gb10",
            "tp_size": 2,
            "context_length": 262144,
            "max_running_requests": 6,
            "mem_fraction_static": 0.78,
            "chunked_prefill_size": 4096,
        },
        (),
    ),
    "qwen38-flashnext-nextn-lora-hicache": (
        {
            "gpu": "rtx-pro-6000",
            "mem_fraction_static": 0.92,
            "context_length": 65536,
            "max_running_requests": 4,
            "max_mamba_cache_size": 48,
            "speculative_algorithm": "NEXTN",
            "speculative_num_draft_tokens": 4,
        },
        (),
    ),
    "qwen38-flashnext-pennyroyal-none": ({"gpu": "rtx-pro-6000", "mem_fraction_static": 0.981}, ()),
    # pools
    "dflash-b16-oom-48gb-intermediate": (
        {"gpu": "h100-nvl", "speculative_num_draft_tokens": 16, "disable_radix_cache": True},
        ("out-of-memory-graphs",),
    ),
    "flashnext-3rank-uneven-dcp": (
        {"tp_size": 3, "max_total_tokens": 90816, "page_size": 64, "chunked_prefill_size": 8192},
        ("token-limit-far-below", "ranks-disagree"),
    ),
    "hybrid-pdmux-48slots": (
        {"disable_radix_cache": True, "mem_fraction_static": 0.82, "max_running_requests": 48},
        ("tokens-beyond-use",),
    ),
    "kvcached-elastic-mamba-9b": (
        {"model": "Qwen/Qwen3.5-9B", "gpu": "rtx-pro-6000", "mem_fraction_static": 0.5},
        ("state-pool-not-logged",),
    ),
    "lfm2-700m-conv-only": ({"model": "LiquidAI/LFM2-700M", "version": "0.5.6.post2"}, ("slots-beyond-use",)),
    "nemotron3-nano-omni-4xgb10": (
        {"gpu": "gb10", "tp_size": 4, "max_running_requests": 32, "mamba_full_memory_ratio": 0.9},
        ("slots-beyond-use",),
    ),
    "qwen35-35b-dflash-gb10-43gb": (
        {"gpu": "gb10", "speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16},
        ("scratch-above-pool",),
    ),
    "qwen36-27b-ada48-cap9": ({"gpu": "rtx-6000-ada", "max_running_requests": 32}, ("capped-by-state-slots",)),
    "qwen38-27b-2x3090-slot-table": (
        {"tp_size": 2, "max_running_requests": 8, "chunked_prefill_size": 2048, "context_length": 262144},
        ("capped-by-state-slots", "context-above-pool"),
    ),
    "qwen38-27b-2x5090-nvfp4-dflash": (
        {"gpu": "rtx-5090", "tp_size": 2},
        ("ranks-disagree", "state-pool-not-logged"),
    ),
    "qwen38-27b-mtp-5090-rejected": (
        {
            "model": "nvidia/Qwen3.8-27B-NVFP4",
            "gpu": "rtx-5090",
            "version": "0.5.18",
            "context_length": 131072,
            "max_mamba_cache_size": 10,
            "mem_fraction_static": 0.9,
            "speculative_algorithm": "NEXTN",
        },
        ("draft-weights-duplicated",),
    ),
    "qwen38-27b-nvfp4-nextn-5090-130k": (
        {
            "model": "nvidia/Qwen3.8-27B-NVFP4",
            "gpu": "rtx-5090",
            "version": "0.5.18",
            "context_length": 262144,
            "max_total_tokens": 262144,
            "mem_fraction_static": 0.94,
            "max_running_requests": 2,
            "max_mamba_cache_size": 10,
            "speculative_algorithm": "NEXTN",
        },
        ("draft-weights-duplicated",),
    ),
    # serving
    "eagle3-speedup-below-paper": ({"speculative_algorithm": "EAGLE3"}, ("throughput-spans-idle",)),
    "npu-prefix-cache-mamba-usage": ({"max_mamba_cache_size": 200}, ("prefix-cache-hits",)),
    "qwen38-flashnext-kt-g16-cap0": (
        {"mem_fraction_static": 0.88, "kt_num_gpu_experts": 16},
        ("capped-by-state-slots",),
    ),
}

_QUEUE = "waited 59% of their time for a first token: it measured a queue"
#: Excerpts that hold no line of a server, and whether they tell of a queue (422 of 711 s in the first).
NO_LOGS = {
    "bench-serving-oai-c512-accept321": True,
    "bench-serving-tp4-c100-accept286": False,
    "bench-dflash-jetspec-jsonl": False,
    "bench-one-batch-server-row": False,
    "flashnext-pro6000-4of5-slots": False,  # a table in an issue; as lines in test_serving_findings.py
}

DIAGNOSED |= {
    # starts that failed, servers that died
    "glm-air-2x3090-tail": ({"tp_size": 2}, ("out-of-memory-graphs",)),
    "glm53-flash-pingpong-crash": (
        {"max_mamba_cache_size": 28, "max_running_requests": 4, "enable_hierarchical_cache": True, "hicache_size": 32},
        ("state-slots-exhausted",),  # what was cached is a share of nothing: its lines name no new tokens
    ),
    "l40s-spec-between-two-errors": ({"gpu": "l40s", "mem_fraction_static": 0.84}, ("refused-no-memory",)),
    "minicpm-sala-oom-graph": (
        {"disable_radix_cache": True, "max_running_requests": 20, "mem_fraction_static": 0.84},
        ("graph-capture-failed",),
    ),
    "qwen38-27b-spark-045-refused": (
        {
            "model": "nvidia/Qwen3.8-27B-NVFP4",
            "gpu": "gb10",
            "version": "0.5.18",
            "max_running_requests": 72,
            "mem_fraction_static": 0.45,
            "mamba_full_memory_ratio": 10.0,
            "max_mamba_cache_size": 360,
        },
        ("refused-no-memory",),
    ),
}

#: case -> what the cause of its first finding says.
SAID: dict[str, tuple[str, ...]] = {
    # 384.00 - 338.75 = 45.25 MiB
    "glm-air-2x3090-tail": ("384.00 MiB were asked for, 338.75 MiB of 23.56 GiB were free: 45.25 MiB are missing",),
    # 970.00 - 676.81 = 293.19 MiB; 48.75 + 0.43 = 49.18; 4.52 + 4.52 = 9.04; 3.85 + 6.13 + 2.17 = 12.15 GiB
    "dflash-b16-oom-48gb-intermediate": (
        "970.00 MiB were asked for, 676.81 MiB of 94.50 GiB were free: 293.19 MiB are missing",
        "scratch alone took 49.18 GiB, more than the KV pool (9.04 GiB): about 1,039 states of 48.05 MiB",
        "CUDA graphs took 12.15 GiB of the 14.77 GiB that were free when the pools stood (82%)",
        "Logged: scratch 49.18 GiB, graphs 12.15 GiB, KV 9.04 GiB, draft KV 6.78 GiB, state slots 3.12 GiB.",
    ),
    "glm53-flash-pingpong-crash": (
        "kept for the prefix cache (ping-pong buffer) (of 28)",
        "nor those that are being copied to the host",
    ),
    "l40s-spec-between-two-errors": ("no fraction serves", "fewer tokens (--max-total-tokens)"),
    "minicpm-sala-oom-graph": ("captured CUDA graphs (12.24 GiB were free)", "Give the lines below it"),
    # 361 rows × 146.81 MiB / 1024 = 51.76 GiB
    "qwen38-27b-spark-045-refused": (
        "360 state slots are asked for by max_mamba_cache_size",
        "361 rows × 146.81 MiB = 51.76 GiB (predicted)",
        "The engine blames the weights",
    ),
    "qwen38-flashnext-kt-g16-cap0": ("2 slots // 5 per request = 0",),
}


@pytest.mark.parametrize("name", SAID)
def test_the_figures_that_the_cause_says(name: str) -> None:
    cause = _diagnosed(name).findings[0].cause
    assert [words for words in SAID[name] if words not in cause] == []


def test_slots_that_took_all_are_cured_as_the_author_cured_them() -> None:
    """The next run served at 0.70, with the same 360 slots: the least that does at every free memory in question."""
    remedy = _diagnosed("qwen38-27b-spark-045-refused").findings[0].remedies[0]
    assert (remedy.set, remedy.predicted["running_requests"]) == ({"memory.mem_fraction_static": 0.7}, 72)


def test_scratch_that_took_all_is_cured_by_fewer_requests_from_the_logs_own_figures() -> None:
    """(48.75 + 0.43) GiB / 65 rows = 774.77 MiB each; 64 - 32 = 32 of them are 24.21 GiB."""
    (fewer, *_) = _diagnosed("dflash-b16-oom-48gb-intermediate").findings[0].remedies
    assert (fewer.flags, fewer.basis) == ("--max-running-requests 32", "source")
    assert "32 × 774.77 MiB = 24.21 GiB less of scratch, as logged" in fewer.note


_OF_THE_SERVER = ("model", "gpu", "version")


def _diagnosed(name: str) -> Diagnosis:
    told = DIAGNOSED[name][0]
    server = {key: told[key] for key in _OF_THE_SERVER if key in told}
    arguments = {key: value for key, value in told.items() if key not in _OF_THE_SERVER}
    return of_log(CASES / f"{name}.log", told=Told(**server, arguments=arguments))


@pytest.mark.parametrize("name", DIAGNOSED)
def test_findings_of_every_public_case(name: str) -> None:
    diagnosis = _diagnosed(name)
    assert tuple(finding.id for finding in diagnosis.findings) == DIAGNOSED[name][1]
    assert all(finding.evidence for finding in diagnosis.findings)
    for remedy in (remedy for finding in diagnosis.findings for remedy in finding.remedies):
        assert remedy.verdict in ("serves", "capped") or remedy.basis in ("recording", "source")


@pytest.mark.parametrize("name", DIAGNOSED)
def test_what_was_not_told_makes_no_other_fault(name: str) -> None:
    """The bare excerpt: the same findings, or fewer; none that only the silence of the log would make."""
    found = {finding.id for finding in of_log(CASES / f"{name}.log").findings}
    assert found <= set(DIAGNOSED[name][1])


def test_every_public_case_has_its_row() -> None:
    assert {path.stem for path in CASES.glob("*.log")} == {*DIAGNOSED, *NO_LOGS}


@pytest.mark.parametrize("name", NO_LOGS)
def test_an_excerpt_without_a_line_of_a_server_is_said_to_be_none(name: str) -> None:
    with pytest.raises(LogFormatError) as caught:
        of_log(CASES / f"{name}.log")
    assert str(caught.value).count("\n") == 1
    assert (_QUEUE in str(caught.value)) is NO_LOGS[name]
