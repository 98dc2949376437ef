"""`predict` against stored answers of SGLang's own sizing code (oracle/README.md; renewed by `make oracle-store`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.compare.engines import RELEASES, Engine, EngineError
from oracle.compare.points import predicted, predicted_pools
from oracle.compare.stored import differing, stored
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.sizing import VERSIONS_READ
from tests.oracle_points import point_of

ANSWERS = sorted((Path(__file__).parent / "oracle").glob("*.jsonl.gz"))


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.name.removesuffix(".jsonl.gz"))
def test_predict_says_what_the_engine_said(file: Path) -> None:
    assert differing(file) == []


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.name.removesuffix(".jsonl.gz"))
def test_the_stored_answers_are_of_every_kind(file: Path) -> None:
    """Enough of them, small enough to be read at every change, served and refused."""
    outcomes = [said["refused"] for _, said in stored(file)]
    assert len(outcomes) >= 200
    assert file.stat().st_size < 30_000
    assert {None, "arguments"} < set(outcomes)


def test_every_release_that_was_read_is_compared() -> None:
    assert set(RELEASES) == set(VERSIONS_READ)


def test_free_memory_of_several_ranks_goes_through_32_bits() -> None:
    """16 layers' share of a token, 4 KiB, on each of 4 stages × 8 ranks: 7,687,168 tokens would fit in 64 bits."""
    point = point_of(
        *("0.5.12", "Qwen/Qwen3-32B", 143771, 150151800815, 78754234648),
        parallel={"tp_size": 8, "pp_size": 4},
        memory={"mem_fraction_static": 0.8949, "max_running_requests": 1182},
    )
    assert predicted(point)["tokens"] == 7_687_167


def test_plain_data_parallelism_divides_no_requests() -> None:
    point = point_of(
        *("0.5.12", "Qwen/Qwen3.8-27B", 294912, 297511394259, 175189926654),
        parallel={"dp_size": 4},
        speculative={"algorithm": "NGRAM"},
        memory={
            "max_running_requests": 10,
            "kv_cache_dtype": "bf16",
            "context_length": 182,
            "disable_radix_cache": True,
        },
    )
    assert predicted(point)["requests"] == 10


def test_a_mixed_checkpoint_keeps_kv_in_16_bits_before_0_5_15() -> None:
    """16 full layers × 4 heads × 512 × 2 B = 65,536 B a token, where the checkpoint asks for half."""
    point = point_of(
        *("0.5.12", "nvidia/Qwen3.6-27B-NVFP4", 40960, 42777874268, 21388937134),
        speculative={"algorithm": "NEXTN", "num_steps": 2, "eagle_topk": 3, "num_draft_tokens": 4},
        memory={"max_running_requests": 1, "mamba_radix_cache_strategy": "extra_buffer"},
    )
    found = predicted(point)
    assert (found["cell_bytes"], found["tokens"]) == (65_536, 57_366)


def test_a_mixed_checkpoint_tells_its_kv_in_the_file_beside_its_config() -> None:
    """10 full layers × 1 head a rank × 512 × 1 B = 5,120 B a token: config.json has no kv_cache_scheme."""
    model = "nvidia/Qwen3.6-35B-A3B-NVFP4"
    point = point_of("0.5.16", model, 143771, 10**11, 5 * 10**10, parallel={"tp_size": 2})
    assert predicted(point)["cell_bytes"] == 5_120


def test_extra_buffers_where_the_engine_keeps_no_prefixes_by_itself() -> None:
    """Ring-2.5 of 0.5.12: it turns its cache off before it would refuse the strategy without one."""
    memory: dict[str, object] = {"mamba_radix_cache_strategy": "extra_buffer", "disable_radix_cache": True}
    assert check(point_of("0.5.12", "inclusionAI/Ring-2.5-1T", 143771, 10**11, 10**10, memory=memory).config) == []


@pytest.mark.parametrize(
    ("version", "model", "memory", "text"),
    [
        (
            *("0.5.23", "Qwen/Qwen3-8B", {"mamba_radix_cache_strategy": "extra_buffer"}),
            "ValueError: --mamba-radix-cache-strategy extra_buffer needs mamba state, got Qwen3ForCausalLM.",
        ),
        (
            *("0.5.16", "Qwen/Qwen3-8B", {"page_size": 48}),
            "AssertionError: chunked_prefill_size must be divisible by page_size",
        ),
        (
            *("0.5.8", "Qwen/Qwen3-8B", {"mamba_ssm_dtype": "float16"}),
            "error: argument --mamba-ssm-dtype: invalid choice: 'float16' (choose from 'float32', 'bfloat16')",
        ),
        (
            *("0.5.8", "Qwen/Qwen3-32B-FP8-Static-PerTensor", {}),
            "ValueError: Unknown quantization method: .",
        ),
        (
            *("0.5.16", "jet-ai/Jet-Nemotron-4B", {"page_size": 16}),
            "AssertionError: no_buffer only supports page_size=1.",
        ),
        (
            *("0.5.16", "deepseek-ai/DeepSeek-V3.2", {"kv_cache_dtype": "fp8_e5m2"}),
            "AssertionError: DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
        ),
    ],
)
def test_refused_as_the_engine_does(version: str, model: str, memory: dict[str, object], text: str) -> None:
    refusals = check(point_of(version, model, 143771, 10**11, 10**10, memory=memory).config)
    assert text in [refusal.engine_error for refusal in refusals]


