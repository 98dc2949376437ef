"""Families with Mamba2 layers: bytes at higher TP, pools that public logs show, weights, pipeline stages, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.architectures import lfm2
from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang import faults
from specbench.engines.sglang.checks import check, models
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.sizing.cell import stage_layers
from specbench.errors import SpecError
from specbench.layers import NOTHING, FullAttention, Mamba2, Together, UnevenSplitError, parts
from specbench.specs import ModelSpec, load_model
from specbench.units import GIB, Interval
from specbench.weights import Repacked, Tensor

NANO, SUPER = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"
MICRO, SMALL = "ibm-granite/granite-4.0-h-micro", "ibm-granite/granite-4.0-h-small"
FALCON, FALCON_7B = "tiiuae/Falcon-H1-0.5B-Instruct", "tiiuae/Falcon-H1-7B-Instruct"
LFM2, LFM2_MOE, JET = "LiquidAI/LFM2-700M", "LiquidAI/LFM2-8B-A1B", "jet-ai/Jet-Nemotron-2B"
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
        # one group: 8,192 / 8 inner channels and all 2 × 128 of the group on every rank
        (SMALL, 8, 2_048, 36 * 1_280 * 6, 36 * 524_288),
        (MICRO, 4, 2_048, 36 * 1_280 * 6, 36 * 524_288),
        # 2 KV heads on 4 ranks: one each, in all 36 layers; 6 heads of state and 384 + 256 channels
        (FALCON, 4, 9_216, 36 * 640 * 6, 36 * 196_608),
        (FALCON_7B, 2, 22_528, 44 * 2_048 * 6, 44 * 1_572_864),
        (LFM2, 4, 3_072, 10 * 384 * 4, 0),
        (LFM2_MOE, 8, 1_536, 18 * 256 * 4, 0),
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


def log_of(case: str, version: str, model: str, fraction: float) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": case,
            "engine": {"version": version},
            "model": model,
            "gpu": {"name": "rtx-pro-6000"},  # pre and post are measured: the card does not matter
            "memory": {"mem_fraction_static": fraction},
        }
    )


def logged(gib: float) -> Interval:
    """A figure of two decimals."""
    return Interval(*(round((gib + off) * GIB) for off in (-0.005, 0, 0.005)))


@pytest.mark.parametrize(
    ("model", "fraction", "pre", "post", "slots", "tokens"),
    [
        # Case granite4-h-micro-one-batch. The fraction is not in the log: 38 slots and 399,740 tokens need
        # 38 × 76,437,504 + 399,740 × 8,192 B = 5.755 GiB, so it is 1 - (9.26 - 5.755) / 15.24 = 0.770
        (MICRO, 0.770, 15.24, 9.26, 38, 399_740),
        # Case lfm2-700m-conv-only: 85,292 × 61,440 + 473,854 × 12,288 B = 10.303 GiB, 1 - 3.507 / 15.33 = 0.771
        (LFM2, 0.771, 15.33, 13.81, 85_292, 473_854),
    ],
)
def test_pools_of_a_public_log(model: str, fraction: float, pre: float, post: float, slots: int, tokens: int) -> None:
    found = predict(log_of("public", "0.5.10", model, fraction), pre_bytes=logged(pre), post_bytes=logged(post))
    got_slots, got_tokens = (found.limits[name].value for name in ("state_slots", "kv_tokens"))
    assert got_slots is not None and got_tokens is not None
    assert got_slots.low <= slots <= got_slots.high
    assert got_tokens.low <= tokens <= got_tokens.high
    # ten MiB of rounding on two figures, half of it each pool's
    assert got_slots.point == pytest.approx(slots, rel=0.002)
    assert got_tokens.point == pytest.approx(tokens, rel=0.002)


def test_without_a_prefix_cache_the_requests_are_the_slots() -> None:
    """The 48 slots of case hybrid-pdmux-48slots are its 48 requests, whatever the memory."""
    memory = {"mem_fraction_static": 0.82, "max_running_requests": 48, "disable_radix_cache": True}
    for version in ("0.5.12", "0.5.16", "0.5.23"):
        slots = predict(asked(NANO_9B, version, memory=memory)).limits["state_slots"].value
        assert slots is not None and (slots.low, slots.high) == (48, 48)


@pytest.mark.parametrize(("version", "per_request"), [("0.5.8", 1), ("0.5.16", 5)])
def test_a_head_without_prefix_cache_in_0_5_8(version: str, per_request: int) -> None:
    """0.5.8 turns the cache off for Nemotron-H as soon as anything drafts, and says so in a warning only."""
    head = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    assert settings(asked(SUPER, version, speculative=head)).slots_per_request == per_request
    assert settings(asked(SUPER, "0.5.8")).slots_per_request == 3


def test_what_the_pools_of_public_logs_take() -> None:
    micro, lfm2 = load_model(MICRO), load_model(LFM2)
    assert (gib(39 * windows(micro, 1)), gib(39 * states(micro, 1))) == (0.03, 2.74)
    assert gib(399_740 * token(micro, 1) // 2) == 1.52
    assert (gib(85_293 * windows(lfm2, 1)), states(lfm2, 1)) == (4.88, 0)
    assert gib(473_854 * token(lfm2, 1) // 2) == 2.71


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *[(NANO, 31.58), (SUPER, 120.67), (ULTRA, 549.3), (NANO_9B, 8.89), ("nvidia/Nemotron-H-8B-Base-8K", 8.10)],
        *[(SMALL, 32.207), ("ibm-granite/granite-4.0-h-tiny", 6.94), ("ibm-granite/granite-4.0-h-1b", 1.462)],
        *[(FALCON, 0.5215), (FALCON_7B, 7.586), (JET, 1.965), ("jet-ai/Jet-Nemotron-4B", 3.96)],
        *[(LFM2, 0.7425 + 0.1007), (LFM2_MOE, 8.34 + 0.1342)],  # the head is a second copy of the embedding
    ],
)
def test_the_tensors_sum_to_the_published_number_of_parameters(name: str, billions: float) -> None:
    """What the models are known by (31.6, 120.7, 550 billion …); a head for several tokens is not in it."""
    model = load_model(name)
    tensors = model.family.tensors(model.config, 1)
    count = sum(part.parameters for part in tensors if isinstance(part, Tensor | Repacked))
    assert count / 1e9 == pytest.approx(billions, rel=0.0005)


@pytest.mark.parametrize(("name", "logged"), [(MICRO, 5.98)])
def test_weights_match_the_log(name: str, logged: float) -> None:
    """GiB of "Load weight end … mem usage" of public logs, TP1, bf16."""
    size = load_model(name).weights_bytes(1)
    assert size is not None
    assert size.point / GIB == pytest.approx(logged, abs=0.02)


def test_falcon_keeps_its_head_in_float32() -> None:
    model = load_model(FALCON)
    last = list(model.family.tensors(model.config, 1))[-1]
    rows = 32_832  # 32,784 words, padded to a multiple of 64
    assert last == Repacked(before=rows * 1_024 * 2, bytes=rows * 1_024 * 4)


def test_the_older_names_of_lfm2(tmp_path: Path) -> None:
    new = load_model(LFM2)
    config = json.loads((new.folder / "config.json").read_text())
    del config["layer_types"]
    config |= {"full_attn_idxs": [2, 5, 8, 10, 12, 14], "block_ff_dim": config.pop("intermediate_size")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    old = load_model(tmp_path)
    assert old.layers == new.layers
    assert list(old.family.tensors(old.config, 2)) == list(new.family.tensors(new.config, 2))
    # two thirds of 10,240, in whole multiples of 256
    assert lfm2.intermediate(old.config) == 6_912


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


def test_stages_of_falcon_have_both_pools_of_their_own_layers() -> None:
    """44 layers on 3 stages: 14, 15 and 15, each with attention and state."""
    stages = stage_layers(load_model(FALCON_7B).layers, 3)
    assert [len(stage) for stage in stages] == [14, 15, 15]
    assert [len(list(parts(stage))) for stage in stages] == [28, 30, 30]


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


def test_a_model_that_is_named_as_a_draft_is_taken_for_its_head() -> None:
    """SGLang counts one layer for Nemotron-H, whatever its config says (configs/model_config.py)."""
    nano = load_model(NANO)
    assert nano.builtin_draft() is None
    assert nano.as_draft().layers == (FullAttention(kv_heads=2, head_dim=128, v_head_dim=128), NOTHING)
    assert load_model(FALCON).as_draft() is load_model(FALCON)
    head = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4, "draft_model_path": NANO}
    # a sixth more than the 6 layers × 1,024 B of the target
    assert predict(asked(NANO, "0.5.16", speculative=head)).details["charged_cell_bytes"].point == 7_168


# ── what versions refuse ─────────────────────────────────────────────────────────────────────────────────────────────


def asked(model: str, version: str, **sections: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "asked",
            "engine": {"version": version, "args": sections.pop("args", {})},
            "model": model,
            "gpu": {"name": "h200"},
            "memory": {"mem_fraction_static": 0.8, "max_running_requests": 8, **sections.pop("memory", {})},
            **sections,
        }
    )


TRITON = {"args": {"attention-backend": "triton"}}
EXTRA = {"memory": {"mamba_radix_cache_strategy": "extra_buffer"}}


@pytest.mark.parametrize(
    ("model", "version", "sections", "error"),
    [
        # As the recording nemo_nano_r32 ends.
        (
            *(NANO, "0.5.16", TRITON),
            (
                "AssertionError: NemotronHForCausalLM does not support triton attention backend,as the first layer "
                "might not be an attention layer"
            ),
        ),
        (NANO, "0.5.19", TRITON, None),
        (
            *(LFM2, "0.5.23", TRITON),
            (
                "AssertionError: Lfm2ForCausalLM does not support triton attention backend, as the first layer "
                "might not be an attention layer"
            ),
        ),
        (LFM2_MOE, "0.5.16", TRITON, None),
        (FALCON, "0.5.16", TRITON, None),
        (NANO, "0.5.12", EXTRA, "AssertionError: mamba extra_buffer is not supported for NemotronHForCausalLM model"),
        (NANO, "0.5.13", EXTRA, None),
        (LFM2, "0.5.16", EXTRA, "AssertionError: extra_buffer is not supported for Lfm2ForCausalLM; use no_buffer."),
        (FALCON, "0.5.16", EXTRA, None),
        (LFM2_MOE, "0.5.16", EXTRA, None),
        (
            LFM2_MOE,
            "0.5.17",
            EXTRA,
            "AssertionError: extra_buffer is not supported for Lfm2MoeForCausalLM; use no_buffer.",
        ),
        (MICRO, "0.5.23", {"speculative": {"algorithm": "NGRAM"}}, None),
    ],
)
def test_what_a_version_refuses_of_a_family(
    model: str, version: str, sections: dict[str, Any], error: str | None
) -> None:
    config = asked(model, version, **{key: dict(value) for key, value in sections.items()})
    found = list(models.refusals(config, version, load_model(model)))
    assert [refusal.engine_error for refusal in found] == ([] if error is None else [error])


@pytest.mark.parametrize("version", ["0.5.14", "0.5.15", "0.5.16"])
def test_nothing_settles_the_strategy_of_lfm2_moe(version: str) -> None:
    """Before 0.5.17 its models are no case of _handle_model_specific_adjustments, which refuses what goes with what."""
    lazy = {"mamba_radix_cache_strategy": "extra_buffer_lazy"}
    drafts = {"algorithm": "NGRAM", "num_draft_tokens": 8}
    assert check(asked(LFM2_MOE, version, memory=lazy, speculative=drafts)) == []
    assert [found.key for found in check(asked(NANO, version, memory=lazy, speculative=drafts))] == [
        "memory.mamba_radix_cache_strategy"
    ]


@pytest.mark.parametrize(
    ("model", "version", "sections", "words"),
    [
        (
            *(JET, "0.5.16", {}),
            (
                "cannot build JetNemotronForCausalLM (seen with 0.5.16: TypeError: JetNemotronDecoderLayer.__init__() "
                "got an unexpected keyword argument 'start_layer'); 0.5.22 can again."
            ),
        ),
        (JET, "0.5.23", {}, None),
        (
            *(FALCON, "0.5.23", {"parallel": {"pp_size": 2}}),
            "cannot cut FalconH1ForCausalLM into pipeline stages: its class asserts that it is the first and the last.",
        ),
        (NANO, "0.5.23", {"parallel": {"pp_size": 2}}, None),
        (SUPER, "0.5.16", {"speculative": {"algorithm": "NEXTN"}, "parallel": {"tp_size": 4}}, None),
        (
            *(NANO, "0.5.16", {"speculative": {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}}),
            (
                "ends as DFLASH asks for what NemotronHForCausalLM does not hand to a draft: ValueError: Model "
                "NemotronHForCausalLM implements neither set_dspark_layers_to_capture nor "
                "set_dflash_layers_to_capture, one of which is required for DFLASH/DSPARK."
            ),
        ),
        (
            *(NANO, "0.5.19", {"speculative": {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}}),
            None,
        ),
        (
            *(SMALL, "0.5.16", {"speculative": {"algorithm": "EAGLE", "draft_model_path": "Qwen/Qwen3-8B"}}),
            (
                "ends as EAGLE asks for what GraniteMoeHybridForCausalLM does not hand to a draft: AttributeError: "
                "'GraniteMoeHybridForCausalLM' object has no attribute 'get_embed_and_head'"
            ),
        ),
        (MICRO, "0.5.23", {"speculative": {"algorithm": "NGRAM"}}, None),
    ],
)
def test_what_ends_a_server_of_a_family(model: str, version: str, sections: dict[str, Any], words: str | None) -> None:
    """The arguments pass and the pools are predicted: the engine sizes them all the same, or never builds the model."""
    resolved = settings(asked(model, version, **{key: dict(value) for key, value in sections.items()}))
    assert faults.of(resolved) == words


def test_a_fault_is_said_beside_the_pools() -> None:
    found = predict(asked(JET, "0.5.16"))
    assert (found.verdict, found.fault and found.fault.partition(", but")[0]) == ("serves", "Memory suffices")
    assert found.limits["state_slots"].value is not None


@pytest.mark.parametrize(("version", "ends"), [("0.5.12", True), ("0.5.16", True), ("0.5.18", False)])
def test_granite_dies_of_triton_attention_after_its_pools_stand(version: str, ends: bool) -> None:
    found = predict(asked(MICRO, version, **TRITON))
    assert (found.fault is not None) == ends
    assert found.limits["state_slots"].value is not None
    assert ("layer_id=0" in (found.fault or "")) == ends


def test_granite_reads_no_state_type_of_its_config(tmp_path: Path) -> None:
    for name, kept in ((MICRO, None), (NANO_9B, "bfloat16")):
        config = json.loads((load_model(name).folder / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"mamba_ssm_dtype": "bfloat16"}))
        assert load_model(tmp_path).ssm_dtype == kept
    # what Nemotron's own configurations say is another key, which no version reads
    assert load_model(NANO).config.text("mamba_ssm_cache_dtype") == "float32"
    assert load_model(NANO).ssm_dtype is None


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


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (MICRO, {"layer_types": ["mamba"] * 39}, r"layer_types: 39 entries, unknown kinds none"),
        (LFM2, {"layer_types": ["conv"] * 15 + ["swa"]}, r"layer_types: 16 entries, unknown kinds \['swa'\]"),
        (FALCON, {"mamba_d_ssm": 1_500}, r"mamba_d_ssm: 1,500 is not 24 heads of 64"),
        (JET, {"efficient_attention_config": {}}, r"efficient_attention_config\.jet: missing"),
    ],
)
def test_a_mistake_of_another_family(tmp_path: Path, name: str, changes: dict[str, Any], message: str) -> None:
    config = json.loads((load_model(name).folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(SpecError, match=message) as caught:
        load_model(tmp_path)
    assert len(str(caught.value).splitlines()) <= 2
