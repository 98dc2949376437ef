"""What each SGLang version refuses: key, and the engine's own words (verbatim from releases and logs)."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.engines.sglang.checks import check
from specbench.errors import ConfigError

DFLASH = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
NEXTN = {"algorithm": "NEXTN"}
UNO = {"algorithm": "UNO", "num_draft_tokens": 16}
LORA = {"args": {"uno-lora-path": "adapter"}}
CUSTOM: dict[str, Any] = {"algorithm": "my_tree", "num_draft_tokens": 33, "eagle_topk": 4, "custom": {}}


def run(version: str, speculative: dict[str, Any] | None = None, **sections: Any) -> RunConfig:
    data: dict[str, Any] = {
        "name": "checks",
        "engine": {"version": version, **sections.pop("engine", {})},
        "model": "Qwen/Qwen3.6-27B",
        "gpu": {"name": "h200", "count": 8},
        "speculative": speculative or {"algorithm": "none"},
    }
    return RunConfig.model_validate(data | sections)


def only(config: RunConfig) -> tuple[str, str | None]:
    found = check(config)
    assert len(found) == 1, found
    assert found[0].reason and found[0].allowed
    return found[0].key, found[0].engine_error


EXTRA = {"mamba_radix_cache_strategy": "extra_buffer"}
LAZY = {"mamba_radix_cache_strategy": "extra_buffer_lazy"}
NO_BUFFER = {"mamba_radix_cache_strategy": "no_buffer"}


@pytest.mark.parametrize(
    "config",
    [
        run("0.5.12", DFLASH, memory=EXTRA),
        run("0.5.16", DFLASH),
        run("0.5.16", NEXTN),
        run("0.5.16", {"algorithm": "NGRAM"}),
        run("0.5.16", DFLASH, memory={"disable_radix_cache": True}),
        run("0.5.16", memory=NO_BUFFER | {"disable_overlap_schedule": True}),
        run("0.5.23", DFLASH, memory=LAZY),
        run("0.5.16", memory=LAZY),
        run("0.5.12"),
        run("0.5.12", NEXTN, memory={"disable_radix_cache": True}),
        run("0.5.8", NEXTN),
        run("0.5.6.post2"),
        run("0.5.16", parallel={"tp_size": 4, "pp_size": 2}),
        run("0.0.0.dev7", DFLASH, engine={"sizing": "0.5.16"}),
        run("0.5.16", {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3.5-9B"}),
        run("0.5.16", {**DFLASH, "algorithm": "DSPARK", "num_draft_tokens": 17}),
        run("0.5.20", UNO, engine=LORA, memory={"max_running_requests": 4}),
        run("0.5.15", {**DFLASH, "algorithm": "DDTREE"}, engine={"sizing": "0.5.15"}),
        run("0.5.16", CUSTOM, memory={"max_running_requests": 4, "disable_overlap_schedule": True}),
    ],
    ids=lambda config: f"{config.engine.version}-{config.speculative.algorithm}",
)
def test_what_runs_is_not_refused(config: RunConfig) -> None:
    assert check(config) == []


# ── state and prefix cache ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["0.5.10", "0.5.12", "0.5.13"])
@pytest.mark.parametrize("strategy", ["auto", "no_buffer"])
def test_speculation_with_a_radix_cache_wants_extra_buffer(version: str, strategy: str) -> None:
    assert only(run(version, NEXTN, memory={"mamba_radix_cache_strategy": strategy})) == (
        "memory.mamba_radix_cache_strategy",
        (
            "ValueError: Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache "
            "when using --mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        ),
    )


@pytest.mark.parametrize(("version", "stop"), [("0.5.10", ""), ("0.5.12", ""), ("0.5.13", ".")])
def test_extra_buffer_without_a_radix_cache(version: str, stop: str) -> None:
    assert only(run(version, memory=EXTRA | {"disable_radix_cache": True})) == (
        "memory.mamba_radix_cache_strategy",
        (
            f"ValueError: mamba extra_buffer is not compatible with --disable-radix-cache{stop} Overlap scheduling is "
            "already supported with no_buffer + disable_radix_cache. Please use --mamba-scheduler-strategy no_buffer "
            "instead."
        ),
    )
    assert check(run("0.5.14", memory=EXTRA | {"disable_radix_cache": True})) == []


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.16"])
def test_lazy_with_speculation(version: str) -> None:
    """Where draft tokens are given: a default comes after the engine's check (the oracle says so)."""
    said = "extra_buffer_lazy unsupported with spec."
    if version == "0.5.13":
        said = (
            "extra_buffer_lazy is not yet supported with speculative decoding. "
            "Use --mamba-scheduler-strategy extra_buffer instead."
        )
    widths = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    assert only(run(version, NEXTN | widths, memory=LAZY)) == (
        "memory.mamba_radix_cache_strategy",
        f"AssertionError: {said}",
    )
    assert check(run(version, NEXTN, memory=LAZY)) == []