def test_a_stage_without_kv_divides_by_zero() -> None:
    """Jet-Nemotron keeps KV in layers 14, 19, 20 and 21 of 28: of two stages the first has none."""
    config = point_of("0.5.12", "jet-ai/Jet-Nemotron-2B", 143771, 10**11, 10**10, parallel={"pp_size": 2}).config
    refusals = [refusal.engine_error for refusal in check(config)]
    assert "ZeroDivisionError: integer division or modulo by zero" in refusals


def test_a_stage_without_kv_is_passed_over_from_0_5_17() -> None:
    """The other stage has all tokens; each has 12 of the 24 linear layers. As the engine answered."""
    point = point_of("0.5.23", "jet-ai/Jet-Nemotron-2B", 143771, 10**11, 5 * 10**10, parallel={"pp_size": 2})
    found = predicted(point)
    assert (found["slots"], found["requests"], found["tokens"]) == (1_132, 377, 5_218_939)
    assert predicted_pools(point)["tokens"] == 5_218_939


def test_chunks_are_whole_pages_where_nobody_settles_the_strategy() -> None:
    """LFM2-MoE before 0.5.17: nothing looks at its pages for the state's sake, so the chunk's check is reached."""
    memory: dict[str, object] = {"page_size": 48, "mamba_radix_cache_strategy": "extra_buffer"}
    refusals = check(point_of("0.5.10", "LiquidAI/LFM2-8B-A1B", 143771, 10**11, 5 * 10**10, memory=memory).config)
    assert [refusal.engine_error for refusal in refusals] == [
        "AssertionError: chunked_prefill_size must be divisible by page_size"
    ]


def test_the_lazy_buffer_without_overlap_in_0_5_13() -> None:
    memory: dict[str, object] = {"mamba_radix_cache_strategy": "extra_buffer_lazy"}
    point = point_of(
        *("0.5.13", "Qwen/Qwen3.6-27B", 143771, 10**11, 10**10), speculative={"algorithm": "NGRAM"}, memory=memory
    )
    assert [refusal.key for refusal in check(point.config)] == ["speculative.algorithm"]


@pytest.mark.parametrize(
    ("version", "memory"),
    [
        ("0.5.16", {"mamba_radix_cache_strategy": "no_buffer"}),
        ("0.5.20", {"mamba_radix_cache_strategy": "extra_buffer"}),
        ("0.5.23", {"mamba_radix_cache_strategy": "extra_buffer", "disable_radix_cache": True}),
    ],
)
def test_a_model_without_state_takes_any_strategy(version: str, memory: dict[str, object]) -> None:
    assert check(point_of(version, "Qwen/Qwen3-8B", 143771, 10**11, 10**10, memory=memory).config) == []


def test_stages_end_overlap_after_the_strategy_is_chosen() -> None:
    """`auto` becomes extra_buffer as with overlap, which stages then end: 3 + 1 slots a request, not 3."""
    point = point_of(
        *("0.5.23", "Qwen/Qwen3.6-27B", 97887, 101000000000, 50000000000), parallel={"tp_size": 2, "pp_size": 2}
    )
    found = predicted(point)
    assert (found["slots_per_request"], found["slots"], found["requests"]) == (4, 357, 89)
    assert found["tokens"] == 936_821


def test_pages_stay_where_nobody_settles_the_strategy() -> None:
    """LFM2-MoE before 0.5.18: no_buffer makes no pages of one token. 1,000 tokens are 992 in whole pages of 16."""
    memory: dict[str, object] = {"page_size": 16, "max_total_tokens": 1000, "mamba_radix_cache_strategy": "no_buffer"}
    point = point_of("0.5.10", "LiquidAI/LFM2-8B-A1B", 143771, 10**11, 5 * 10**10, memory=memory)
    assert predicted(point)["tokens"] == 992


