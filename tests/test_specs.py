"""Models and GPUs: every shipped one loads; mistakes name file and key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specbench import gpus
from specbench.architectures import ARCHITECTURES
from specbench.configuration import yamltext
from specbench.errors import ConfigError, SpecError
from specbench.gpus import known_gpus, load_gpu
from specbench.layers import FullAttention
from specbench.specs import known_models, load_model, model_source
from specbench.units import GIB, MIB, Interval

#: name -> layers with KV, layers with state, bytes per token (bf16, TP1), bytes per slot (fp32 state, TP1). A file per
#: family, written by hand with its arithmetic.
EXPECTED: dict[str, list[int]] = {
    name: row
    for file in sorted((Path(__file__).parent / "model_figures").glob("*.yaml"))
    for name, row in yamltext.read_mapping(file, expected="a row per model").items()
}


def test_every_shipped_model_is_expected_here() -> None:
    assert set(EXPECTED) == set(known_models())


@pytest.mark.parametrize("name", EXPECTED)
def test_shipped_models(name: str) -> None:
    attention, state, per_token, per_slot = EXPECTED[name]
    spec = load_model(name)
    assert (len(spec.attention_layers), len(spec.state_layers)) == (attention, state)
    assert sum(layer.bytes_per_token(1, 2) for layer in spec.attention_layers) == per_token
    assert sum(layer.conv_bytes(1, 2) + layer.ssm_bytes(1, 4) for layer in spec.state_layers) == per_slot
    source = model_source(spec)
    assert source is not None
    assert source["rests_on"] and source["kind"] in ("published copy", "reconstruction")
    assert bool(source["reconstructed"]) == (source["kind"] == "reconstruction")


def test_context_lengths() -> None:
    assert load_model("Qwen/Qwen3.6-27B").context_len == 262144
    # llama3 scaling is already in max_position_embeddings
    assert load_model("meta-llama/Meta-Llama-3.1-8B").context_len == 131072


def test_the_draft_knows_its_block() -> None:
    draft = load_model("z-lab/Qwen3.6-27B-DFlash")
    assert draft.block_size == 16
    assert draft.trained_on_layers == 64


def test_the_built_in_head_is_one_layer_of_the_target() -> None:
    head = load_model("Qwen/Qwen3.6-27B").builtin_draft()
    assert head is not None
    assert head.layers == (FullAttention(kv_heads=4, head_dim=256, v_head_dim=256),)
    assert load_model("Qwen/Qwen3-8B").builtin_draft() is None


def write(folder: Path, changes: dict[str, Any], section: str | None = None) -> Path:
    config = json.loads((load_model("Qwen/Qwen3.6-27B").folder / "config.json").read_text())
    place = config[section] if section else config
    for key, value in changes.items():
        if value is ...:
            del place[key]
        else:
            place[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("text_config", {"linear_num_value_heads": ...}, r"text_config\.linear_num_value_heads: missing"),
        ("text_config", {"num_key_value_heads": "4"}, r"text_config\.num_key_value_heads: got '4'; expected a whole"),
        ("text_config", {"num_key_value_heads": True}, r"num_key_value_heads: got True"),
        ("text_config", {"head_dim": 0}, r"head_dim: got 0"),
        ("text_config", {"layer_types": ["full_attention"]}, r"layer_types: 1 entries"),
        ("text_config", {"layer_types": ["mystery"] * 64}, r"unknown kinds \['mystery'\]"),
        (None, {"architectures": ["NoSuchModel"]}, r"architectures: 'NoSuchModel' is not known"),
        (None, {"architectures": ...}, r"config\.json: architectures: missing"),
        (None, {"text_config": 3}, r"text_config: got 3; expected a section"),
        (
            "text_config",
            {"num_hidden_layers": 10**9},
            r"num_hidden_layers: got 1000000000; expected a whole number from 1",
        ),
        ("text_config", {"head_dim": 10**4000}, r"head_dim: got a number of more than 60 digits"),
        ("text_config", {"max_position_embeddings": -1}, r"max_position_embeddings: got -1"),
        (
            "text_config",
            {"rope_scaling": {"factor": float("nan")}},
            r"rope_scaling\.factor: got nan; expected a number",
        ),
        (
            None,
            {"architectures": ["Gemma3ForCausalLM"]},
            r"Gemma3ForCausalLM is not supported yet \(not modelled: the tensors of Gemma 3",
        ),
    ],
)
def test_a_mistake_names_file_and_key(
    tmp_path: Path, section: str | None, changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, changes, section)
    with pytest.raises(SpecError, match=message) as caught:
        load_model(tmp_path)
    assert len(str(caught.value).splitlines()) <= 2
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("model", ["LiquidAI/LFM2-1.2B", "ibm-granite/granite-4.0-h-1b", "Qwen/Qwen3-8B"])
def test_more_heads_than_numbers_are_a_mistake(tmp_path: Path, model: str) -> None:
    """A head of no width would be a token of no bytes."""
    data = {**load_model(model).config.data, "hidden_size": 64, "num_attention_heads": 65}
    (tmp_path / "config.json").write_text(json.dumps({key: data[key] for key in data if key != "head_dim"}))
    with pytest.raises(SpecError, match=r"num_attention_heads: got 65, more than hidden_size \(64\).*\nCorrect"):
        load_model(tmp_path)


def test_an_architecture_that_is_not_known_is_a_short_message(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLN" * 9]}))
    with pytest.raises(SpecError, match=r"is not known \(nearest: Qwen3") as caught:
        load_model(tmp_path)
    assert str(caught.value).count("\n") == 1 and len(str(caught.value)) < 600


def test_without_layer_types_the_interval_decides(tmp_path: Path) -> None:
    write(tmp_path, {"layer_types": ...}, "text_config")
    spec = load_model(tmp_path)
    assert (len(spec.attention_layers), len(spec.state_layers)) == (16, 48)
    assert isinstance(spec.layers[3], FullAttention)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    import os

    write(tmp_path, {})
    assert load_model(tmp_path).context_len == 262144
    write(tmp_path, {"max_position_embeddings": 4096}, "text_config")
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert load_model(tmp_path).context_len == 4096


def test_a_near_miss_is_named() -> None:
    with pytest.raises(SpecError, match=r"Did you mean 'Qwen/Qwen3\.6-27B'"):
        load_model("Qwen/Qwen3.6-27b")


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        (
            "google/gemma-3-27b-it",
            "Gemma3ForConditionalGeneration is not supported yet (not modelled: the tensors of Gemma 3)",
        ),
    ],
)
def test_a_known_family_that_is_not_supported_yet_is_said_to_be_that(name: str, needs: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_model(name)
    one, two = str(caught.value).split("\n")
    assert one.startswith(f"model: {name!r}: {needs}")
    assert "specbench/architectures/" in two


@pytest.mark.parametrize("name", ["MiniMaxAI/MiniMax-Text-01", "MiniMaxAI/MiniMax-M1-80k", "x/Ring-mini-linear-2.0"])
def test_a_family_that_no_version_serves_is_said_to_be_that(name: str) -> None:
    with pytest.raises(SpecError, match=r"is served by no SGLang version up to 0\.5\.23 \(.*\)\.\nLogs of a build"):
        load_model(name)


def test_no_family_is_both_supported_and_pending() -> None:
    from specbench.architectures.pending import NOT_SERVED, PENDING, family_of

    assert not set(ARCHITECTURES) & (set(PENDING) | set(NOT_SERVED))
    assert [name for name in known_models() if family_of(name) is not None] == []


def test_nothing_extra_may_be_written_as_zero(tmp_path: Path) -> None:
    write(tmp_path, {"mtp_num_hidden_layers": 0}, "text_config")
    assert load_model(tmp_path).builtin_draft() is None


@pytest.mark.parametrize("text", ["{", "[]", "\x00\x01", "[" * 100_000, '{"architectures": ' + "9" * 5_000 + "}"])
def test_a_broken_config_is_no_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SpecError, match=r"config\.json"):
        load_model(tmp_path)


def test_architectures_have_layers_and_tensors() -> None:
    assert all(family.layers and family.tensors for family in ARCHITECTURES.values())


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "mib"), [("h200", 143771), ("rtx-pro-6000", 97887)])
def test_totals_as_nvidia_smi_shows(name: str, mib: int) -> None:
    assert load_gpu(name).total_bytes == mib * MIB


@pytest.mark.parametrize(
    ("ranks", "version", "logged"),
    [
        *[(1, "0.5.12", (139.11, 139.13)), (1, "0.5.16", (139.11, 139.13))],
        *[(2, "0.5.12", (138.28,)), (2, "0.5.16", (138.21,)), (4, "0.5.12", (138.00,)), (4, "0.5.16", (137.99,))],
    ],
)
def test_measured_free_memory_contains_the_logs(ranks: int, version: str, logged: tuple[float, ...]) -> None:
    known = load_gpu("h200").free_before_load(ranks, version)
    assert known.measured
    assert all(known.bytes.low <= round(figure * GIB) <= known.bytes.high for figure in logged)


def test_a_version_that_was_not_measured_lies_between_those_that_were() -> None:
    known = load_gpu("h200").free_before_load(2, "0.5.20")
    assert known.bytes == Interval(round(138.20 * GIB), round(138.21 * GIB), round(138.29 * GIB))
    assert not known.measured
    assert known.source.endswith("; not measured with 0.5.20")


# What the first "Init torch distributed ends. … mem usage=" of each rank logs, on the rank with least free memory and
# on all: story-8 and dflash-8 of the two-GPU campaign, tp4_0512_dflash_r8 and tp4_dflash_r8.
@pytest.mark.parametrize(
    ("ranks", "version", "point", "logged"),
    [
        (1, "0.5.12", 0.09, (0.09,)),
        (1, "0.5.16", 0.09, (0.09,)),
        (2, "0.5.12", 1.01, (1.01, 1.01)),
        (2, "0.5.16", 1.07, (1.07, 1.07)),
        (4, "0.5.12", 1.28, (1.23, 1.28, 1.28, 1.05)),
        (4, "0.5.16", 1.30, (1.25, 1.30, 1.30, 1.06)),
    ],
)
def test_what_communication_takes_is_known_by_version_and_number_of_gpus(
    ranks: int, version: str, point: float, logged: tuple[float, ...]
) -> None:
    found = load_gpu("h200").free_before_load(ranks, version).communication
    assert found.measured and found.source.startswith("measured: ")
    assert found.bytes.point == round(point * GIB)
    assert all(found.bytes.low < round(figure * GIB) < found.bytes.high for figure in logged)
    assert ("NCCL_NVLS_ENABLE=0" in found.source) == (ranks > 1)


def test_communication_of_another_version_lies_between_those_that_were_measured() -> None:
    found = load_gpu("h200").free_before_load(2, "0.5.20").communication
    assert found.bytes == Interval(round(1.00 * GIB), round(1.07 * GIB), round(1.08 * GIB))
    assert not found.measured
    assert found.source.endswith("; not measured with 0.5.20")


@pytest.mark.parametrize(("name", "ranks"), [("h200", 16), ("rtx-pro-6000", 2), ("h100", 2), ("cpu", 1)])
def test_communication_that_was_not_measured_is_unknown(name: str, ranks: int) -> None:
    assert load_gpu(name).free_before_load(ranks, "0.5.16").communication is None


@pytest.mark.parametrize(("version", "free", "taken"), [("0.5.16", 137.99, 1.29), ("0.5.12", 138.00, 1.28)])
def test_eight_h200_are_inferred_and_say_so(version: str, free: float, taken: float) -> None:
    """By buffers: of 0.5.16 1,324 MiB on ranks 1 to 6, of 0.5.12 1,312. A public start of 2025 logged 137.29."""
    known = load_gpu("h200").free_before_load(8, version)
    assert known.communication is not None
    for found, point in ((known, free), (known.communication, taken)):
        assert found.bytes.point == round(point * GIB)
        assert not found.measured and found.source.startswith("inferred: ")
    assert known.bytes.contains(round(137.29 * GIB)) and known.bytes.contains(round(138.22 * GIB))


@pytest.fixture
def gpu_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A table of one card of 79.65 GiB: what `free_gib` says of two GPUs, or all of the text."""

    def write(rows: str, whole: bool = False) -> None:
        text = rows if whole else f"card:\n  title: A card\n  total_mib: 81559\n  free_gib:\n    2: {rows}\n"
        (tmp_path / "gpus.yaml").write_text(text, encoding="utf-8")

    monkeypatch.setattr(gpus, "DATA", tmp_path)
    gpus._gpus.cache_clear()
    yield write
    gpus._gpus.cache_clear()