def test_lazy_with_speculation_in_0_5_17() -> None:
    """All but DFLASH, whose default width comes after the check: the algorithm itself is looked at."""
    assert check(run("0.5.17", NEXTN | {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}, memory=LAZY)) == []
    assert only(run("0.5.17", DFLASH, memory=LAZY)) == (
        "memory.mamba_radix_cache_strategy",
        "AssertionError: extra_buffer_lazy unsupported with DFLASH; use --mamba-radix-cache-strategy extra_buffer.",
    )
    assert check(run("0.5.18", DFLASH, memory=LAZY)) == []


def test_lazy_without_overlap() -> None:
    assert only(run("0.5.16", memory=LAZY | {"disable_overlap_schedule": True})) == (
        "memory.disable_overlap_schedule",
        "AssertionError: Lazy extra buffer requires overlap schedule (--disable-overlap-schedule is incompatible)",
    )


@pytest.mark.parametrize(
    ("version", "strategy", "text"),
    [
        (
            "0.5.12",
            "extra_buffer_lazy",
            (
                "error: argument --mamba-scheduler-strategy: invalid choice: 'extra_buffer_lazy' "
                "(choose from 'auto', 'no_buffer', 'extra_buffer')"
            ),
        ),
        ("0.5.6.post2", "extra_buffer", "error: unrecognized arguments: --mamba-scheduler-strategy extra_buffer"),
    ],
)
def test_strategies_that_came_later(version: str, strategy: str, text: str) -> None:
    assert only(run(version, memory={"mamba_radix_cache_strategy": strategy})) == (
        "memory.mamba_radix_cache_strategy",
        text,
    )


def test_explicit_no_buffer_with_overlap() -> None:
    """The text of a real start that died of it (0.5.16)."""
    assert only(run("0.5.16", DFLASH, memory=NO_BUFFER)) == (
        "memory.disable_overlap_schedule",
        "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True.",
    )


def test_explicit_no_buffer_with_pages() -> None:
    config = run("0.5.16", memory=NO_BUFFER | {"disable_overlap_schedule": True, "page_size": 64})
    assert only(config) == ("memory.page_size", "AssertionError: no_buffer only supports page_size=1.")


@pytest.mark.parametrize(
    ("version", "page", "text"),
    [
        ("0.5.12", 96, "AssertionError: mamba_track_interval 256 must be divisible by page_size 96"),
        ("0.5.16", 96, "AssertionError"),
        ("0.5.16", 512, "AssertionError"),
    ],
)
def test_pages_that_do_not_fit_the_state(version: str, page: int, text: str) -> None:
    assert only(run(version, memory=EXTRA | {"page_size": page})) == ("memory.page_size", text)


def test_more_draft_tokens_than_the_tracking_interval() -> None:
    wide = {**DFLASH, "num_draft_tokens": 300}
    assert only(run("0.5.12", wide, memory=EXTRA)) == (
        "speculative.num_draft_tokens",
        "AssertionError: mamba_track_interval 256 must be greater than or equal to speculative_num_draft_tokens 300",
    )
    longer = {"args": {"mamba-track-interval": 512}}
    assert check(run("0.5.12", wide, memory=EXTRA, engine=longer)) == []


