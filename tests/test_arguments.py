"""Flags under engine.args: a key of their own, memory that is not followed, no release that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.arguments import notes, reject_keyed
from specbench.engines.sglang.flags import FLAGS, flag_name, key_of_flag, released_flags
from specbench.errors import ConfigError
from specbench.params import load_run, load_sections
from specbench.specs import load_model

PARAMS = Path(__file__).parent.parent / "params"


def run(args: dict[str, Any], version: str = "0.5.16", **sections: Any) -> RunConfig:
    data: dict[str, Any] = {
        "name": "arguments",
        "engine": {"version": version, "args": args},
        "model": "Qwen/Qwen3.6-27B",
        "gpu": {"name": "h200"},
        "memory": {"mem_fraction_static": 0.8},
    }
    return RunConfig.model_validate(data | sections)


def noted(args: dict[str, Any], version: str = "0.5.16", **sections: Any) -> tuple[str, ...]:
    config = run(args, version, **sections)
    return notes(config, load_model(config.model))


@pytest.mark.parametrize(
    ("flag", "value", "instead"),
    [
        ("max-running-requests", 4, "memory.max_running_requests: 4"),
        ("max_running_requests", 4, "memory.max_running_requests: 4"),
        ("--max-running-requests", 4, "memory.max_running_requests: 4"),
        ("mem-fraction-static", 0.9, "memory.mem_fraction_static: 0.9"),
        ("tp", 2, "parallel.tp_size: 2"),
        ("tp-size", 2, "parallel.tp_size: 2"),
        ("tensor_parallel_size", 2, "parallel.tp_size: 2"),
        ("dp", 2, "parallel.dp_size: 2"),
        ("enable-dp-attention", True, "parallel.enable_dp_attention: true"),
        ("mamba-scheduler-strategy", "extra_buffer", "memory.mamba_radix_cache_strategy: extra_buffer"),
        ("mamba-radix-cache-strategy", "auto", "memory.mamba_radix_cache_strategy: auto"),
        ("cuda-graph-max-bs", 8, "memory.cuda_graph_max_bs: 8"),
        ("speculative-draft-model", "z-lab/x", "speculative.draft_model_path: z-lab/x"),
        ("model", "a/b", "model: a/b"),
        ("port", 30000, "engine.port: 30000"),
        ("context-len", 4096, "memory.context_length: 4096"),  # SGLang's parser takes abbreviations
    ],
)
def test_a_flag_with_a_key_of_its_own_is_refused_by_name(flag: str, value: Any, instead: str) -> None:
    config = run({flag: value})
    with pytest.raises(ConfigError) as caught:
        reject_keyed(config.engine, "x.yaml")
    assert str(caught.value) == (
        f"x.yaml: engine.args.{flag}: has a key of its own.\nWrite {instead}, and leave it out of engine.args."
    )
    with pytest.raises(ConfigError, match="has a key of its own"):
        predict(config)
    with pytest.raises(ConfigError, match=r"^parameters: engine\.args\."):
        load_sections(**config.to_sections())


def test_every_flag_of_a_key_is_known_in_every_version() -> None:
    for version in ("0.5.6.post2", "0.5.8", "0.5.12", "0.5.16", "0.5.23"):
        for key in FLAGS:
            flag = flag_name(key, version)
            assert flag is None or key_of_flag(flag) == key


def test_the_table_of_flags_knows_when_each_was_there() -> None:
    flags = released_flags()
    assert flags["tp-size"] == ("0.5.6", "0.5.23")
    assert flags["mamba-radix-cache-strategy"] == ("0.5.14", "0.5.23")
    assert flags["enable-gdn-replayssm-spec"] == ("0.5.16", "0.5.19")
    assert "tpsize" not in flags


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"quantization": "fp8"}, "engine.args.quantization changes the weights: not taken into account."),
        ({"dtype": "float32"}, "engine.args.dtype changes the weights: not taken into account."),
        ({"cpu_offload_gb": 8}, "engine.args.cpu_offload_gb changes the weights that stay on the GPU: not taken into "),
        ({"enable-lora": True}, "engine.args.enable-lora changes the weights: adapters and their buffers: not taken"),
        ({"enable-unified-memory": True}, "engine.args.enable-unified-memory changes the state pool or"),
        ({"enable-linear-replayssm": True}, "engine.args.enable-linear-replayssm changes the state pool or"),
        ({"enable_int8_mamba_checkpoint": True}, "engine.args.enable_int8_mamba_checkpoint changes the state: a pool"),
        ({"speculative-draft-model-quantization": "fp8"}, "engine.args.speculative-draft-model-quantization changes"),
        ({"speculative-adaptive": True}, "engine.args.speculative-adaptive changes what is left outside"),
        ({"enable-memory-saver": True}, "engine.args.enable-memory-saver changes what is left outside the pools"),
        ({"kt-weight-path": "/w"}, "engine.args.kt-weight-path changes the weights that stay on the GPU"),
        ({"attention-backend": "trtllm_mha"}, "engine.args.attention-backend changes the page size (give memory.page"),
        ({"load-format": "gguf"}, "engine.args.load-format changes the weights"),
        ({"config": "more.yaml"}, "engine.args.config changes any flag"),
        ({"tpsize": 2}, "engine.args.tpsize: no SGLang release that was read has --tpsize (did you mean parallel.tp_s"),
    ],
)
def test_what_the_prediction_cannot_follow_is_said(args: dict[str, Any], said: str) -> None:
    found = noted(args)
    assert len(found) == 1 and found[0].startswith(said)
    assert found[0] in predict(run(args)).warnings


@pytest.mark.parametrize(
    "args",
    [
        {"random-seed": 1, "served-model-name": "x", "attention-backend": "triton", "load-format": "dummy"},
        {"quantization": None, "enable-lora": False, "cpu-offload-gb": 0, "nnodes": 1, "dtype": "auto"},
        {"dtype": "bfloat16"},  # the model's own
        {"disable-cuda-graph": True, "disable_prefill_cuda_graph": True},  # followed
        {"speculative-dflash-block-size": 8, "max-prefill-tokens": 4096, "mamba-track-interval": 64},  # followed
        {"cuda-graph-bs": [1, 2, 4]},  # only the default fraction depends on it, and that is given
    ],
)
def test_flags_that_change_no_memory_are_silent(args: dict[str, Any]) -> None:
    assert noted(args) == ()


def test_the_default_fraction_is_named_where_it_applies() -> None:
    assert noted({"cuda-graph-bs-decode": [1, 2, 4]}, memory={}) == ()  # followed
    assert noted({"cuda-graph-config": '{"decode": {"max_bs": 8}}'}, memory={}) == (
        (
            "engine.args.cuda-graph-config changes the default memory fraction (give memory.mem_fraction_static): not "
            "taken into account."
        ),
    )


def test_a_flag_of_another_release_will_be_refused() -> None:
    assert noted({"disable-prefill-cuda-graph": True}, "0.5.12") == (
        (
            "engine.args.disable-prefill-cuda-graph: SGLang 0.5.12 has no --disable-prefill-cuda-graph (seen in "
            "0.5.14 to 0.5.23) and will refuse it."
        ),
    )
    # 0.5.13.post2 was not read: a flag of the next release may be in it
    assert len(noted({"disable-prefill-cuda-graph": True}, "0.5.13")) == 1
    assert noted({"disable-prefill-cuda-graph": True}, "0.5.13.post2") == ()


def test_unchunked_prefill_takes_its_tokens_from_the_flag() -> None:
    sections: dict[str, Any] = {
        "model": "Qwen/Qwen3-8B",
        "memory": {"chunked_prefill_size": -1, "max_total_tokens": 1},
    }
    few = predict(run({"disable-prefill-cuda-graph": True, "max-prefill-tokens": 16384}, **sections))
    many = predict(run({"disable-prefill-cuda-graph": True, "max-prefill-tokens": 32768}, **sections))
    # 1.5 MiB per token of a card of 143,771 MiB: 16,384 × 1.5 = 24,576 MiB = 0.171 of the card less for the pools
    lost = few.details["rest_bytes"].point - many.details["rest_bytes"].point
    assert lost / few.free.pre.point == pytest.approx(0.171, abs=0.001)


@pytest.mark.parametrize("file", sorted(PARAMS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_params_have_no_flag_to_warn_of(file: Path) -> None:
    if "campaign:" in file.read_text(encoding="utf-8"):
        pytest.skip("a campaign: its runs are other files")
    config = load_run(file)
    assert notes(config, load_model("Qwen/Qwen3.6-27B")) == ()