ROW = "low: 70.0, point: 71.0, high: 72.0, source: a log"


def test_a_version_that_is_not_measured_promises_nothing_where_one_row_is_silent(
    gpu_table: Callable[[str], None],
) -> None:
    taken = 'communication_gib: {low: 1.0, point: 1.1, high: 1.2, source: "measured: a log"}'
    gpu_table(f'[{{versions: ["0.5.16"], {ROW}}}, {{versions: ["0.5.12"], {ROW}, {taken}}}]')
    card = load_gpu("card")
    assert card.free_before_load(2, "0.5.12").communication.bytes.point == round(1.1 * GIB)
    assert card.free_before_load(2, "0.5.16").communication is None
    assert card.free_before_load(2, "0.5.20").communication is None


def test_a_row_without_versions_is_of_all_others(gpu_table: Callable[[str], None]) -> None:
    gpu_table(f'[{{versions: ["0.5.16"], {ROW}}}, {{low: 60, point: 61, high: 62, source: "measured: another log"}}]')
    card = load_gpu("card")
    assert card.free_before_load(2, "0.5.16").bytes.point == 71 * GIB
    other = card.free_before_load(2, "0.5.20")
    assert (other.bytes.point, other.source, other.measured) == (61 * GIB, "measured: another log", True)


SIZES = "low, point, high, source"
VERSIONS = 'a list of versions in quotes, e.g. ["0.5.16"]'