# ── speculation ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "algorithm", "reason"),
    [
        ("0.5.10", "DFLASH", "DFLASH exists since 0.5.11"),
        ("0.5.12", "DSPARK", "DSPARK exists since 0.5.16"),
        ("0.5.16", "UNO", "UNO exists since 0.5.20"),
    ],
)
def test_algorithms_newer_than_the_version(version: str, algorithm: str, reason: str) -> None:
    found = check(run(version, {"algorithm": algorithm, "draft_model_path": "x"}))
    assert found[0].key == "speculative.algorithm"
    assert found[0].reason == reason
    assert "EAGLE" in found[0].allowed and algorithm not in found[0].allowed


def test_algorithms_of_no_release() -> None:
    assert check(run("0.5.23", {"algorithm": "DDTREE"}))[0].reason.startswith("DDTREE is in no SGLang release")
    assert "did you mean DFLASH" in check(run("0.5.23", {"algorithm": "DFLAHS"}))[0].reason


def test_allowed_algorithms_are_those_of_the_version() -> None:
    assert check(run("0.5.12", {"algorithm": "DDTREE"}))[0].allowed == (
        "none, EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH, FROZEN_KV_MTP; the nearest is DFLASH"
    )
    assert check(run("0.5.8", {"algorithm": "DFLASH"}))[0].allowed == ("none, EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM")


def test_what_allow_refused_leads_to_is_said_as_it_is() -> None:
    unknown, newer, overridden = (
        check(run("0.5.12", section))[0]
        for section in ({"algorithm": "DDTREE"}, {"algorithm": "DSPARK"}, {**DFLASH, "num_steps": 3})
    )
    assert "nothing runs unless a fork or a plug-in brings the algorithm" in unknown.if_allowed
    assert newer.if_allowed.endswith("to see the engine's own error")
    assert overridden.if_allowed.endswith("the engine overrides the value")


@pytest.mark.parametrize(
    ("tp", "what"), [(3, "linear key heads of Qwen/Qwen3.6-27B (16)"), (16, "attention heads of Qwen/Qwen3.6-27B (24)")]
)
def test_ranks_that_the_model_does_not_divide_over(tp: int, what: str) -> None:
    found = check(run("0.5.16", gpu={"name": "h200", "count": 16}, parallel={"tp_size": tp}))
    assert [refusal.key for refusal in found] == ["parallel.tp_size"]
    assert found[0].reason == f"{what} do not divide over {tp} ranks"
    assert found[0].allowed == "1, 2, 4, 8 (of 1 to 16)"  # 8 and 16 divide the 16 key heads, only 8 the 24


def test_proposed_ranks_suit_the_draft_too() -> None:
    # the target alone (32 heads, 8 KV heads) would take 16 ranks, the draft's 24 heads do not
    sections: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "gpu": {"name": "h200", "count": 16}}
    for algorithm in ("STANDALONE", "EAGLE"):
        draft = {"algorithm": algorithm, "draft_model_path": "Qwen/Qwen3.6-27B"}
        found = check(run("0.5.16", draft, parallel={"tp_size": 16}, **sections))
        assert found[0].key == "parallel.tp_size" and found[0].allowed == "1, 2, 4, 8 (of 1 to 16)"


def test_ranks_of_one_attention_group_count() -> None:
    # 4 groups of 4 ranks: 24 heads over 4; 3 groups of 4 ranks work as well, 2 groups of 3 do not
    wide = {"tp_size": 16, "dp_size": 4, "enable_dp_attention": True}
    assert check(run("0.5.16", gpu={"name": "h200", "count": 16}, parallel=wide)) == []
    odd = {"tp_size": 6, "dp_size": 2, "enable_dp_attention": True}
    found = check(run("0.5.16", parallel=odd))
    assert [(refusal.key, refusal.allowed) for refusal in found] == [("parallel.tp_size", "2, 4, 8, 16 (of 1 to 16)")]


