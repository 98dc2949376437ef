"""Weights from the config's shapes, against what SGLang logged ("Load weight end … mem usage")."""

from __future__ import annotations

import pytest

from specbench.specs import ModelSpec, load_model
from specbench.units import GIB, MIB
from specbench.weights import Part, Repacked, RotaryTable, Tensor, reserved

TARGET, DRAFT, MOE = "Qwen/Qwen3.6-27B", "z-lab/Qwen3.6-27B-DFlash", "Qwen/Qwen3.5-35B-A3B"


def head(name: str) -> ModelSpec:
    found = load_model(name).builtin_draft()
    assert found is not None
    return found


#: GiB on one rank, logged by SGLang on H200s. Two figures: 0.5.12 and 0.5.16 print slightly different ones.
LOGGED = [
    (load_model(TARGET), 1, 51.05),
    (load_model(TARGET), 2, 25.62),
    (load_model(TARGET), 2, 25.64),
    (load_model(TARGET), 4, 13.04),
    (load_model(TARGET), 4, 13.05),
    (load_model(DRAFT), 1, 3.38),
    (load_model(DRAFT), 2, 1.90),
    (load_model(DRAFT), 4, 1.14),
    (load_model(DRAFT), 4, 1.13),
    (head(TARGET), 1, 5.53),
    (load_model(MOE), 1, 65.49),
    (head(MOE), 1, 3.46),
]


@pytest.mark.parametrize(("model", "tp", "logged"), LOGGED, ids=lambda value: getattr(value, "name", str(value)))
def test_weights_match_the_log(model: ModelSpec, tp: int, logged: float) -> None:
    size = model.weights_bytes(tp)
    assert size is not None
    # 0.5 %, or what the log rounds (0.005) and versions differ by (0.02 GiB), whichever is more
    assert size.point / GIB == pytest.approx(logged, rel=0.005, abs=0.025)
    assert size.low / GIB <= logged <= size.high / GIB


def test_the_sum_of_the_tensors_is_the_published_parameter_count() -> None:
    spec = load_model(TARGET)
    tensors = [part.bytes for part in spec.family.tensors(spec.config, 1) if isinstance(part, Tensor)]
    # 27.36 G parameters of two bytes (vision tower included); A_log, 48 heads × 48 layers, is four bytes wide
    assert sum(tensors) == pytest.approx(2 * 27.36e9, rel=0.001)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Tensor(1)], 2 * MIB),  # a small tensor opens a 2 MiB segment
        ([Tensor(MIB), Tensor(MIB)], 2 * MIB),  # two fit
        ([Tensor(MIB), Tensor(MIB), Tensor(512)], 4 * MIB),
        ([Tensor(5 * MIB)], 20 * MIB),  # a middle one opens 20 MiB
        ([Tensor(5 * MIB)] * 4, 20 * MIB),
        ([Tensor(11 * MIB)], 12 * MIB),  # a large one is rounded to 2 MiB
        ([Tensor(11 * MIB), Tensor(900 * 1024)], 14 * MIB),  # small ones never go into large segments
        ([RotaryTable(16 * MIB, 2)], 128 * MIB),  # angles, cos and sin are gone again
        # a later tensor takes one of the holes of 64 MiB: its rest of 24 MiB stays unused
        ([RotaryTable(16 * MIB, 2), Tensor(40 * MIB)], 192 * MIB),
        ([RotaryTable(16 * MIB, 2), Tensor(40 * MIB), Tensor(24 * MIB)], 192 * MIB),
        # three are built anew one after the other: the first needs a new segment, the others take the one that it left
        ([Repacked(40 * MIB, 40 * MIB)] * 3, 120 * MIB),
        ([Repacked(40 * MIB, 0), Tensor(12 * MIB)], 12 * MIB),  # dropped
    ],
)
def test_the_allocator(parts: list[Part], expected: int) -> None:
    assert reserved(parts).point == expected


def test_a_method_that_is_not_known_has_no_predicted_weights(tmp_path_factory: pytest.TempPathFactory) -> None:
    import json

    folder = tmp_path_factory.mktemp("quantized")
    config = json.loads((load_model(TARGET).folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "of-tomorrow"}
    (folder / "config.json").write_text(json.dumps(config))
    spec = load_model(folder)
    assert spec.quantization == "of-tomorrow"
    assert "the tensors of 'of-tomorrow' are not known" in spec.why_no_weights
    assert spec.weights_bytes(1) is None


def test_the_margin_does_not_go_below_nothing() -> None:
    tiny = reserved([Tensor(1)])
    assert (tiny.low, tiny.point) == (0, 2 * MIB)


def test_quantized_weights_have_a_wider_margin() -> None:
    """1 GiB of 8-bit numbers: 32 MiB + 0.2 % + 1 %; of 16-bit ones 32 MiB + 0.2 %."""
    widths = []
    for parameters in (GIB, GIB // 2):
        size = reserved([Tensor(GIB, parameters=parameters)])
        widths.append(size.high - size.point)
    assert widths == [32 * MIB + round(GIB * 0.012), 32 * MIB + round(GIB * 0.002)]