@pytest.mark.parametrize(
    ("rows", "got", "expected"),
    [
        ("", "got None (nothing)", f"{{{SIZES}}}, or a list of such rows with versions"),
        ("[]", "got [] (a list)", f"{{{SIZES}}}, or a list of such rows with versions"),
        ("[abc]", "got 'abc' (text)", f"a mapping of {SIZES}"),
        ("7", "got 7 (a whole number)", f"{{{SIZES}}}, or a list of such rows with versions"),
        ("{low: 1, point: 2, high: 3}", "source: missing", SIZES),
        ("{low: 1, point: x, high: 3, source: a}", "point: got 'x' (text)", "GiB, a number above 0"),
        ("{low: 1, point: true, high: 3, source: a}", "point: got True (true/false)", "GiB, a number above 0"),
        ("{low: 1, point: 2, high: .inf, source: a}", "high: got inf (a number)", "GiB, a number above 0"),
        ("{low: 0, point: 2, high: 3, source: a}", "low: got 0 (a whole number)", "GiB, a number above 0"),
        (
            "{low: 1, point: 4, high: 3, source: a}",
            "got {'high': 3, 'low': 1, 'point': 4} (a mapping)",
            "low <= point <= high",
        ),
        (
            "{low: 1, point: 2, high: 80, source: a}",
            "high: got 80 (a whole number)",
            "at most the card's total: 79.65 GiB",
        ),
        ("{low: 1, point: 2, high: 3, source: 4}", "source: got 4 (a whole number)", "text"),
        (f"[{{versions: '0.5.16', {ROW}}}]", "versions: got '0.5.16' (text)", VERSIONS),
        (f"[{{versions: [0.5], {ROW}}}]", "versions: got 0.5 (a number)", VERSIONS),
        (f"[{{versions: ['0.5'], {ROW}}}]", "versions: got '0.5' (text)", VERSIONS),
        (f"[{{versions: [], {ROW}}}]", "versions: got [] (a list)", VERSIONS),
        (f"[{{versions: , {ROW}}}]", "versions: got None (nothing)", VERSIONS),
        (
            f"[{{versions: ['0.5.16'], {ROW}}}, {{versions: ['0.5.12', '0.5.16'], {ROW}}}]",
            "versions: got '0.5.16' (text)",
            "each version in one row only, it is in an earlier one too",
        ),
        (
            f"[{{versions: ['0.5.12'], {ROW}}}, {{versions: ['0.5.16'], {ROW}}}]",
            "versions: got ['0.5.16'] (a list)",
            "the newest versions first, these are newer than the row before",
        ),
        (
            f"[{{{ROW}}}, {{versions: ['0.5.16'], {ROW}}}]",
            "got {'high': 72.0, ",
            "rows with versions before it: one with",
        ),
        (f"[{{{ROW}}}, {{{ROW}}}]", "got {'high': 72.0, ", "rows with versions before it: one without versions holds"),
        (f"{{{ROW}, communication_gib: 1.07}}", "communication_gib: got 1.07 (a number)", f"a mapping of {SIZES}"),
        (f"{{{ROW}, communication_gib: {{low: 1, high: 2, source: a}}}}", "communication_gib: point: missing", SIZES),
        (
            f"{{{ROW}, communication_gib: {{low: 0, point: 0, high: 0, source: a}}}}",
            "communication_gib: low: got 0 (a whole number)",
            "GiB, a number above 0; leave out what was not measured",
        ),
        (
            f"{{{ROW}, communication_gib: {{low: 1, point: 1.1, high: 200, source: a}}}}",
            "communication_gib: high: got 200 (a whole number)",
            "at most the card's total less low: 9.65 GiB",
        ),
    ],
)
def test_a_wrong_row_of_the_gpu_table_is_two_lines(
    gpu_table: Callable[[str], None], rows: str, got: str, expected: str
) -> None:
    gpu_table(rows)
    with pytest.raises(SpecError) as caught:
        load_gpu("card")
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"data/gpus.yaml: card: free_gib: 2: {got}")
    assert second.startswith(f"Expected {expected}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("card: 7", "data/gpus.yaml: card: got 7 (a whole number).\nExpected a mapping of title, total_mib."),
        (
            "card: {title: A, total_mib: 8000, share_of: card-2}",
            "data/gpus.yaml: card: share_of: got 'card-2' (text).\nExpected the name of a card of this table.",
        ),
        (
            "card: {title: A, total_mib: 8000, share_of: [card]}",
            "data/gpus.yaml: card: share_of: got ['card'] (a list).\nExpected the name of a card of this table.",
        ),
        (
            "card: {title: A, total_mib: 8000, share_of: card}",
            "data/gpus.yaml: card: share_of: got 'card' (text).\nExpected a whole card: no share of one, and no host.",
        ),
        (
            "card: {title: A, total_mib: 8000, share_of: b}\nb: {title: B, total_mib: 8000}",
            (
                "data/gpus.yaml: card: share_of: got 'b' (text).\n"
                "Expected a card with more memory than its share; b has 8,000 MiB."
            ),
        ),
        ("card: {total_mib: 81559}", "data/gpus.yaml: card: title: missing.\nExpected title, total_mib."),
        (
            "card: {title: A, total_mib: 81559}\ncard: {title: B, total_mib: 24564}",
            (
                "gpus.yaml: not valid YAML: key 'card' is given twice (line 2, column 1).\n"
                "Check indentation, colons and quotes there."
            ),
        ),
        (
            "card: {title: A, total_mib: 81559",  # in the words of the loader that reads params files, too
            (
                "gpus.yaml: not valid YAML: while parsing a flow mapping, expected ',' or '}', but got '<stream end>' "
                "(line 1, column 34).\nCheck indentation, colons and quotes there."
            ),
        ),
        (
            "card: {title: A, total_mib: 80 GB}",
            (
                "data/gpus.yaml: card: total_mib: got '80 GB' (text).\n"
                "Expected MiB as nvidia-smi shows, a whole number; null for a host."
            ),
        ),
        (
            "card: {title: A, total_mib: 81559, idle_free_mib: 90000}",
            (
                "data/gpus.yaml: card: idle_free_mib: got 90000 (a whole number).\n"
                "Expected MiB, a whole number up to total_mib (81,559)."
            ),
        ),
        (
            "card: {title: A, total_mib: 81559, idle_mib: 81000}",
            (
                "data/gpus.yaml: card: 'idle_mib' (text): no such key (did you mean 'idle_free_mib'?).\n"
                "Allowed here: title, share_of, total_mib, compute_capability, idle_free_mib, free_gib."
            ),
        ),
        (
            "card: {title: A, total_mib: 81559, compute_capability: sm90}",
            (
                "data/gpus.yaml: card: compute_capability: got 'sm90' (text).\n"
                "Expected major.minor as NVIDIA lists it, e.g. 9.0; none for a host."
            ),
        ),
        (
            "card: {title: A, total_mib: 81559, free_gib: [1, 2]}",
            (
                "data/gpus.yaml: card: free_gib: got [1, 2] (a list).\n"
                "Expected number of GPUs: {low, point, high, source}."
            ),
        ),
        (
            f"card: {{title: A, total_mib: 81559, free_gib: {{tp2: {{{ROW}}}}}}}",
            "data/gpus.yaml: card: free_gib: got 'tp2' (text).\nExpected a number of GPUs as key: 1, 2, 4, ….",
        ),
        (
            f"card: {{title: A, total_mib: 81559, idle_free_mib: 71680, free_gib: {{1: {{{ROW}}}}}}}",
            (
                "data/gpus.yaml: card: free_gib: 1: point: got 71.0 (a number).\n"
                "Expected at most what the idle card has: 70.00 GiB."
            ),
        ),
        (
            f"card: {{title: A, total_mib: 81559, free_gib: {{1: {{{ROW}, comunication_gib: 1}}}}}}",
            (
                "data/gpus.yaml: card: free_gib: 1: 'comunication_gib' (text): no such key (did you mean "
                "'communication_gib'?).\nAllowed here: low, point, high, source, versions, communication_gib."
            ),
        ),
        (
            f"card: {{title: A, total_mib: 81559, free_gib: {{1: {{{ROW}}}, 1: {{{ROW}}}}}}}",
            (
                "gpus.yaml: not valid YAML: key '1' is given twice (line 1, column 103).\n"
                "Check indentation, colons and quotes there."
            ),
        ),
    ],
)
def test_a_wrong_card_of_the_gpu_table_is_two_lines(gpu_table: Callable[..., None], text: str, message: str) -> None:
    gpu_table(text, whole=True)
    with pytest.raises((SpecError, ConfigError)) as caught:
        load_gpu("card")
    assert str(caught.value) == message


