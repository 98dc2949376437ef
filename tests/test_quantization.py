"""Tensors of quantized checkpoints: each scheme by hand, each format's lists, and the models that are shipped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from specbench import quantization
from specbench.budget.predict import predict
from specbench.configuration import yamltext
from specbench.configuration.config import RunConfig
from specbench.engines.sglang import arguments
from specbench.errors import SpecError
from specbench.hf import HfConfig
from specbench.layers import UnevenSplitError
from specbench.quantization import matching
from specbench.quantization.contract import Experts, Kind, Linear, Recipe, Scheme
from specbench.quantization.fp8 import Fp8Blocks, Fp8Scaled
from specbench.quantization.integers import Awq, Gptq, PackQuantized
from specbench.quantization.mxfp4 import MxFp4
from specbench.quantization.nvfp4 import NvFp4
from specbench.quantization.unquantized import UNQUANTIZED, Unquantized
from specbench.specs import load_model
from specbench.units import GIB, Interval
from specbench.weights import Doubt, Repacked, RotaryTable

#: gate and up of a small MLP: two parts of 512 rows, 1024 columns.
UP = Linear(module="m", outs=(512, 512), inp=1024, whole_inp=1024, ranks=1, itemsize=2)
#: The down projection of the same MLP on one of two ranks: 1024 rows, 256 of 512 columns.
DOWN = Linear(module="m", outs=(1024,), inp=256, whole_inp=512, ranks=2, itemsize=2)
#: Four gated experts, hidden size 1024, 256 rows each on one of two ranks.
EXPERTS = Experts(
    module="m.experts", number=4, hidden=1024, width=256, whole_width=512, ranks=2, gated=True, itemsize=2
)


def sizes(scheme: Scheme, of: Linear | Experts) -> list[int | tuple[int, int]]:
    """Bytes of each tensor; (before, after) of one that is built anew."""
    parts = scheme.linear(of) if isinstance(of, Linear) else scheme.experts(of)
    found: list[int | tuple[int, int]] = []
    for part in parts:
        assert not isinstance(part, RotaryTable)
        if isinstance(part, Doubt):
            continue  # nothing is allocated
        found.append((part.before, part.bytes) if isinstance(part, Repacked) else part.bytes)
    return found


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (Unquantized(), [2097152]),  # 1024 × 1024 × 2
        # one byte a weight; 8 × 8 blocks of 128 × 128, four bytes each
        (Fp8Blocks(rows=128, columns=128), [1048576, 256]),
        # mxfp8: a byte per 32 columns
        (Fp8Blocks(rows=1, columns=32, scale_bytes=1), [1048576, 32768]),
        # a float per part becomes one per row; a float per part for the activations
        (Fp8Scaled(per="tensor", static=True), [1048576, (8, 4096), 8]),
        (Fp8Scaled(per="tensor", static=False), [1048576, (8, 4096)]),
        (Fp8Scaled(per="row", static=False), [1048576, 4096]),
        # half a byte; input scale and second weight scale; 1024 × 64 scales of a byte fill the tiles; alpha, inverse
        (NvFp4(), [524288, 8, 8, 65536, 4, 4]),
        (NvFp4(weight_only=True), [(524288, 524288), (8, 2), (65536, 65536)]),
        (MxFp4(), [2097152]),  # experts only
        # half a byte; 8 groups × 1024 columns of 4-bit zero points; the same of 16-bit scales
        (Awq(bits=4, group=128), [(524288, 524288), (4096, 4096), (16384, 16384)]),
        # the order of 1024 columns and the zero points are dropped
        (Gptq(bits=4, group=128, ordered=False), [(524288, 524288), (4096, 0), (16384, 16384), (4096, 0)]),
        (Gptq(bits=8, group=-1, ordered=False), [(1048576, 1048576), (4096, 0), (2048, 2048), (1024, 0)]),
        (PackQuantized(bits=4, group=32, symmetric=True, ordered=False), [(524288, 524288), (65536, 65536), 16]),
        (
            PackQuantized(bits=4, group=32, symmetric=False, ordered=False),
            [(524288, 524288), (65536, 65536), 16, (16384, 16384)],
        ),
    ],
    ids=repr,
)
def test_a_merged_projection(scheme: Scheme, expected: list[int | tuple[int, int]]) -> None:
    assert sizes(scheme, UP) == expected


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (Fp8Blocks(rows=128, columns=128), [262144, 8 * 2 * 4]),
        (NvFp4(), [131072, 4, 4, 16384, 4, 4]),
        # in the order of the activations, every rank needs the scales of all 512 columns: 4 groups × 1024 × 2
        (Gptq(bits=4, group=128, ordered=True), [(131072, 131072), (1024, 2048), (8192, 8192), (2048, 0)]),
        (Gptq(bits=4, group=128, ordered=False), [(131072, 131072), (1024, 0), (4096, 4096), (1024, 0)]),
    ],
    ids=repr,
)
def test_a_projection_whose_columns_are_split(scheme: Scheme, expected: list[int | tuple[int, int]]) -> None:
    assert sizes(scheme, DOWN) == expected


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (Unquantized(), [4194304, 2097152]),  # 4 × 512 × 1024 × 2, 4 × 1024 × 256 × 2
        # per expert 2 × (2 × 8) and 8 × 2 blocks
        (Fp8Blocks(rows=128, columns=128), [2097152, 1048576, 512, 256]),
        (Fp8Scaled(per="tensor", static=True), [2097152, 1048576, 32, 16, 16, 16]),
        (Fp8Scaled(per="row", static=False), [2097152, 1048576, 8192, 16384]),
        # half a byte; a byte per 16; weight and input scales of gate, up and down per expert
        (NvFp4(), [1048576, 524288, 131072, 65536, 32, 16, 32, 16]),
        # weights, a byte per 32, 16-bit biases, of each of both
        (MxFp4(), [1048576, 65536, 4096, 524288, 32768, 8192]),
        (
            Awq(bits=4, group=128),
            [(1048576, 1048576), (524288, 524288), (32768, 32768), (16384, 16384), (8192, 8192), (4096, 4096)],
        ),
        # w2 keeps the scales of both ranks: 4 × 1024 × 4 groups × 2; the order is dropped
        (
            Gptq(bits=4, group=128, ordered=False),
            [
                *[(1048576, 1048576), (524288, 524288), (32768, 32768), (32768, 32768), 4096, 4096],
                *[(16384, 0), (4096, 0), (16384, 0), (4096, 0)],
            ],
        ),
        (
            PackQuantized(bits=4, group=32, symmetric=True, ordered=False),
            [1048576, 524288, 131072, 65536, 16, 16, (16384, 0), (4096, 0), (16384, 0), (4096, 0)],
        ),
    ],
    ids=repr,
)
def test_experts(scheme: Scheme, expected: list[int | tuple[int, int]]) -> None:
    assert sizes(scheme, EXPERTS) == expected


#: As in engine_tensors.yaml: name -> our scheme.
ENGINE: dict[str, Scheme] = {
    "fp8 blocks": Fp8Blocks(rows=128, columns=128),
    "fp8 tensor static": Fp8Scaled(per="tensor", static=True),
    "fp8 tensor dynamic": Fp8Scaled(per="tensor", static=False),
    "modelopt fp8": Fp8Scaled(per="tensor", static=True),
    "modelopt nvfp4": NvFp4(),
    "modelopt nvfp4 weight only": NvFp4(weight_only=True),
    "compressed-tensors nvfp4": NvFp4(),
    "awq": Awq(bits=4, group=128),
    "gptq": Gptq(bits=4, group=128, ordered=False),
    "gptq ordered": Gptq(bits=4, group=128, ordered=True),
    "pack-quantized": PackQuantized(bits=4, group=32, symmetric=True, ordered=False),
    "pack-quantized asymmetric": PackQuantized(bits=4, group=32, symmetric=False, ordered=False),
    "mxfp4": MxFp4(),
}
#: What is there only while loading (it then shares the memory of the scales), and what is made afterwards.
PASSING = ("w13_blockscale_swizzled", "w2_blockscale_swizzled")
ANSWERS: dict[str, Any] = dict(yamltext.read_mapping(Path(__file__).parent / "engine_tensors.yaml", expected="answers"))


def test_every_answer_of_the_engine_has_its_scheme() -> None:
    assert set(ANSWERS["schemes"]) == set(ENGINE)
    assert sum(map(len, ANSWERS["schemes"].values())) == 30


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_creates_the_same_tensors(name: str) -> None:
    narrow = dataclasses.replace(EXPERTS, width=360, whole_width=360, ranks=1) if name == "mxfp4" else EXPERTS
    layers: dict[str, Linear | Experts] = {"up": UP, "down": DOWN, "moe": narrow}
    for layer, told in ANSWERS["schemes"][name].items():
        mine = sorted(size[0] if isinstance(size, tuple) else size for size in sizes(ENGINE[name], layers[layer]))
        want = sorted(size for parameter, size in told.items() if parameter not in PASSING)
        if isinstance(ENGINE[name], NvFp4) and layer != "moe":
            weight_only = name.endswith("weight only")
            # made after loading: alpha and an inverse; the input scale of weights alone is dropped at once
            mine = sorted([*mine, 8]) if weight_only else mine[2:]
        assert mine == want, layer


def test_block_scales_that_do_not_fill_their_tiles_lie_twice() -> None:
    odd = Linear(module="m", outs=(96,), inp=32, whole_inp=32, ranks=1, itemsize=2)
    # 96 × 2 scales as loaded, and padded to 128 × 4
    assert sizes(NvFp4(), odd) == [1536, 4, 4, 192, 512, 4, 4]


def test_experts_whose_width_holds_no_group_get_smaller_groups() -> None:
    narrow = Experts(module="m", number=1, hidden=256, width=64, whole_width=512, ranks=8, gated=True, itemsize=2)
    # 64 columns: groups of 64 instead of 128; w13 has 4 of them a row, w2 one
    assert sizes(Awq(bits=4, group=128), narrow)[2:4] == [(1024, 1024), (512, 512)]


def test_experts_of_mxfp4_are_padded_to_whole_tiles() -> None:
    # gpt-oss-120b at TP8: 2880 / 8 = 360 rows of an expert become 384
    narrow = Experts(module="m", number=1, hidden=2880, width=360, whole_width=2880, ranks=8, gated=True, itemsize=2)
    assert sizes(MxFp4(), narrow)[0] == 2 * 384 * 2880 // 2


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (Fp8Blocks(rows=128, columns=192), r"columns of m, in blocks of 192,: 512 cannot be split over 2"),
        (NvFp4(group=96), r"columns of m, in groups of 96,: 512 cannot be split over 2"),
        (Awq(bits=4, group=192), r"columns of m, in groups of 192,: 512 cannot be split over 2"),
    ],
)
def test_a_split_that_cuts_a_block_is_refused(scheme: Scheme, message: str) -> None:
    with pytest.raises(UnevenSplitError, match=message):
        list(scheme.linear(DOWN))


# ── lists of modules ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_of_a_module_in_a_checkpoint() -> None:
    assert matching.parts("model.layers.3.self_attn.qkv_proj") == (
        *("model.layers.3.self_attn.q_proj", "model.layers.3.self_attn.k_proj", "model.layers.3.self_attn.v_proj"),
    )
    assert "model.language_model.layers.3.mlp.gate" in matching.spellings("model.layers.3.mlp.gate")
    assert "backbone.layers.3.mixer" in matching.spellings("model.layers.3.mixer")


@pytest.mark.parametrize(
    ("listed", "module", "expected"),
    [
        (matching.Paths(["mlp.gate"]), "model.layers.0.mlp.gate", True),
        (matching.Paths(["mlp.gate"]), "model.layers.0.mlp.gate_up_proj", False),  # a component, not a substring
        (matching.Paths(["model.layers.0"]), "model.layers.0.mlp.down_proj", True),
        (matching.Paths(["model.layers.1"]), "model.layers.10.mlp.down_proj", False),
        (matching.Paths(["model.language_model.layers.0.mlp.gate_proj"]), "model.layers.0.mlp.gate_up_proj", False),
        (
            matching.Paths([f"model.language_model.layers.0.mlp.{part}_proj" for part in ("gate", "up")]),
            "model.layers.0.mlp.gate_up_proj",
            True,
        ),
        (matching.Globs(["mtp*"]), "mtp.layers.0.mlp.down_proj", True),
        (matching.Globs(["model.layers.0*"]), "model.layers.0.mlp.down_proj", True),
        (matching.Globs(["*.mlp.shared_expert.*"]), "model.layers.7.mlp.shared_expert.down_proj", True),
        (matching.Globs(["model.layers.1.*"]), "model.layers.10.mlp.down_proj", False),
        (matching.Globs([]), "lm_head", False),
        (matching.Substrings(["linear_attn"]), "model.layers.0.linear_attn.out_proj", True),
        (matching.RegexesOrEnds(["re:.*self_attn.*"]), "model.layers.0.self_attn.o_proj", True),
        (matching.RegexesOrEnds([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]), "model.layers.0.mlp.down_proj", True),
        (matching.RegexesOrEnds([r"re:.*mlp\.(gate|up)_proj.*"]), "model.layers.0.mlp.experts", False),
        (matching.RegexesOrEnds(["self_attn.o_proj"]), "model.layers.0.self_attn.o_proj", True),
        (matching.RegexesOrEnds(["model.layers.0.mlp"]), "model.layers.0.mlp.down_proj", False),  # never a parent
    ],
)
def test_lists(listed: matching.Listed, module: str, expected: bool) -> None:
    assert (module in listed) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+b", "(a|a)*b", "(?:a?){40}b", "((a)b)*c", "(", "x" * 3_000),
        *(".*" * 8 + "x", ".+" * 5 + "x", ".{0,60}" * 5 + "x", ".?" * 30 + "x", "a{99999999999999999999}"),
    ],
)
def test_an_expression_that_may_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(SpecError, match=r"is no regular expression that is matched here") as caught:
        matching.RegexesOrEnds([f"re:{pattern}"])
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize(
    ("pattern", "module"),
    [
        (r"model\.layers\.\d+\.mlp\.experts\.\d+\..*", "model.layers.3.mlp.experts.17.up_proj"),
        (r".*\.(q|k|v)_proj$", "model.layers.0.self_attn.q_proj"),
        (r"(?:model\.)?layers\.[0-9*+]+\.mlp", "layers.12.mlp"),
        (r"(?:la)+yers", "layers"),
    ],
)
def test_expressions_of_real_checkpoints_are_matched(pattern: str, module: str) -> None:
    assert matching.compiled(pattern).match(module)


@pytest.mark.parametrize(
    ("kind", "entries", "what"),
    [
        (matching.Substrings, (f"m{number}" for number in range(2_001)), "a list of parts of names"),
        (matching.Globs, (f"m{number}*" for number in range(401)), "a list of modules with stars"),
        (matching.RegexesOrEnds, (f"re:m{number}" for number in range(401)), "a list of expressions"),
        (matching.Paths, (f"m{number}" for number in range(200_001)), "a list of modules"),
    ],
)
def test_lists_by_the_thousand_are_refused(kind: type[matching.Listed], entries: Iterable[str], what: str) -> None:
    with pytest.raises(SpecError, match=rf"{what} has [\d,]+ entries; expected [\d,]+ at most"):
        kind(entries)


def test_a_list_of_too_many_stars_is_refused() -> None:
    with pytest.raises(SpecError, match=r"has more than 4 stars") as caught:
        matching.Globs(["*a" * 30])
    assert str(caught.value).count("\n") == 1
    assert "model.layers.0.mlp" in matching.Globs(["model.**.mlp"])  # several in a row are one


@pytest.mark.parametrize("blocks", [3, True, 0.5, [3], {"a": 1}, [f"model.layers.{number}" for number in range(1_001)]])
def test_blocks_of_an_autoround_checkpoint_are_a_list_of_texts(blocks: Any) -> None:
    with pytest.raises(SpecError) as caught:
        recipe(quant_method="auto-round", bits=4, group_size=128, block_name_to_quantize=blocks)
    assert str(caught.value).count("\n") == 1


def test_groups_by_the_hundred_are_refused() -> None:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
    with pytest.raises(SpecError, match=r"config_groups has 33 entries; expected 32 at most"):
        recipe(quant_method="compressed-tensors", config_groups={f"group_{number}": group for number in range(33)})


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def recipe(**section: Any) -> Recipe:
    return quantization.recipe(HfConfig(where="config.json: ", data={"quantization_config": section}))


AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
DOWN_PROJ, ROUTED = "model.layers.0.mlp.down_proj", "model.layers.0.mlp.experts"
LINEAR = {"targets": ["Linear"], "input_activations": None}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
FP8_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel"}


def mixed(**layers: dict[str, str]) -> dict[str, Any]:
    return {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


def compressed(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"g": {**LINEAR, "weights": weights}}, **more}


@pytest.mark.parametrize(
    ("section", "module", "kind", "expected"),
    [
        ({"quant_method": "fp8"}, "model.layers.0.mlp.down_proj", "linear", Fp8Scaled(per="tensor", static=False)),
        ({"quant_method": "fp8"}, "lm_head", "head", UNQUANTIZED),  # only projections and experts
        (
            {"quant_method": "fp8", "activation_scheme": "static"},
            DOWN_PROJ,
            "linear",
            Fp8Scaled(per="tensor", static=True),
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["model.layers.0"]},
            "model.layers.0.mlp.experts",
            "experts",
            UNQUANTIZED,
        ),
        # DeepSeek-V4 …-NVFP4: experts of their own, those of the MTP head stay in blocks
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4", "ignore": ["mtp.*"]},
            "model.layers.0.ffn.experts",
            "experts",
            NvFp4(),
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4", "ignore": ["mtp.*"]},
            "mtp.0.ffn.experts",
            "experts",
            Fp8Blocks(rows=128, columns=128),
        ),
        ({"quant_algo": "FP8", "ignore": ["lm_head"]}, "lm_head", "head", UNQUANTIZED),
        ({"quant_algo": "NVFP4"}, "lm_head", "head", NvFp4()),  # ModelOpt's head is quantized unless excluded
        (
            {"quantization": {"quant_algo": "NVFP4", "group_size": 16}},
            DOWN_PROJ,
            "linear",
            NvFp4(),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}},
            },
            "model.layers.0.mlp.gate_up_proj",
            "linear",
            Fp8Scaled(per="tensor", static=True),
        ),
        (
            mixed(**{"backbone.layers.1.mixer.experts.0.up_proj": {"quant_algo": "W4A16_NVFP4"}}),
            "model.layers.1.mixer.experts",
            "experts",
            NvFp4(weight_only=True),
        ),
        (
            mixed(lm_head={"quant_algo": "FP8"}),
            "model.layers.1.mlp.down_proj",
            "linear",
            UNQUANTIZED,
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 64},
            "model.layers.0.mlp.experts",
            "experts",
            Awq(bits=4, group=64),
        ),
        ({"quant_method": "awq", "modules_to_not_convert": ["visual"]}, "lm_head", "head", UNQUANTIZED),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
            DOWN_PROJ,
            "linear",
            Gptq(bits=4, group=128, ordered=True),
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"-:.*self_attn.*": {}}},
            "model.layers.0.self_attn.o_proj",
            "linear",
            UNQUANTIZED,
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"+:.*down_proj": {"bits": 8}}},
            DOWN_PROJ,
            "linear",
            Gptq(bits=8, group=128, ordered=False),
        ),
        (
            {**AUTO_ROUND, "sym": True},
            ROUTED,
            "experts",
            Gptq(bits=4, group=128, ordered=False),
        ),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "extra_config": {f"model.layers.0.self_attn.{part}_proj": {"bits": 16} for part in "qkv"},
            },
            "model.layers.0.self_attn.qkv_proj",
            "linear",
            UNQUANTIZED,
        ),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "block_name_to_quantize": "model.language_model.layers",
            },
            "mtp.layers.0.mlp.down_proj",
            "linear",
            UNQUANTIZED,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {**LINEAR, "weights": INT4}},
            },
            "model.layers.0.mlp.experts",
            "experts",
            PackQuantized(bits=4, group=32, symmetric=True, ordered=False),
        ),
        (  # Kimi-K2.5: only the routed experts
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {**LINEAR, "weights": INT4}},
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
            "model.layers.0.self_attn.o_proj",
            "linear",
            UNQUANTIZED,
        ),
        (  # Kimi-K3
            compressed(MXFP4),
            "model.layers.0.block_sparse_moe.experts",
            "experts",
            MxFp4(),
        ),
        (
            compressed(FP8_CHANNEL),
            "lm_head",
            "head",
            UNQUANTIZED,
        ),
        ({"quant_method": "mxfp4"}, "model.layers.0.self_attn.o_proj", "linear", UNQUANTIZED),
    ],
    ids=lambda value: str(value)[:50],
)
def test_which_scheme_a_module_gets(section: dict[str, Any], module: str, kind: Kind, expected: Scheme) -> None:
    found = recipe(**section).scheme(module, kind)
    assert found == expected or type(found) is type(expected) is MxFp4


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quant_method": "of-tomorrow"}, r"quant_method: the tensors of 'of-tomorrow' are not known"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, r"weight_block_size: got \[128\]; expected two positive"),
        ({"quant_algo": "INT2"}, r"quant_algo: got 'INT2'; known are FP8, NVFP4"),
        (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": [1]}}},
            r"'a': quant_algo None is not",
        ),
        ({"quant_method": "gptq"}, r"bits: missing"),
        (
            compressed({"num_bits": 3}),
            r"3-bit 'int', strategy 'tensor', format '': not known",
        ),
    ],
)
def test_mistakes_name_the_key(section: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        recipe(**section)
    assert str(caught.value).count("\n") == 1


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("quantized", "plain"),
    [
        ("Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-30B-A3B"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "Qwen/Qwen3-235B-A22B"),
        ("nvidia/Qwen3.6-27B-NVFP4", "Qwen/Qwen3.6-27B"),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "Qwen/Qwen3.5-35B-A3B"),
    ],
)
def test_quantizing_loses_no_parameters(quantized: str, plain: str) -> None:
    counts = []
    for spec in map(load_model, (quantized, plain)):
        parts = spec.family.tensors(spec.config, 1)
        counts.append(sum(part.parameters for part in parts if not isinstance(part, RotaryTable)))
    assert counts[0] == counts[1]


def test_a_mixed_checkpoint_by_hand() -> None:
    """nvidia/Qwen3.6-27B-NVFP4, one layer of linear attention: FP8 but for b and a, and an MLP in NVFP4."""
    spec = load_model("nvidia/Qwen3.6-27B-NVFP4")
    mine = [
        part
        for part in spec.family.tensors(spec.config, 1)
        if not isinstance(part, RotaryTable) and part.module.startswith("model.layers.0.")
    ]
    by_module: dict[str, int] = {}
    for part in mine:
        name = part.module.removeprefix("model.layers.0.")
        by_module[name] = by_module.get(name, 0) + part.bytes
    # (2 × 16 × 128 + 48 × 128) channels + 48 × 128 of the gate = 16,384 rows of 5,120; scales of rows and activations
    assert by_module["linear_attn.in_proj_qkvz"] == 16384 * 5120 + 16384 * 4 + 4 * 4
    assert by_module["linear_attn.in_proj_ba"] == 96 * 5120 * 2
    # 2 × 17,408 rows: half a byte, a sixteenth of a byte of scales, one 16-bit scale
    assert by_module["mlp.gate_up_proj"] == 34816 * 5120 // 2 + 34816 * 5120 // 16 + 2
    assert spec.fp8_kv_of == "modelopt_mixed"


def test_a_separate_quantization_file_is_read() -> None:
    spec = load_model("nvidia/Qwen3-235B-A22B-NVFP4")  # its config.json tells of no quantization
    assert (spec.quantization, spec.fp8_kv_of, spec.why_no_weights) == ("modelopt", "modelopt_fp4", "")


def test_a_separate_file_counts_where_a_mixed_checkpoint_tells_nothing_of_its_kv() -> None:
    """config.json of this one lists its layers and no KV, the file beside it both: 10 layers × 2 heads × 512 × 1 B."""
    assert load_model("nvidia/Qwen3.6-35B-A3B-NVFP4").fp8_kv_of == "modelopt_mixed"
    assert fp8_kv("nvidia/Qwen3.6-35B-A3B-NVFP4", "0.5.20", "auto") == (10_240, True)
    assert fp8_kv("nvidia/Qwen3.6-35B-A3B-NVFP4", "0.5.14", "auto") == (20_480, True)  # not obeyed: a note says so


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, "modelopt_mixed"),
        ({"kv_cache_quant_algo": None}, None),  # named, if with nothing: config.json counts
        ({"kv_cache_scheme": {"type": "float", "num_bits": 16}}, None),
    ],
)
def test_which_of_two_files_tells_of_the_kv(tmp_path: Path, told: dict[str, Any], expected: str | None) -> None:
    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}
    numbers = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    config = HfConfig(where="", data={"quantization_config": {"quant_method": "modelopt", **numbers, **told}})
    beside = {"quantization": {**numbers, "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    found = quantization.recipe(quantization.with_separate_file(config, tmp_path, "mixed"))
    assert (found.method if found.fp8_kv_cache else None) == expected


def fp8_kv(model: str, version: str, dtype: str) -> tuple[int, bool]:
    """Bytes of a KV token of a model with 16 KiB elements a token, and whether a warning speaks of the checkpoint."""
    config = RunConfig.model_validate(
        {
            "name": "fp8-kv",
            "model": model,
            "gpu": {"name": "h200"},
            "engine": {"version": version},
            "memory": {"kv_cache_dtype": dtype, "mem_fraction_static": 0.8},
        }
    )
    free = {"pre_bytes": Interval.exact(130 * GIB), "post_bytes": Interval.exact(100 * GIB)}
    budget = predict(config, **free)
    said = any("the checkpoint asks for" in text.lower() for text in budget.warnings)
    return budget.details["cell_bytes"].point, said


@pytest.mark.parametrize(
    ("kind", "version", "dtype", "expected"),
    [
        ("modelopt", "0.5.12", "auto", (32768, True)),  # 16 layers × 4 heads × 512 × 1
        ("modelopt", "0.5.23", "auto", (32768, True)),
        ("modelopt", "0.5.23", "bfloat16", (65536, False)),
        ("modelopt", "0.5.23", "fp8_e4m3", (32768, False)),
        ("compressed-tensors", "0.5.18", "auto", (65536, True)),  # obeyed from 0.5.19 on
        ("compressed-tensors", "0.5.19", "auto", (32768, True)),
        ("compressed-tensors, dynamic", "0.5.20", "auto", (65536, False)),
        ("fp8", "0.5.16", "auto", (65536, True)),  # obeyed from 0.5.18 on
        ("fp8", "0.5.18", "auto", (32768, True)),
    ],
)
def test_a_checkpoint_that_asks_for_kv_in_fp8(
    tmp_path: Path, kind: str, version: str, dtype: str, expected: tuple[int, bool]
) -> None:
    scheme = {"type": "float", "num_bits": 8, "strategy": "tensor", "dynamic": kind.endswith("dynamic")}
    section: dict[str, Any] = {
        "modelopt": {"quant_algo": "FP8", "kv_cache_scheme": {"type": "float", "num_bits": 8}},
        "fp8": {"quant_method": "fp8", "kv_cache_quant_algo": "FP8"},
    }.get(kind, compressed(FP8_CHANNEL, kv_cache_scheme=scheme))
    plain = json.loads((load_model("Qwen/Qwen3.6-27B").folder / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**plain, "quantization_config": section}), encoding="utf-8")
    assert fp8_kv(str(tmp_path), version, dtype) == expected


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("nvidia/Qwen3.6-27B-NVFP4", {"modelopt", "modelopt_mixed"}),
        ("nvidia/Qwen3-235B-A22B-NVFP4", {"modelopt", "modelopt_fp4"}),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", {"modelopt", "modelopt_fp8"}),
        ("Qwen/Qwen3.6-27B-FP8", {"fp8"}),
        ("Qwen/Qwen3.6-27B", set()),
    ],
)
def test_flags_that_say_what_the_checkpoint_says_change_nothing(model: str, names: set[str]) -> None:
    spec = load_model(model)
    assert spec.quantization_names == names
    for value in (*names, "gguf"):
        engine = {"version": "0.5.16", "args": {"quantization": value}}
        config = RunConfig.model_validate({"name": "flags", "model": model, "gpu": {"name": "h200"}, "engine": engine})
        assert bool(arguments.notes(config, spec)) == (value not in names)


#: Of Nemotron 3 Nano's layers: attention, and the Mamba2 layer before each, which its NVFP4 checkpoint leaves out.
_BESIDE_ATTENTION = (5, 12, 19, 26, 33, 42)
_W4A16 = {"quant_algo": "W4A16_NVFP4", "group_size": 16}


@pytest.mark.parametrize(
    ("section", "point", "measured", "on_blackwell"),
    [
        # as nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4 lists it
        (
            {
                "quant_algo": "NVFP4",
                "group_size": 16,
                "ignore": [
                    "lm_head",
                    *(f"backbone.layers.{n}.mixer.{part}_proj" for n in _BESIDE_ATTENTION for part in "qkvo"),
                    *(
                        f"backbone.layers.{n - 1}.mixer.{part}_proj"
                        for n in _BESIDE_ATTENTION
                        for part in ("in", "out")
                    ),
                ],
            },
            18.20,
            21.34,
            False,
        ),
        # as nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4: weights alone in four bits, repacked on every card
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "lm_head": _W4A16,
                    **{
                        f"backbone.layers.{n}.mixer.{part}_proj": {"quant_algo": "FP8"}
                        for n in range(52)
                        for part in ("in", "out")
                    },
                    **{
                        f"backbone.layers.{n}.mixer.{of}.{part}_proj": _W4A16
                        for n in range(52)
                        for of in ("experts.0", "shared_experts")
                        for part in ("up", "down")
                    },
                },
            },
            17.98,
            20.61,
            True,
        ),
    ],
    ids=["nano", "lightning"],
)
def test_nvfp4_experts_on_a_card_without_fp4(
    section: dict[str, Any], point: float, measured: float, on_blackwell: bool
) -> None:
    """What an H200 logged with 0.5.16 lies in the interval; a card that computes in FP4 is spared W4A4's repacking."""
    plain = load_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    told = {"quant_method": "modelopt", **section}
    config = HfConfig(where="nano: ", data={**plain.config.data, "quantization_config": told})
    spec = dataclasses.replace(plain, config=config)
    hopper, blackwell = spec.weights_bytes(1), spec.weights_bytes(1, fp4=True)
    assert hopper is not None and blackwell is not None
    assert hopper.point / GIB == pytest.approx(point, abs=0.01)
    assert hopper.contains(round(measured * GIB)) and not hopper.contains(round(1.1 * measured * GIB))
    assert blackwell.contains(round(measured * GIB)) is on_blackwell
