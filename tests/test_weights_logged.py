"""Weights from the configuration against every logged "Load weight end … mem usage": recordings and public cases.

Within 1 %, or the row of weights_logged.yaml says why not; a reason that is no longer needed fails, too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specbench import quantization
from specbench.configuration import yamltext
from specbench.gpus import load_gpu
from specbench.hf import HfConfig
from specbench.specs import ModelSpec, load_model
from specbench.units import GIB
from specbench.weights import Repacked, RotaryTable, reserved

HERE = Path(__file__).parent
WITHIN = 0.01
CASES: dict[str, list[dict[str, Any]]] = dict(
    yamltext.read_mapping(HERE / "weights_logged.yaml", expected="a list of figures per case")
)
_LOADED = re.compile(r"Load weight end\. .*type=(\w+),.* mem usage=([0-9.]+) GB")
_HEADS = ("Qwen3_5ForCausalLMMTP",)


def model_of(row: dict[str, Any]) -> ModelSpec:
    spec = load_model(row["model"])
    if "quantization_config" in row:
        data = {**spec.config.data, "quantization_config": row["quantization_config"]}
        config = HfConfig(where=spec.config.where, data=data)
        quantization.recipe(config)
        spec = dataclasses.replace(spec, config=config)
    return drafting(spec) if row.get("role") == "draft" else spec


def drafting(spec: ModelSpec) -> ModelSpec:
    head = spec.builtin_draft()
    assert head is not None
    return head


def difference(spec: ModelSpec, tp: int, logged: float) -> float:
    """(predicted - logged) / logged."""
    size = spec.weights_bytes(tp)
    assert size is not None, spec.why_no_weights
    return size.point / GIB / logged - 1


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for case, figures in CASES.items():
        yield from ((case, row) for row in figures)


@pytest.mark.parametrize(("case", "row"), list(rows()), ids=lambda value: value if isinstance(value, str) else "")
def test_cases(case: str, row: dict[str, Any]) -> None:
    if row["model"] is None:
        assert row["reason"]
        return
    off = difference(model_of(row), row["tp"], row["logged"])
    if "reason" in row:
        assert abs(off) > WITHIN, f"{case}: {off:+.2%}: the reason is not needed any more"
    else:
        assert abs(off) <= WITHIN, f"{case}: {off:+.2%}"


def test_no_case_with_a_figure_is_left_out() -> None:
    logs = HERE / "logs" / "sglang" / "cases"
    wanted = re.compile(r"Load weight end[^\[]{0,200}mem usage=[0-9]")  # some are wrapped over lines
    told = {file.stem for file in logs.glob("*.log") if wanted.search(file.read_text("utf-8"))}
    assert told
    assert told <= set(CASES)


def test_what_is_more_in_a_release_than_in_the_pull_request_is_the_head() -> None:
    """lfm2-700m-conv-only: without the copied head the prediction is within 1 %, as its reason says."""
    spec = load_model("LiquidAI/LFM2-700M")
    tied = [part for part in spec.family.tensors(spec.config, 1) if getattr(part, "module", "") != "lm_head"]
    assert reserved(tied).point / GIB == pytest.approx(1.52, rel=WITHIN)


# ── what the engine's own classes create ─────────────────────────────────────────────────────────────────────────────

CREATED: dict[str, dict[int, int]] = dict(
    yamltext.read_mapping(HERE / "engine_weights.yaml", expected="bytes of a rank per model and number of ranks")
)


@pytest.mark.parametrize("name", CREATED)
def test_the_engine_s_own_classes_create_as_much(name: str) -> None:
    """Within 0.1 %: copies made after loading (latent projections), a buffer here and there. Falcon-H1's head is
    turned into float32 by its class."""
    spec = load_model(name)
    for tp, created in CREATED[name].items():
        sizes = (
            part.before if isinstance(part, Repacked) and part.module != "lm_head" else part.bytes
            for part in spec.tensors(tp)
            if not isinstance(part, RotaryTable)
        )
        assert sum(sizes) == pytest.approx(created, rel=0.001), tp


# ── recordings: random weights of shipped models, each rank's figure ─────────────────────────────────────────────────


def recorded() -> Iterator[tuple[str, str, int, float]]:
    """(record, model, ranks, GiB) of every load, the draft's as its own."""
    for folder in sorted((HERE / "records").iterdir()):
        log, config = folder / "server.log", folder / "config.yaml"
        if not log.is_file():
            continue
        told = yamltext.read_mapping(config, expected="a record's configuration")
        if load_gpu(told["gpu"]["name"]).share_of is not None:
            continue  # a rank is charged what others load at that moment: tests/test_tp8_quarters.py
        for architecture, used in _LOADED.findall(log.read_text("utf-8", errors="replace")):
            if architecture in _HEADS:
                model = f"{told['model']} head"
            elif architecture == "DFlashDraftModel":
                model = told["speculative"]["draft_model_path"]
            else:
                model = told["model"]
            yield folder.name, model, told["parallel"]["tp_size"], float(used)


def test_recordings() -> None:
    """More than a hundred loads; what differs between them is the model, the ranks, and the figure."""
    loads = list(recorded())
    assert len(loads) > 100
    assert len({name for name, *_ in loads}) > 50
    off = {}
    for _, model, tp, logged in loads:
        spec = load_model(model.removesuffix(" head"))
        off[model, tp, logged] = difference(drafting(spec) if model.endswith(" head") else spec, tp, logged)
    assert {key: round(value, 4) for key, value in off.items() if abs(value) > WITHIN} == {}
    assert {model for model, *_ in off} == {
        *("Qwen/Qwen3.6-27B", "Qwen/Qwen3.6-27B head", "z-lab/Qwen3.6-27B-DFlash"),
        *("Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-35B-A3B head"),
    }