def test_trees_overlap_from_0_5_13() -> None:
    """extra_buffer: 3 + 2 slots a request with overlap, 3 + 1 without, which chains alone have before."""
    tree: dict[str, object] = {
        "algorithm": "EAGLE",
        "draft_model_path": "Qwen/Qwen3-8B",
        "num_steps": 3,
        "eagle_topk": 2,
        "num_draft_tokens": 8,
    }
    found = [
        predicted(
            point_of(
                *(version, "Qwen/Qwen3-Next-80B-A3B-Instruct", 143771, 10**11, 5 * 10**10),
                parallel={"tp_size": 2},
                speculative=tree,
                memory={"mamba_radix_cache_strategy": "extra_buffer"},
            )
        )["slots_per_request"]
        for version in ("0.5.12", "0.5.13")
    ]
    assert found == [4, 5]


def test_0_5_10_limits_tokens_before_it_parts_the_pools() -> None:
    """1,000 tokens of every layer, in whole pages 992; 992 × 49,152 / 44,236.8 = 1,102.2: 1,088 in whole pages."""
    memory: dict[str, object] = {"max_total_tokens": 1000, "page_size": 16}
    point = point_of("0.5.10", "openai/gpt-oss-20b", 143771, 10**11, 5 * 10**10, memory=memory)
    assert predicted(point)["tokens"] == 1_088


def test_pages_that_sparse_attention_fixes_want_extra_buffers() -> None:
    """`auto` becomes extra_buffer with pages above one token, also without overlap: 3 + 1 slots a request."""
    point = point_of(
        *("0.5.23", "zai-org/GLM-5.3-Flash", 143771, 150151800815, 78754234648),
        memory={"disable_overlap_schedule": True},
    )
    assert predicted(point)["slots_per_request"] == 4


def test_no_buffer_with_pages_that_sparse_attention_fixes() -> None:
    memory: dict[str, object] = {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True}
    refusals = check(point_of("0.5.23", "zai-org/GLM-5.3-Flash", 143771, 10**11, 10**10, memory=memory).config)
    assert [refusal.engine_error for refusal in refusals] == ["AssertionError: no_buffer only supports page_size=1."]


def test_a_draft_is_charged_in_its_own_type_where_the_target_asks_for_fp8() -> None:
    """Of 8 ranks each: 16 layers × 1 head × 512 × 1 B, and the draft's 5 layers × 1 head × 256 × 2 B."""
    point = point_of(
        *("0.5.23", "nvidia/Qwen3.8-27B-NVFP4", 183359, 181318457676, 135250239610),
        parallel={"tp_size": 8},
        speculative={"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"},
        memory={
            "mem_fraction_static": 0.7006,
            "max_running_requests": 33,
            "max_mamba_cache_size": 213,
            "mamba_ssm_dtype": "float32",
            "context_length": 46582,
            "disable_radix_cache": True,
        },
    )
    found = predicted(point)
    assert (found["cell_bytes"], found["tokens"]) == (8_192 + 2_560, 6_163_731)


def test_requests_fill_a_window_that_gpt_oss_counts_without_the_token_itself() -> None:
    """127 + 128 + 1 + 1 tokens of a request, two chunks of 2,048 and one more: 4,354 × 36,864 B of the smaller pool."""
    point = point_of(
        *("0.5.23", "openai/gpt-oss-120b", 15360, 15602810880, 7801405440),
        memory={"max_running_requests": 1, "disable_radix_cache": True},
    )
    assert predicted(point)["tokens"] == 95_533


def test_requests_that_leave_the_other_layers_no_room() -> None:
    """48 of them, which speculation takes when none are asked: 35,201 tokens of the window's pool would be 0.30 GiB."""
    point = point_of(
        *("0.5.20", "openai/gpt-oss-120b", 15360, 16041702850, 8250975070),
        parallel={"tp_size": 4},
        speculative={"algorithm": "EAGLE3", "draft_model_path": "meta-llama/Meta-Llama-3.1-8B"},
        memory={"mem_fraction_static": 0.5, "max_total_tokens": 3272, "disable_radix_cache": True},
    )
    for found in (predicted(point), predicted_pools(point)):
        assert found["refused"] == "window_cap_too_large"
    assert str(predicted(point)["text"]).startswith(
        "RuntimeError: SWA pool cap (35201 tokens, 0.30 GiB) leaves no room for the full KV pool within the available "
        "0.21 GiB."
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "ended with exit code 3 instead of an answer"),
        ("echo Warning: no GPU; exec cat > /dev/null", "said 'Warning: no GPU' instead of an answer"),
        ("echo '[1]'; exec cat > /dev/null", "said '[1]' instead of an answer"),
        ('echo \'{"version": "0.5.12", "served": []}\'; exit 4', "ended with exit code 4 instead of an answer"),
    ],
)
def test_an_engine_that_ends_or_says_something_else_is_told(tmp_path: Path, script: str, said: str) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    for place in (tmp_path / "releases" / "0.5.12", tmp_path / "transformers" / RELEASES["0.5.12"][0]):
        place.mkdir(parents=True)
    engine = Engine("0.5.12", tmp_path)
    try:
        with pytest.raises(EngineError) as caught:
            engine.__enter__()
            engine.ask({"model": "x"})
    finally:
        engine.__exit__(None, None, None)
    assert said in str(caught.value) and str(caught.value).count("\n") == 1