@pytest.mark.parametrize("name", known_gpus())
@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_free_memory_is_below_the_total_and_says_where_it_comes_from(name: str, ranks: int) -> None:
    gpu = load_gpu(name)
    known = gpu.free_before_load(ranks, "0.5.16")
    assert 0.85 * gpu.total_bytes < known.bytes.low < known.bytes.point < known.bytes.high < gpu.total_bytes
    assert known.source.split(":")[0] in ("measured", "inferred", "derived", "logged")
    assert known.measured == known.source.startswith("measured")
    if known.source.startswith("derived"):
        assert "not measured on this card" in known.source


FREE = [dict(row) for row in yamltext.written((Path(__file__).parent / "free_memory.yaml").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("row", FREE, ids=[f"{row.get('card')}-{row['ranks']}-{row['logged']}" for row in FREE])
def test_every_public_figure_of_free_memory_lies_within_the_interval(row: dict[str, Any]) -> None:
    if "card" in row:
        card = load_gpu(row["card"])
    else:
        card = dataclasses.replace(load_gpu("h100"), card_bytes=row["total_mib"] * MIB, listed={})
    known = card.free_before_load(row["ranks"], row["version"] or "0.5.16")
    assert known.bytes.contains(round(row["logged"] * GIB), slop=round(0.005 * GIB)) == ("outside" not in row)
    assert "case" in row or "report" in row


def test_what_is_gone_of_a_card_that_was_not_measured() -> None:
    """81,559 MiB = 79.6475 GiB, less 0.6, 1.2 and 1.9 on one GPU; on two less 0.9, 1.2 + 0.007 × 79.6475 = 1.7575 and
    1.9 + 0.012 × 79.6475 = 2.8558."""
    one, two = (load_gpu("h100").free_before_load(ranks, "0.5.16").bytes for ranks in (1, 2))
    assert [round(size / GIB, 2) for size in (one.low, one.point, one.high)] == [77.75, 78.45, 79.05]
    assert [round(size / GIB, 2) for size in (two.low, two.point, two.high)] == [76.79, 77.89, 78.75]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_several_rtx_pro_6000_are_as_one_less_what_nccl_takes(ranks: int) -> None:
    """Low 94.0 - 1.0, likely 94.24285 - 0.7 = 93.54 in tenths, high 94.8: it may be as one GPU. 0.7 GiB is the middle
    of 614 + 24 to 192 + 24 MiB, 638 to 830 MiB: 0.62 to 0.81 GiB."""
    row = load_gpu("rtx-pro-6000").free_before_load(ranks, "0.5.16")
    assert [round(size / GIB, 2) for size in (row.bytes.low, row.bytes.point, row.bytes.high)] == [93.0, 93.5, 94.8]
    assert "less up to 1.0 GiB, likely 0.7, for NCCL" in row.source and len(row.source) < 120
    # what is gone of the eight smaller cards of that kind that were logged, 32,623 MiB - 30.83 GiB = 1.03 GiB: within
    assert load_gpu("rtx-pro-6000").total_bytes - row.bytes.high < 32_623 * MIB - 30.83 * GIB


def test_a_host_is_no_card_and_its_total_is_unknown() -> None:
    host = load_gpu("cpu")
    assert host.is_host and host.card_bytes is None
    assert "cpu" not in known_gpus()
    assert host.free_before_load(1, "0.5.23").source.startswith("assumed")
    with pytest.raises(ConfigError, match="cpu is no card, so it has no total"):
        _ = host.total_bytes
    # Each rank is told what the host has free: nothing is divided by them.
    assert host.free_before_load(8, "0.5.23") == host.free_before_load(1, "0.5.23")


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'h200'\?"):
        load_gpu("H-200")


def test_a_share_of_a_card_is_found_by_its_name_and_offered_to_nobody() -> None:
    assert load_gpu("h200-quarter").share_of == "h200"
    assert "h200-quarter" not in known_gpus()
    with pytest.raises(ConfigError) as caught:
        load_gpu("H200 Quarters")
    assert "quarter" not in str(caught.value).partition("not in the GPU table")[2]


@pytest.mark.parametrize("name", ["a/" + "b" * 5_000, "~there-is-no-such-user", "org/x\0y"])
def test_a_name_that_can_be_no_path_is_a_short_message(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_model(name)
    assert "is neither shipped nor a folder with a config.json" in str(caught.value)
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize(
    ("draft", "tp", "itemsize", "tokens", "k_gib"),
    [
        ("z-lab/Qwen3.8-27B-DFlash2", 1, 1, 270_000, 1.29),  # public logs, a size of K per rank each
        ("z-lab/Qwen3.8-27B-DFlash2", 2, 1, 454_112, 1.08),
        ("z-lab/Qwen3.5-DFlash-b16", 1, 2, 295_950, 3.39),
    ],
)
def test_reconstructed_drafts_make_the_pools_of_public_logs(
    draft: str, tp: int, itemsize: int, tokens: int, k_gib: float
) -> None:
    layers = load_model(draft).attention_layers
    both = tokens * sum(layer.bytes_per_token(tp, itemsize) for layer in layers)
    assert round(both / 2 / 2**30, 2) == k_gib


def test_the_block_of_a_dspark_draft_is_what_it_drafts() -> None:
    draft = load_model("RadixArk/Kimi-K3-DSpark")
    assert draft.block_size == 7
    assert draft.weights_bytes(16) is None and "Markov" in draft.why_no_weights


def test_every_card_tells_its_compute_capability() -> None:
    cards = {name: load_gpu(name) for name in known_gpus()}
    assert all(card.compute_capability is not None for card in cards.values())
    assert {name for name, card in cards.items() if card.is_blackwell} == {
        *("b200", "b300", "gb10", "rtx-5090", "rtx-pro-4500", "rtx-pro-6000"),
    }