def test_algorithms_that_cannot_be_sized_may_still_run() -> None:
    assert check(run("0.5.16", {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3-8B"})) == []


@pytest.mark.parametrize(
    ("parallel", "key", "text"),
    [
        (
            {"pp_size": 2},
            "parallel.pp_size",
            "ValueError: Currently DFLASH speculative decoding only supports pp_size == 1.",
        ),
        (
            {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True},
            "parallel.enable_dp_attention",
            "ValueError: Currently DFLASH speculative decoding does not support dp attention.",
        ),
    ],
)
def test_dflash_parallelism(parallel: dict[str, Any], key: str, text: str) -> None:
    assert only(run("0.5.16", DFLASH, parallel=parallel)) == (key, text)


def test_dflash_with_dp_attention_is_allowed_from_0_5_23() -> None:
    parallel = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
    head = {"args": {"enable-dp-lm-head": True}}
    assert check(run("0.5.23", DFLASH, parallel=parallel, engine=head)) == []
    assert only(run("0.5.23", DFLASH, parallel=parallel)) == (
        "parallel.enable_dp_attention",
        "ValueError: DFLASH with dp attention requires --enable-dp-lm-head.",
    )
    assert only(run("0.5.22", DFLASH, parallel=parallel, engine=head)) == (
        "parallel.enable_dp_attention",
        "ValueError: Currently DFLASH speculative decoding does not support dp attention on non-NPU devices.",
    )


@pytest.mark.parametrize("version", ["0.5.19", "0.5.23"])
def test_minicpm_has_no_attention_dp(version: str) -> None:
    parallel = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}
    found = check(run(version, parallel=parallel).replace({"model": "openbmb/MiniCPM-SALA"}))
    assert [refusal.engine_error for refusal in found] == ["ValueError: MiniCPM does not support DP attention"]


def test_dflash_without_a_draft() -> None:
    assert only(run("0.5.16", {"algorithm": "DFLASH"})) == (
        "speculative.draft_model_path",
        "ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
    )


def test_dflash_block_size_and_draft_tokens_disagree() -> None:
    config = run("0.5.16", {**DFLASH, "num_draft_tokens": 16}, engine={"args": {"speculative_dflash_block_size": 8}})
    assert only(config) == (
        "speculative.num_draft_tokens",
        (
            "ValueError: Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they "
            "differ. For DFLASH they must match. speculative_num_draft_tokens=16, speculative_dflash_block_size=8."
        ),
    )


def test_ngram_with_dp_attention() -> None:
    parallel = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
    assert only(run("0.5.16", {"algorithm": "NGRAM"}, parallel=parallel)) == (
        "parallel.enable_dp_attention",
        "ValueError: Currently ngram speculative decoding does not support dp attention.",
    )


@pytest.mark.parametrize(
    ("keys", "missing"),
    [({"num_draft_tokens": 4}, "num_steps"), ({"num_steps": 3}, "eagle_topk"), ({"eagle_topk": 1}, "num_steps")],
)
def test_eagle_widths_come_together(keys: dict[str, int], missing: str) -> None:
    assert only(run("0.5.16", {**NEXTN, **keys}))[0] == f"speculative.{missing}"


def test_a_chain_of_the_wrong_width() -> None:
    keys = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 8}
    assert only(run("0.5.16", {**NEXTN, **keys})) == ("speculative.num_draft_tokens", None)


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_context_longer_than_the_models() -> None:
    key, text = only(run("0.5.16", memory={"context_length": 300000}))
    assert key == "memory.context_length"
    assert text == (
        "ValueError: Warning: User-specified context_length (300000) is greater than the derived context_length "
        "(262144). This may lead to incorrect model outputs or CUDA errors. Note that the derived context_length may "
        "differ from max_position_embeddings in the model's config. To allow overriding this maximum, set the env var "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
    )
    allowed = {"env": {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}}
    assert check(run("0.5.16", memory={"context_length": 300000}, engine=allowed)) == []


def test_kv_types_by_version() -> None:
    key, text = only(run("0.5.12", memory={"kv_cache_dtype": "mxfp8"}))
    assert key == "memory.kv_cache_dtype"
    assert text is not None and text.startswith("error: argument --kv-cache-dtype: invalid choice: 'mxfp8'")
    assert check(run("0.5.16", memory={"kv_cache_dtype": "mxfp8"})) == []


def test_more_ranks_than_gpus() -> None:
    found = check(run("0.5.16", gpu={"name": "h200", "count": 2}, parallel={"tp_size": 4}))
    assert [refusal.key for refusal in found] == ["gpu.count"]
    assert found[0].allowed.startswith("4 or more")


def test_ranks_on_a_cpu_need_no_gpus() -> None:
    engine = {"args": {"device": "cpu"}}
    assert check(run("0.5.23", gpu={"name": "cpu"}, parallel={"tp_size": 4}, engine=engine)) == []


def test_attention_ranks_divide() -> None:
    parallel = {"tp_size": 4, "dp_size": 3, "enable_dp_attention": True}
    assert [refusal.key for refusal in check(run("0.5.16", parallel=parallel))] == ["parallel.dp_size"]


def test_a_model_that_cannot_be_read_is_not_for_the_checks() -> None:
    config = run("0.5.16").replace({"model": "no/such-model", "memory.context_length": 10**9})
    assert check(config) == []


def test_versions_without_rules() -> None:
    with pytest.raises(ConfigError, match=r"engine\.version"):
        check(run("0.4.9"))


def test_the_params_loader_uses_them() -> None:
    from specbench.params import load_sections

    sections = run("0.5.16", DFLASH, memory=NO_BUFFER).to_sections()
    with pytest.raises(ConfigError, match=r"memory\.disable_overlap_schedule"):
        load_sections(**sections)
    sections["engine"]["allow_refused"] = True
    assert load_sections(**sections).engine.allow_refused


# ── the other algorithms ─────────────────────────────────────────────────────────────────────────────────────────────


STAGES = {"tp_size": 1, "pp_size": 2}
_V1 = "Pipeline parallelism is not compatible with overlap schedule, speculative decoding"


@pytest.mark.parametrize(
    ("version", "speculative", "said"),
    [
        ("0.5.8", NEXTN, f"{_V1}, mixed chunked prefill."),
        ("0.5.16", NEXTN, _V1),
        ("0.5.20", {"algorithm": "NGRAM"}, _V1),
        (
            "0.5.23",
            NEXTN,
            "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)",
        ),
        (
            "0.5.23",
            {"algorithm": "NGRAM"},
            "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding",
        ),
    ],
)
def test_nothing_drafts_over_pipeline_stages(version: str, speculative: dict[str, Any], said: str) -> None:
    assert only(run(version, speculative, parallel=STAGES)) == ("parallel.pp_size", f"AssertionError: {said}")


def test_a_variable_allows_eagle_over_stages_from_0_5_21() -> None:
    allowed = {"env": {"SGLANG_ENABLE_PP_SPEC": "1"}}
    assert check(run("0.5.21", NEXTN, parallel=STAGES, engine=allowed)) == []
    assert only(run("0.5.20", NEXTN, parallel=STAGES, engine=allowed))[0] == "parallel.pp_size"


@pytest.mark.parametrize(
    ("version", "speculative", "sections", "key", "said"),
    [
        (
            "0.5.16",
            {**DFLASH, "algorithm": "DSPARK", "num_draft_tokens": 16},
            {},
            "speculative.num_draft_tokens",  # the draft's block of 16 is gamma
            (
                "ValueError: DSpark speculative_num_draft_tokens must equal gamma + 1 (= 17 for gamma=16), but got "
                "speculative_num_draft_tokens=16."
            ),
        ),
        (
            "0.5.16",
            {"algorithm": "DSPARK"},
            {},
            "speculative.draft_model_path",
            "ValueError: DSpark dense speculative decoding requires setting --speculative-draft-model-path.",
        ),
        (
            "0.5.20",
            {**DFLASH, "algorithm": "DSPARK"},
            {"parallel": STAGES},
            "parallel.pp_size",
            "ValueError: Currently DSpark speculative decoding only supports pp_size == 1.",
        ),
        (
            "0.5.23",
            {**DFLASH, "algorithm": "DSPARK"},
            {"parallel": STAGES},
            "parallel.pp_size",
            (
                "ValueError: DSpark pipeline parallelism requires PD prefill; decode and non-disaggregated serving "
                "require pp_size == 1."
            ),
        ),
        (
            "0.5.12",
            {"algorithm": "STANDALONE", "draft_model_path": "Qwen/Qwen3.5-9B"},
            {"memory": EXTRA, "parallel": {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}},
            "parallel.enable_dp_attention",
            "ValueError: Currently standalone speculative decoding does not support dp attention.",
        ),
        (
            "0.5.20",
            UNO,
            {"memory": {"max_running_requests": 4}},
            "engine.args.uno-lora-path",
            "ValueError: UNO requires --uno-lora-path.",
        ),
        ("0.5.20", UNO, {"engine": LORA}, "memory.max_running_requests", "AssertionError"),
        (
            "0.5.20",
            UNO,
            {"engine": LORA, "memory": {"max_running_requests": 4}, "parallel": {"tp_size": 2}},
            "parallel.tp_size",
            "ValueError: UNO requires TP=PP=1.",
        ),
        (
            "0.5.20",  # 3 steps of top-k 2: 1 + 2 + 4 + 8 = 15 nodes, but only 2 × (4 - 2) + 1 parents
            {"algorithm": "UNO", "num_draft_tokens": 15, "eagle_topk": 2, "num_steps": 3},
            {"engine": LORA, "memory": {"max_running_requests": 4}},
            "speculative.num_draft_tokens",
            (
                "ValueError: UNO tree mode cannot represent the requested Q in EAGLE's parent-list ABI: Q-1=14 exceeds "
                "K*(F-2)+1=5 for F=4, K=2."
            ),
        ),
        (
            "0.5.15",
            {**DFLASH, "algorithm": "DDTREE"},
            {"engine": {"sizing": "0.5.15"}, "memory": {"page_size": 64}},
            "memory.page_size",
            "ValueError: DDTREE currently supports only page_size == 1. Got page_size=64.",
        ),
        (
            "0.5.16",
            CUSTOM,
            {"memory": {"max_running_requests": 4}},
            "memory.disable_overlap_schedule",
            "ValueError: Speculative algorithm MY_TREE does not support overlap scheduling.",
        ),
        (
            "0.5.16",
            {**CUSTOM, "algorithm": "DFLASH"},
            {"memory": {"max_running_requests": 4}},
            "speculative.algorithm",
            "ValueError: 'DFLASH' is a reserved speculative algorithm name; cannot be re-registered.",
        ),
        ("0.5.11", {**CUSTOM, "custom": {"overlap": True}}, {"memory": EXTRA}, "speculative.algorithm", None),
        (
            "0.5.16",
            {**CUSTOM, "custom": {"overlap": True}},
            {},
            "memory.max_running_requests",
            "AssertionError",
        ),
        ("0.5.15", {**DFLASH, "algorithm": "DDTREE"}, {}, "speculative.algorithm", None),
    ],
)
def test_what_the_other_algorithms_demand(
    version: str, speculative: dict[str, Any], sections: dict[str, Any], key: str, said: str | None
) -> None:
    found = check(run(version, speculative, **sections))
    assert (found[0].key, found[0].engine_error) == (key, said)


def test_frozen_kv_mtp_has_no_widths_of_its_own() -> None:
    found = check(run("0.5.16", {"algorithm": "FROZEN_KV_MTP", "draft_model_path": "Qwen/Qwen3.5-9B"}))
    assert [refusal.key for refusal in found] == [
        "speculative.num_steps",
        "speculative.eagle_topk",
        "speculative.num_draft_tokens",
    ]


# ── trees of drafts over pages ───────────────────────────────────────────────────────────────────────────────────────

PLAIN = {"model": "Qwen/Qwen3-32B", "memory": {"page_size": 16}}
E5M2 = {"model": "Qwen/Qwen3-32B", "memory": {"page_size": 16, "kv_cache_dtype": "fp8_e5m2"}}
EAGLE3 = {"algorithm": "EAGLE3", "draft_model_path": "Qwen/Qwen3-8B"}
TREE = EAGLE3 | {"num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 8}
NGRAM_PAGED = (
    "ValueError: speculative_eagle_topk(10) > 1 with page_size(16) > 1 is unstable and produces incorrect results for "
    "paged attention backends. This combination is only supported for the 'flashinfer' backend."
)
TREE_PAGED = (
    "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged "
    "attention backends. This combination is only supported for the 'flashinfer' backend."
)
TREE_PAGED_0_5_13 = (
    "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', 'triton'); "
    "got attention_backend='flashmla'. Use page_size == 1 or one of those backends."
)


def backend(name: str, **args: object) -> dict[str, Any]:
    return {"args": {"attention-backend": name, **args}}


@pytest.mark.parametrize(
    ("config", "error"),
    [
        # NGRAM: flashinfer alone (server_args.py:1852 of 0.5.6.post2 to arg_groups/speculative_hook.py:1356 of 0.5.23)
        (run("0.5.6.post2", {"algorithm": "NGRAM"}, engine=backend("triton"), **PLAIN), NGRAM_PAGED),
        (run("0.5.12", {"algorithm": "NGRAM"}, engine=backend("fa3"), **PLAIN), NGRAM_PAGED),
        (run("0.5.23", {"algorithm": "NGRAM"}, engine=backend("triton"), **PLAIN), NGRAM_PAGED),
        # EAGLE: fa3, too, and triton from 0.5.13 on
        (run("0.5.12", TREE, engine=backend("triton"), **PLAIN), TREE_PAGED),
        (run("0.5.13", TREE, engine=backend("flashmla"), **PLAIN), TREE_PAGED_0_5_13),
        # fa3 becomes triton for KV of e5m2 (server_args.py:1481 of 0.5.6.post2)
        (run("0.5.6.post2", TREE, engine=backend("fa3"), **E5M2), TREE_PAGED),
        (run("0.5.12", TREE, engine=backend("fa3"), **E5M2), TREE_PAGED),
    ],
)
def test_a_tree_over_pages_runs_with_some_attention_backends(config: RunConfig, error: str) -> None:
    assert only(config) == ("memory.page_size", error)


@pytest.mark.parametrize(
    "config",
    [
        run("0.5.23", {"algorithm": "NGRAM"}, engine=backend("flashinfer"), **PLAIN),
        run("0.5.23", {"algorithm": "NGRAM"}, engine=backend("triton"), model="Qwen/Qwen3-32B"),
        run("0.5.16", {"algorithm": "NGRAM"}, engine=backend("triton", speculative_ngram_max_bfs_breadth=1), **PLAIN),
        run("0.5.16", {"algorithm": "NGRAM"}, **PLAIN),  # which one the engine chooses depends on the card
        run("0.5.12", TREE, engine=backend("fa3"), **PLAIN),
        run("0.5.13", TREE, engine=backend("fa3"), **E5M2),
        run("0.5.16", TREE, engine=backend("triton"), **PLAIN),
        run("0.5.12", {**TREE, "eagle_topk": 1, "num_draft_tokens": 4}, engine=backend("triton"), **PLAIN),
    ],
)
def test_a_chain_a_page_of_one_and_a_backend_that_is_not_stated_are_taken(config: RunConfig) -> None:
    assert check(config) == []
