"""What SGLang makes of flags, by version: strategy, overlap, slots per request, types, default fraction."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.sizing.graph_sizes import prefill_sizes
from specbench.errors import ConfigError

DFLASH = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
NEXTN = {"algorithm": "NEXTN"}
NGRAM = {"algorithm": "NGRAM"}
NONE = {"algorithm": "none"}


def run(version: str, speculative: dict[str, Any] = NONE, **sections: Any) -> RunConfig:
    engine = {"version": version, **sections.pop("engine", {})}
    data = {
        "name": "resolve",
        "engine": engine,
        "model": "Qwen/Qwen3.6-27B",
        "gpu": {"name": "rtx-pro-6000", "count": 8},
        "speculative": speculative,
    }
    return RunConfig.model_validate(data | sections)


@pytest.mark.parametrize(
    ("version", "speculative", "memory", "strategy", "overlap", "slots"),
    [
        # auto: no_buffer up to 0.5.13, then extra_buffer
        ("0.5.8", NONE, {}, "no_buffer", False, 3),
        ("0.5.12", NONE, {}, "no_buffer", False, 3),
        ("0.5.16", NONE, {}, "extra_buffer", True, 5),
        ("0.5.16", NONE, {"disable_overlap_schedule": True}, "no_buffer", False, 3),
        ("0.5.16", NONE, {"disable_overlap_schedule": True, "page_size": 64}, "extra_buffer", False, 4),
        # DFLASH: overlap off up to 0.5.13, then on
        ("0.5.12", DFLASH, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", False, 4),
        ("0.5.13", DFLASH, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", False, 4),
        ("0.5.14", DFLASH, {}, "extra_buffer", True, 5),
        ("0.5.23", DFLASH, {"disable_overlap_schedule": True}, "no_buffer", False, 3),
        # EAGLE: overlap off up to 0.5.10, for trees up to 0.5.13, then on
        ("0.5.10", NEXTN, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", False, 4),
        ("0.5.11", NEXTN, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", True, 5),
        ("0.5.16", NEXTN, {}, "extra_buffer", True, 5),
        # NGRAM: off up to 0.5.13
        ("0.5.12", NGRAM, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", False, 4),
        ("0.5.16", NGRAM, {}, "extra_buffer", True, 5),
        # 0.5.8: with speculation four, without five
        ("0.5.8", NEXTN, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", False, 4),
        ("0.5.8", NONE, {"mamba_radix_cache_strategy": "extra_buffer"}, "extra_buffer", True, 5),
        # lazy: four; no radix cache: one
        ("0.5.16", NONE, {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, "extra_buffer_lazy", True, 4),
        ("0.5.23", DFLASH, {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, "extra_buffer_lazy", True, 4),
        ("0.5.16", DFLASH, {"disable_radix_cache": True}, None, True, 1),
        ("0.5.6.post2", NEXTN, {}, "no_buffer", False, 3),
    ],
)
def test_slots_per_request(
    version: str,
    speculative: dict[str, Any],
    memory: dict[str, Any],
    strategy: str | None,
    overlap: bool,
    slots: int,
) -> None:
    found = settings(run(version, speculative, memory=memory))
    assert (found.strategy, found.overlap, found.slots_per_request) == (strategy, overlap, slots)


def test_environment_that_changes_overlap_and_slots() -> None:
    extra = {"mamba_radix_cache_strategy": "extra_buffer"}
    old = run("0.5.12", NEXTN, memory=extra, engine={"env": {"SGLANG_ENABLE_SPEC_V2": "0"}})
    assert settings(old).slots_per_request == 4
    tree = {"algorithm": "EAGLE", "num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 6}
    assert settings(run("0.5.12", tree, memory=extra)).slots_per_request == 4
    skips = {"env": {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}}
    assert settings(run("0.5.23", memory=extra, engine=skips)).slots_per_request == 4
    lazy = {"mamba_radix_cache_strategy": "extra_buffer_lazy"}
    assert settings(run("0.5.23", memory=lazy, engine=skips)).slots_per_request == 3
    assert settings(run("0.5.16", memory=extra, engine=skips)).slots_per_request == 5


def test_speculation_assumes_48_requests() -> None:
    assert settings(run("0.5.16", DFLASH)).requests == 48
    assert settings(run("0.5.16")).requests is None
    assert settings(run("0.5.16", DFLASH, memory={"max_running_requests": 3})).requests == 3


@pytest.mark.parametrize(
    ("version", "memory", "env", "dtype"),
    [
        ("0.5.16", {}, {}, "float32"),  # the model's config says so
        ("0.5.16", {"mamba_ssm_dtype": "bfloat16"}, {}, "bfloat16"),
        ("0.5.16", {}, {"SGLANG_MAMBA_SSM_DTYPE": "float16"}, "float16"),
        ("0.5.16", {"mamba_ssm_dtype": "bfloat16"}, {"SGLANG_MAMBA_SSM_DTYPE": "float16"}, "bfloat16"),
        ("0.5.8", {}, {}, "float32"),
    ],
)
def test_state_types(version: str, memory: dict[str, Any], env: dict[str, str], dtype: str) -> None:
    assert settings(run(version, memory=memory, engine={"env": env})).ssm_dtype == dtype


def test_no_buffer_forces_pages_of_one() -> None:
    assert settings(run("0.5.12", memory={"page_size": 64})).page_size == 1
    assert settings(run("0.5.16", memory={"page_size": 64})).page_size == 64


@pytest.mark.parametrize("tp", [5, 6, 7])
def test_heads_that_do_not_divide_are_refused(tp: int) -> None:
    from specbench.budget.predict import predict

    with pytest.raises(ConfigError, match=rf"^parallel\.tp_size: .* do not divide over {tp} ranks") as caught:
        predict(run("0.5.16", parallel={"tp_size": tp}))
    # 4 KV heads, 24 attention heads, 16 and 48 linear heads: 3 and 6 divide some of them, 16 not the 24
    assert str(caught.value).endswith("\nSizes that work: 1, 2, 4, 8 (of 1 to 16).")


def test_a_default_fraction_below_zero_names_what_makes_it_so() -> None:
    # 512 + 1.5 × 100,000 + 2 × 256 + 128 + 8 × 237 graphs = 153,048 of 97,887 MiB: -0.564, × 0.92477 for the images
    with pytest.raises(ConfigError, match=r"^memory\.mem_fraction_static: left out, .* at -0\.522: its reserve"):
        settings(run("0.5.16", memory={"chunked_prefill_size": 100_000}))


# ── default fraction, 97,887 MiB ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "requests", "by_tp"),
    [
        ("0.5.8", None, {1: 0.7787, 4: 0.7703, 8: 0.7648}),
        ("0.5.10", None, {1: 0.7592, 4: 0.7509, 8: 0.7454}),
        ("0.5.13", None, {1: 0.7592, 4: 0.7509, 8: 0.7454}),
        ("0.5.14", None, {1: 0.7981, 4: 0.7897, 8: 0.7842}),
        ("0.5.15", None, {1: 0.7981, 4: 0.7897, 8: 0.7842}),
        ("0.5.16", None, {1: 0.7934, 4: 0.7851, 8: 0.7805}),
        ("0.5.20", None, {1: 0.7934, 4: 0.7851, 8: 0.7805}),
        ("0.5.22", None, {1: 0.7934, 4: 0.7851, 8: 0.7805}),
        ("0.5.23", 4, {1: 0.7981}),
    ],
)
def test_default_fraction(version: str, requests: int | None, by_tp: dict[int, float]) -> None:
    for tp, expected in by_tp.items():
        case = run(version, NEXTN, parallel={"tp_size": tp}, memory={"max_running_requests": requests})
        assert settings(case).fraction == pytest.approx(expected, abs=0.00005), tp


@pytest.mark.parametrize(
    ("version", "requests", "expected"),
    [
        ("0.5.8", None, 0.842),
        ("0.5.12", None, 0.821),
        ("0.5.14", None, 0.863),
        ("0.5.16", None, 0.858),
        ("0.5.23", 4, 0.863),
    ],
)
def test_default_fraction_of_a_text_model(version: str, requests: int | None, expected: float) -> None:
    case = run(version, NEXTN, memory={"max_running_requests": requests})
    assert settings(case.replace({"model": "Qwen/Qwen3-Next-80B-A3B-Instruct"})).fraction == expected


def test_default_fraction_as_an_h200_logged_it() -> None:
    """nospec_defaults: no graphs, the log says mem_fraction_static=0.8415367187499999."""
    case = run(
        "0.5.16",
        gpu={"name": "h200"},
        engine={"args": {"disable-cuda-graph": True, "disable_prefill_cuda_graph": True}},
        memory={"context_length": 32768},
    )
    assert settings(case).fraction == 0.8415367187499999


def test_58_prefill_sizes_up_to_8192() -> None:
    assert len(prefill_sizes(8192, "0.5.16")) == 58
    assert prefill_sizes(16, "0.5.16") == (4, 8, 12, 16)


def test_an_emulated_card_scales_the_fraction() -> None:
    case = run("0.5.12", gpu={"name": "h200", "emulate": "rtx-pro-6000"}, memory={"mem_fraction_static": 0.75})
    asked = settings(case)
    assert (asked.fraction, asked.gpu.name) == (0.75, "rtx-pro-6000")
    # free as the solver takes it, 0.06366 GiB above what the log prints: 0.75 × 94.30651 / 139.19366
    assert asked.passed().fraction == pytest.approx(0.50814012, abs=1e-8)
    assert asked.passed(0.5).fraction == 0.5
    assert asked.fraction_source == "given, on RTX PRO 6000"
    assert asked.passed().fraction_source == "passed for 0.75 of RTX PRO 6000"


@pytest.mark.parametrize("larger", ["h200", "b200"])
def test_a_card_stands_for_no_larger_one(larger: str) -> None:
    case = run("0.5.12", gpu={"name": "rtx-pro-6000", "emulate": larger}, memory={"mem_fraction_static": 0.75})
    with pytest.raises(
        ConfigError, match=rf"^gpu\.emulate: {larger} has more memory \([\d,]+ MiB\) than gpu\.name, rtx"
    ):
        settings(case)


def test_an_unknown_emulated_card_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^gpu\.emulate: 'h2000' is not in the GPU table\. Did you mean 'h200'\?"):
        settings(run("0.5.12", gpu={"name": "h200", "emulate": "h2000"}))


@pytest.mark.parametrize(
    ("args", "memory", "slots"),
    [
        ({"disaggregation-mode": "decode"}, {}, 1),  # no prefix cache, whatever the strategy
        ({"disaggregation-mode": "decode"}, {"mamba_radix_cache_strategy": "extra_buffer"}, 1),
        ({"disaggregation-mode": "decode", "disaggregation-decode-enable-radix-cache": True}, {}, 5),
        ({"disaggregation-mode": "prefill"}, {}, 5),
    ],
)
def test_the_decode_server_of_a_pair_keeps_no_prefixes(
    args: dict[str, Any], memory: dict[str, Any], slots: int
) -> None:
    found = settings(run("0.5.16", engine={"args": args}, memory={"mem_fraction_static": 0.8, **memory}))
    assert (found.slots_per_request, found.radix) == (slots, slots != 1)


@pytest.mark.parametrize(
    ("version", "value", "overlap"),
    [
        *[("0.5.10", text, True) for text in ("1", "True", "yes", "y")],
        *[("0.5.12", text, False) for text in ("0", "FALSE", "no", "n")],
        *[("0.5.10", None, False), ("0.5.12", None, True)],
    ],
)
def test_a_variable_that_is_a_switch(version: str, value: str | None, overlap: bool) -> None:
    """EnvBool of SGLang's srt/environ.py; the default of spec v2 is on from 0.5.11."""
    engine = {} if value is None else {"env": {"SGLANG_ENABLE_SPEC_V2": value}}
    memory = {"mamba_radix_cache_strategy": "extra_buffer", "mem_fraction_static": 0.8}
    assert settings(run(version, NEXTN, engine=engine, memory=memory)).overlap is overlap
