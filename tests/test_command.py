"""The server's command line, with each version's own flag names."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from specbench.configuration.config import EngineSection, RunConfig
from specbench.engines.sglang.command import command, flags_for
from specbench.engines.sglang.flags import FLAGS


def run(version: str, **sections: Any) -> RunConfig:
    data: dict[str, Any] = {
        "name": "command",
        "engine": {"version": version, "enable_metrics": False, **sections.pop("engine", {})},
        "model": "Qwen/Qwen3.6-27B",
        "gpu": {"name": "h200"},
    }
    return RunConfig.model_validate(data | sections)


def argv(config: RunConfig, draft: str | None = None) -> list[str]:
    return command(config, model_path="/m", draft_path=draft, host="127.0.0.1", port=30000)


def test_defaults_leave_everything_to_the_engine() -> None:
    assert argv(run("0.5.16")) == [
        sys.executable,
        *("-m", "sglang.launch_server", "--model-path", "/m", "--host", "127.0.0.1", "--port", "30000"),
    ]


def test_the_story() -> None:
    config = run(
        "0.5.12",
        engine={"python": "/opt/python", "args": {"load-format": "dummy", "disable_cuda_graph": True}},
        speculative={"algorithm": "dflash", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash", "num_draft_tokens": 16},
        memory={
            "mem_fraction_static": 0.75,
            "mamba_full_memory_ratio": 0.5,
            "max_running_requests": 4,
            "mamba_radix_cache_strategy": "extra_buffer",
            "context_length": 32768,
        },
    )
    assert argv(config, "/d") == [
        *("/opt/python", "-m", "sglang.launch_server", "--model-path", "/m", "--host", "127.0.0.1", "--port", "30000"),
        *("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/d"),
        *("--speculative-num-draft-tokens", "16", "--mem-fraction-static", "0.75"),
        *("--mamba-full-memory-ratio", "0.5", "--max-running-requests", "4"),
        *("--mamba-scheduler-strategy", "extra_buffer", "--context-length", "32768"),
        *("--load-format", "dummy", "--disable-cuda-graph"),
    ]


@pytest.mark.parametrize(
    ("version", "strategy", "graphs"),
    [
        ("0.5.8", "--mamba-scheduler-strategy", "--cuda-graph-max-bs"),
        ("0.5.13", "--mamba-scheduler-strategy", "--cuda-graph-max-bs"),
        ("0.5.14", "--mamba-radix-cache-strategy", "--cuda-graph-max-bs-decode"),
        ("0.5.23", "--mamba-radix-cache-strategy", "--cuda-graph-max-bs-decode"),
    ],
)
def test_flag_names_by_version(version: str, strategy: str, graphs: str) -> None:
    found = argv(run(version, memory={"mamba_radix_cache_strategy": "extra_buffer", "cuda_graph_max_bs": 8}))
    assert found[found.index(strategy) + 1] == "extra_buffer"
    assert found[found.index(graphs) + 1] == "8"


def test_development_builds_take_the_flags_of_their_rule() -> None:
    config = run("0.0.0.dev1", engine={"sizing": "0.5.12"}, memory={"mamba_radix_cache_strategy": "extra_buffer"})
    assert "--mamba-scheduler-strategy" in argv(config)


def test_switches_and_parallelism() -> None:
    config = run(
        "0.5.16",
        gpu={"name": "h200", "count": 4},
        parallel={"tp_size": 4, "dp_size": 2, "enable_dp_attention": True},
        memory={"disable_radix_cache": True, "disable_overlap_schedule": True, "chunked_prefill_size": -1},
    )
    found = argv(config)
    assert found[9:] == [
        *("--tp-size", "4", "--dp-size", "2", "--enable-dp-attention"),
        *("--disable-radix-cache", "--disable-overlap-schedule", "--chunked-prefill-size", "-1"),
    ]


def test_engine_args_are_verbatim() -> None:
    args = {"cuda_graph_bs": [1, 2, 4], "--log-level": "info", "log_requests": True, "nothing": None, "off": False}
    assert argv(run("0.5.16", engine={"args": args}))[9:] == [
        *("--cuda-graph-bs", "1", "2", "4", "--log-level", "info", "--log-requests")
    ]


def test_metrics_are_asked_for_unless_they_are_not_wanted() -> None:
    assert argv(run("0.5.16", engine={"enable_metrics": True}))[9:] == ["--enable-metrics"]
    assert "--enable-metrics" not in argv(run("0.5.16"))
    assert EngineSection(version="0.5.16").enable_metrics


def test_values_are_never_a_shells_business() -> None:
    args = {"served_model_name": "a b; rm -rf /"}
    assert argv(run("0.5.16", engine={"args": args}))[-1] == "a b; rm -rf /"


def test_an_emulated_card_gets_its_share() -> None:
    config = run("0.5.12", gpu={"name": "h200", "emulate": "rtx-pro-6000"}, memory={"mem_fraction_static": 0.75})
    found = argv(config)
    assert float(found[found.index("--mem-fraction-static") + 1]) == pytest.approx(0.50814, abs=1e-6)


def test_measured_memory_of_an_emulating_card_decides_the_fraction() -> None:
    config = run("0.5.12", gpu={"name": "h200", "emulate": "rtx-pro-6000"}, memory={"mem_fraction_static": 0.75})
    found = command(config, model_path="/m", draft_path=None, host="::1", port=30000, passed_fraction=0.51)
    assert found[found.index("--mem-fraction-static") + 1] == "0.51"


def test_every_memory_and_speculative_key_has_a_flag() -> None:
    sections = run("0.5.16").to_sections()
    keys = {f"{section}.{key}" for section in ("parallel", "speculative", "memory") for key in sections[section]}
    # speculative.custom describes a plug-in to the prediction: its flags are the plug-in's own, in engine.args
    assert (keys - {"speculative.custom"}) | {"engine.enable_metrics"} == set(FLAGS)


@pytest.mark.parametrize(
    ("changes", "version", "flags"),
    [
        ({"memory.max_running_requests": 4}, "0.5.12", "--max-running-requests 4"),
        ({"memory.disable_radix_cache": True}, "0.5.16", "--disable-radix-cache"),
        (
            {"memory.mamba_radix_cache_strategy": "extra_buffer", "memory.max_mamba_cache_size": 20},
            "0.5.12",
            "--mamba-scheduler-strategy extra_buffer --max-mamba-cache-size 20",
        ),
        ({"memory.mamba_radix_cache_strategy": "no_buffer"}, "0.5.14", "--mamba-radix-cache-strategy no_buffer"),
        (
            {"memory.disable_radix_cache": True, "memory.mamba_radix_cache_strategy": "auto"},
            "0.5.12",
            "--disable-radix-cache",
        ),
        ({"parallel.tp_size": 4, "gpu.count": 4}, "0.5.12", "--tp-size 4"),
        ({"engine.args.served_model_name": "a b"}, "0.5.16", "--served-model-name 'a b'"),
        ({"gpu.name": "h200"}, "0.5.16", ""),
        ({"memory.mem_fraction_static": None}, "0.5.16", ""),
    ],
)
def test_flags_of_a_change(changes: dict[str, Any], version: str, flags: str) -> None:
    assert flags_for(changes, version) == flags
