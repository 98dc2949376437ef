"""Weights from safetensors files: headers of a small model written here, by hand; and files that are none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specbench.checkpoint import headers
from specbench.checkpoint.loaded import Loaded, loaded
from specbench.errors import SpecError
from specbench.specs import ModelSpec, load_model
from specbench.units import MIB
from specbench.weights import RotaryTable

_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}

#: One layer: 4 query and 2 KV heads of 16, hidden 64, MLP 128, 128 words.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "vocab_size": 128,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LAYER = "model.layers.0"
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (128, 64),
    f"{LAYER}.self_attn.q_proj.weight": (64, 64),
    f"{LAYER}.self_attn.k_proj.weight": (32, 64),
    f"{LAYER}.self_attn.v_proj.weight": (32, 64),
    f"{LAYER}.self_attn.o_proj.weight": (64, 64),
    f"{LAYER}.self_attn.q_norm.weight": (16,),
    f"{LAYER}.self_attn.k_norm.weight": (16,),
    f"{LAYER}.mlp.gate_proj.weight": (128, 64),
    f"{LAYER}.mlp.up_proj.weight": (128, 64),
    f"{LAYER}.mlp.down_proj.weight": (64, 128),
    f"{LAYER}.input_layernorm.weight": (64,),
    f"{LAYER}.post_attention_layernorm.weight": (64,),
    "model.norm.weight": (64,),
    "lm_head.weight": (128, 64),
}
#: Numbers that every rank holds: two norms of heads, three of the hidden state.
REPLICATED = 2 * 16 + 3 * 64
#: 8,192 + (4,096 + 2 × 2,048) + 4,096 + 3 × 8,192 + 8,192
SPLIT = 53_248


def write(file: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """A safetensors file with zeros for data (a hole, where the file system has such)."""
    told, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for count in shape:
            size *= count
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(told).encode()
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        opened.truncate(8 + len(text) + end)


def model(folder: Path, changes: Mapping[str, tuple[str, tuple[int, ...]]] | None = None, **config: Any) -> ModelSpec:
    """All in bfloat16 but for `changes`, in two files and an index."""
    tensors = {name: ("BF16", shape) for name, shape in SHAPES.items()} | dict(changes or {})
    halves = dict(list(tensors.items())[:5]), dict(list(tensors.items())[5:])
    where = {}
    for number, half in enumerate(halves):
        name = f"model-0000{number + 1}-of-00002.safetensors"
        write(folder / name, half)
        where |= dict.fromkeys(half, name)
    (folder / headers.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG | config), encoding="utf-8")
    return load_model(folder)


def on_a_rank(spec: ModelSpec, tp: int) -> tuple[int, Loaded]:
    """Bytes of the tensors of a rank, without the rotary table."""
    assert spec.checkpoint is not None
    config = spec.config
    plain = type(config)(where=config.where, data={k: v for k, v in config.data.items() if k != "quantization_config"})
    whole, rank = spec.family.tensors(plain, 1), spec.family.tensors(plain, tp)
    found = loaded(spec.checkpoint, whole, rank, layers=1, head=False)
    return sum(part.bytes for part in found.parts if not isinstance(part, RotaryTable)), found


@pytest.mark.parametrize(("tp", "expected"), [(1, 2 * (SPLIT + REPLICATED)), (2, SPLIT + 2 * REPLICATED)])
def test_a_checkpoint_in_the_config_s_type(tmp_path: Path, tp: int, expected: int) -> None:
    size, found = on_a_rank(model(tmp_path), tp)
    assert size == expected
    assert (found.unknown, found.missing, found.stored_bytes) == ((), (), 2 * (SPLIT + REPLICATED))


def test_wider_floats_take_the_config_s_type(tmp_path: Path) -> None:
    size, found = on_a_rank(model(tmp_path, {f"{LAYER}.mlp.down_proj.weight": ("F32", (64, 128))}), 1)
    assert size == 2 * (SPLIT + REPLICATED)
    assert found.stored_bytes == size + 2 * 64 * 128


def test_what_the_config_does_not_tell_the_files_do(tmp_path: Path) -> None:
    """down_proj in one byte with scales: 64 × 128 + 4 bytes, not 64 × 128 × 2; half of it on each of two ranks."""
    name = f"{LAYER}.mlp.down_proj.weight"
    changes: dict[str, tuple[str, tuple[int, ...]]] = {
        name: ("F8_E4M3", (64, 128)),
        f"{name}_scale_inv": ("F32", (1, 1)),
    }
    spec = model(tmp_path, changes)
    assert on_a_rank(spec, 1)[0] == 2 * (SPLIT + REPLICATED) - 64 * 128 + 4
    assert on_a_rank(spec, 2)[0] == SPLIT + 2 * REPLICATED - 64 * 64 + 2


def test_a_quantization_that_is_not_known_is_predicted_from_its_files(tmp_path: Path) -> None:
    changes = {name: ("U8", (shape[0], shape[1] // 2)) for name, shape in SHAPES.items() if "proj" in name}
    spec = model(tmp_path, changes, quantization_config={"quant_method": "of-tomorrow"})
    assert spec.why_no_weights
    # the seven projections have 36,864 numbers: half a byte each instead of two
    assert on_a_rank(spec, 1)[0] == 2 * (SPLIT + REPLICATED) - 36_864 * 3 // 2
    size = spec.weights_bytes(1)
    assert size is not None
    assert size.point == 2 * MIB  # all of it fits one small segment
    assert "exact: 51,648 B stored" in spec.weights_words(1)  # 106,944 - 55,296
    assert "split over ranks and repacked as config.json's shapes are" in spec.weights_words(1)


def test_names_that_no_module_has_are_counted_whole_and_told(tmp_path: Path) -> None:
    spec = model(tmp_path, {f"{LAYER}.self_attn.new.weight": ("BF16", (8, 8))})
    size, found = on_a_rank(spec, 2)
    assert size == SPLIT + 2 * REPLICATED + 128
    assert found.unknown == (f"{LAYER}.self_attn.new.weight",)
    assert (
        "1 tensors of names that the family does not have (128 B, 'model.layers.0.self_attn.new"
        in spec.weights_words(2)
    )


def test_files_of_another_family_are_not_used(tmp_path: Path) -> None:
    plain = model(tmp_path).weights_bytes(1)
    for file in tmp_path.glob("*.safetensors*"):
        file.unlink()
    write(tmp_path / "model.safetensors", {"transformer.h.0.attn.weight": ("BF16", (64, 64))})
    spec = load_model(tmp_path)
    assert spec.weights_bytes(1) == plain
    assert "their sizes are not used" in spec.weights_words(1)


def test_the_built_in_head_is_not_the_model_s(tmp_path: Path) -> None:
    spec = model(tmp_path, {"mtp.fc.weight": ("BF16", (64, 128)), "model.layers.1.eh_proj.weight": ("BF16", (64, 64))})
    assert on_a_rank(spec, 1)[0] == 2 * (SPLIT + REPLICATED)


def test_a_folder_that_lacks_a_file_of_the_index_is_read_from_its_config(tmp_path: Path) -> None:
    model(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    spec = load_model(tmp_path)
    assert spec.checkpoint is None
    assert spec.weights_words(1).startswith("tensor shapes of config.json")


def test_a_multimodal_checkpoint_names_its_decoder_with_a_wrapper(tmp_path: Path) -> None:
    """The published names of Qwen3.6-27B: two layers of it, its head and its embedding."""
    plain = load_model("Qwen/Qwen3.6-27B")
    parts = [part for part in plain.family.tensors(plain.config, 1) if not isinstance(part, RotaryTable)]
    linear, full = "model.language_model.layers.0.linear_attn", "model.language_model.layers.3.self_attn"
    write(
        tmp_path / "model.safetensors",
        {
            "model.language_model.embed_tokens.weight": ("BF16", (248320, 5120)),
            "lm_head.weight": ("BF16", (248320, 5120)),
            "model.visual.blocks.0.attn.qkv.weight": ("BF16", (3456, 1152)),
            f"{linear}.in_proj_qkv.weight": ("BF16", (10240, 5120)),
            f"{linear}.in_proj_z.weight": ("BF16", (6144, 5120)),
            f"{linear}.in_proj_a.weight": ("BF16", (48, 5120)),
            f"{linear}.in_proj_b.weight": ("BF16", (48, 5120)),
            f"{linear}.A_log": ("F32", (48,)),
            f"{full}.q_proj.weight": ("BF16", (12288, 5120)),
            f"{full}.k_proj.weight": ("BF16", (1024, 5120)),
            f"{full}.v_proj.weight": ("BF16", (1024, 5120)),
            "mtp.layers.0.mlp.up_proj.weight": ("BF16", (17408, 5120)),
        },
    )
    checkpoint = headers.read(tmp_path)
    assert checkpoint is not None
    found = loaded(checkpoint, parts, parts, layers=64, head=False)
    assert found.unknown == ()
    assert checkpoint.bytes - found.stored_bytes == 17408 * 5120 * 2  # of the head
    mine = dict.fromkeys(("model.layers.0.linear_attn.in_proj_qkvz", "model.layers.3.self_attn.qkv_proj"), 0)
    for part in found.parts:
        if not isinstance(part, RotaryTable) and part.module in mine:
            mine[part.module] += part.bytes
    assert list(mine.values()) == [16384 * 5120 * 2, 14336 * 5120 * 2]


# ── files that are none ──────────────────────────────────────────────────────────────────────────────────────────────


def raw(file: Path, text: bytes, *, length: int | None = None, room: int = 64) -> None:
    file.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(room))


def tensor(**told: Any) -> bytes:
    return json.dumps({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8], **told}}).encode()


@pytest.mark.parametrize(
    ("text", "length", "message"),
    [
        (b"", None, r"a header of 0 bytes in 72"),
        (b"{}", 2**63, r"a header of 9,223,372,036,854,775,808 bytes in 74"),
        (b"[]", None, r"no JSON object where its header should be"),
        (b"{x}", None, r"no JSON where its header should be"),
        (b"[" * 100_000, None, r"no JSON where its header should be"),
        (b"\xff\xfe", None, r"no JSON where its header should be"),
        (b'{"a": 1}', None, r"'a' is 1"),
        (tensor(dtype="BF17"), None, r"'a': dtype 'BF17'"),
        (tensor(dtype=["BF16"]), None, r"'a': dtype \['BF16'\]"),
        (tensor(shape=4), None, r"'a': shape 4"),
        (tensor(shape=[-4]), None, r"'a': shape \[-4\]"),
        (tensor(shape=[2**40, 2**40]), None, r"'a': shape \["),
        (tensor(shape=[True]), None, r"'a': shape \[True\]"),
        (tensor(shape=[5]), None, r"'a': data_offsets \[0, 8\].\nExpected 10 bytes within 64"),
        (tensor(data_offsets=[0]), None, r"'a': data_offsets \[0\]"),
        (tensor(data_offsets=[100, 108]), None, r"'a': data_offsets \[100, 108\]"),
        (tensor(data_offsets=["0", "8"]), None, r"'a': data_offsets \['0', '8'\]"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, text: bytes, length: int | None, message: str) -> None:
    raw(tmp_path / "model.safetensors", text, length=length)
    with pytest.raises(SpecError, match=message) as caught:
        headers.read(tmp_path)
    assert str(caught.value).count("\n") == 1
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", r"no JSON where its header should be"),
        ("{}", r"weight_map: None"),
        ('{"weight_map": []}', r"weight_map: \[\]"),
        ('{"weight_map": {"a": "../../model.safetensors"}}', r"weight_map names '../../model.safetensors'"),
        ('{"weight_map": {"a": "/dev/zero"}}', r"weight_map names '/dev/zero'"),
        ('{"weight_map": {"a": 1}}', r"weight_map names 1"),
    ],
)
def test_indexes_that_are_none(tmp_path: Path, index: str, message: str) -> None:
    (tmp_path / headers.INDEX).write_text(index, encoding="utf-8")
    with pytest.raises(SpecError, match=message) as caught:
        headers.read(tmp_path)
    assert str(caught.value).count("\n") == 1


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        raw(tmp_path / f"{name}.safetensors", tensor())
    with pytest.raises(SpecError, match=r"'a' is in another file, too"):
        headers.read(tmp_path)


def test_a_scalar_and_metadata_are_no_mistake(tmp_path: Path) -> None:
    text = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})
    raw(tmp_path / "model.safetensors", text.encode())
    found = headers.read(tmp_path)
    assert found is not None
    assert found.tensors == (headers.Stored("a", "F32", 1, 4),)


WHOLE = '"dtype":"U8","shape":[8],"data_offsets":[0,8]'


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (f'{{"a":{{{WHOLE}}},"b":{{{WHOLE}}}}}', "tensors of more than its 8 bytes"),  # both in the same bytes
        (f'{{"a":{{{WHOLE}}},"a":{{{WHOLE}}}}}', "'a' stands in it twice"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[false,true]}}', "data_offsets [False, True]"),
    ],
)
def test_headers_that_contradict_themselves(tmp_path: Path, header: str, message: str) -> None:
    raw(tmp_path / "model.safetensors", header.encode(), room=8)
    with pytest.raises(SpecError) as caught:
        headers.read(tmp_path)
    assert message in str(caught.value) and str(caught.value).count("\n") == 1


def test_names_that_no_file_system_has_and_files_by_the_ten_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / headers.INDEX).write_text(json.dumps({"weight_map": {"a": "x" * 10_000 + ".safetensors"}}))
    with pytest.raises(SpecError, match=r"a \.safetensors file beside the index"):
        headers.read(tmp_path)
    (tmp_path / headers.INDEX).unlink()
    monkeypatch.setattr(headers, "_MOST_FILES", 3)
    for number in range(4):
        write(tmp_path / f"{number}.safetensors", {f"a{number}": ("U8", (1,))})
    with pytest.raises(SpecError, match=r"4 safetensors files\.\nExpected 3 at most"):
        headers.read(tmp_path)