def test_a_draft_beside_windows_counts_from_0_5_15() -> None:
    """Qwen3-8B's 36 layers as gpt-oss-120b's own of 2,048 B: 18 + 36 of them, and 0.8 × 18 with a window."""
    answers = {}
    for version in ("0.5.14", "0.5.15"):
        point = point_of(
            *(version, "openai/gpt-oss-120b", 15360, 15602810880, 7801405440),
            speculative={"algorithm": "EAGLE", "draft_model_path": "Qwen/Qwen3-8B"},
        )
        answers[version] = predicted(point)["tokens"]
    # 7.265625 - 14.53125 × (1 - 0.735) GiB = 3,666,660,556 B for the pools:
    # // (2,048 × (18 + 14.4)) = 55,258, and // (2,048 × (54 + 14.4)) = 26,174
    assert answers == {"0.5.14": 55_258, "0.5.15": 26_174}


def test_0_5_8_asserts_extra_buffers_without_a_prefix_cache_too() -> None:
    memory: dict[str, object] = {"mamba_radix_cache_strategy": "extra_buffer", "disable_radix_cache": True}
    model = "tiiuae/Falcon-H1-0.5B-Instruct"
    for version, refused in (("0.5.8", "arguments"), ("0.5.16", None)):
        point = point_of(version, model, 15360, 15602810880, 7801405440, memory=memory | {"mem_fraction_static": 0.9})
        assert predicted(point)["refused"] == refused


def test_0_5_8_looks_at_no_interval_of_states() -> None:
    """Its check stands in the branch of another model (Glm4MoeForCausalLM); 0.5.9 has it where it belongs."""
    memory: dict[str, object] = {"mamba_radix_cache_strategy": "extra_buffer"}
    said = {}
    for version in ("0.5.8", "0.5.9"):
        point = point_of(
            *(version, "Qwen/Qwen3-Next-80B-A3B-Instruct", 143771, 10**11, 5 * 10**10),
            speculative={"algorithm": "NGRAM", "num_draft_tokens": 300},
            memory=memory,
        )
        said[version] = [refusal.engine_error for refusal in check(point.config)]
    tracked = "mamba_track_interval 256 must be greater than or equal to speculative_num_draft_tokens 300"
    assert said == {"0.5.8": [], "0.5.9": [f"AssertionError: {tracked}"]}


@pytest.mark.parametrize(
    ("model", "memory", "slots"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {}, 1),  # the cache goes
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"mamba_radix_cache_strategy": "extra_buffer"}, 4),  # 3 + 1 with drafts
        ("LiquidAI/LFM2-8B-A1B", {}, 3),  # nobody looks
    ],
)
def test_drafts_end_the_prefix_cache_in_0_5_9(model: str, memory: dict[str, object], slots: int) -> None:
    point = point_of(*("0.5.9", model, 143771, 10**11, 8 * 10**10), speculative={"algorithm": "NGRAM"}, memory=memory)
    assert predicted(point)["slots_per_request"] == slots


def test_0_5_9_estimates_requests_before_it_parts_the_pools() -> None:
    """700,000 tokens of 49,152 B, of every layer, fit: 700,000 × 512 / 131,072 = 2,734 requests. Parted, the pool has
    700,000 × 49,152 / 44,236.8 = 777,777, of which 0.5.10 takes 3,038."""
    asked = ("openai/gpt-oss-20b", 143771, 10**11, 10**10 + 700_000 * 49_152 + 1_000)
    memory: dict[str, object] = {"mem_fraction_static": 0.9}
    found = {version: predicted(point_of(version, *asked, memory=memory)) for version in ("0.5.9", "0.5.10")}
    assert [figures["tokens"] for figures in found.values()] == [777_777, 777_777]
    assert [figures["requests"] for figures in found.values()] == [2_734, 3_038]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nvidia/Qwen3.5-122B-A10B-NVFP4", "ValueError: ModelOptFp8Config only supports static FP8 quantization"),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "ValueError: Cannot find 'quant_algo' in the model's quantization config."),
    ],
)
def test_0_5_9_takes_every_modelopt_checkpoint_for_fp8(model: str, said: str) -> None:
    refusals = check(point_of("0.5.9", model, 143771, 10**11, 5 * 10**10).config)
    assert [(refusal.engine_error or "").startswith(said) for refusal in refusals] == [True]
    assert check(point_of("0.5.10", model, 143771, 10**11, 5 * 10**10).config) == []
