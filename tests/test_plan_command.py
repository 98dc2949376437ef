"""`specbench plan` as a user runs it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.budget.predict import predict
from specbench.cli import app
from specbench.errors import SpecbenchError
from specbench.params import load_run

ROOT = Path(__file__).parent.parent
ONE_STEP = (
    "--model Qwen/Qwen3.6-27B --gpu rtx-pro-6000 --gpus 2 --algorithm DFLASH --version 0.5.16 "
    "--want running_requests=8 --want context=32768"
)


def plan(arguments: str) -> str:
    done = CliRunner().invoke(app, ["plan", *shlex.split(arguments)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def document(arguments: str) -> dict[str, Any]:
    return dict(json.loads(plan(f"{arguments} --json")))


def test_from_two_cards_and_a_wish_to_a_command_line_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = plan(f"{ONE_STEP} --write {file}")
    lines = text.splitlines()
    assert lines[1] == (
        "Yes: 8 requests at once, each of 32,768 tokens (262,144 KV tokens together); DFLASH, on 2 × RTX PRO 6000 "
        "(TP2): set max_running_requests 8."
    )
    assert lines[2].startswith("sure: so over the whole interval of free memory.")
    command = next(line for line in lines if line.startswith("python -m sglang.launch_server"))
    for flag in (
        "--tp-size 2",
        "--speculative-algorithm DFLASH",
        "--speculative-draft-model-path z-lab/Qwen3.6-27B-DFlash",
        "--max-running-requests 8",
        "--context-length 32768",
    ):
        assert flag in command
    assert "8 × 32,768 = 262,144 tokens at once" in text
    assert "the shipped one of Qwen/Qwen3.6-27B" in " ".join(text.split())
    written = load_run(file)
    budget = predict(written)
    assert (written.parallel.tp_size, written.gpu.count, budget.verdict) == (2, 2, "serves")
    tokens = budget.limits["kv_tokens"].value
    assert tokens is not None and tokens.low >= 262_144


def test_the_document_holds_what_predict_says_of_each_plan() -> None:
    found = document("params/story/tp1-8.yaml --want running_requests=8")
    assert (found["schema"], found["reached"], found["plan"]["certainty"]) == (1, True, "sure")
    assert found["plan"]["set"] == {"memory.mem_fraction_static": 0.89}
    assert found["plan"]["flags_added"] == ["--mem-fraction-static 0.89"]
    for plan_ in (found["plan"], *found["sizes"][0]["plans"]):
        changes = [f"{key}={json.dumps(value)}" for key, value in plan_["set"].items()]
        budget = predict(load_run("params/story/tp1-8.yaml", changes))
        for name in ("state_slots", "running_requests", "kv_tokens"):
            value = budget.limits[name].value  # type: ignore[index]
            assert value is not None and plan_["predicted"][name] == value.point
            assert plan_["predicted"]["intervals"][name] == [value.low, value.high]
    assert [size["tp_size"] for size in found["sizes"]] == [1, 2, 4, 8]
    assert found["sizes"][0]["most_at_once"][0]["running_requests"] == 4
    assert found["with_more_gpus"]["set"] == {"parallel.tp_size": 2, "gpu.count": 2}


def test_none_is_an_answer_with_its_proof_and_the_nearest() -> None:
    wish = "--want running_requests=8 --want context=32768 --want state_dtype=float32 --want kv_dtype=auto "
    wish += "--want draft_tokens=16 --want prefix_cache=true"
    text = " ".join(plan(f"params/story/tp2-8-0516.yaml --set parallel.tp_size=1 --gpus 1 {wish}").split())
    assert "No. None of 1,223 candidates reaches 8 requests at once" in text
    assert "on 1 × RTX PRO 6000; 2 × RTX PRO 6000 do." in text
    assert "nearest: 5 instead of 8 requests, with max_running_requests 5, " in text
    assert "or 8 requests of at most 10,419 tokens each." in text
    assert "max_mamba_cache_size 40: refused: Nothing remains for KV tokens: 16.21 GiB left for pools" in text


def test_a_record_is_planned_like_its_params(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    found = document(f"tests/records/dflash_r8_full --want running_requests=8 --write {file}")
    written = load_run(file)
    assert (written.memory.max_mamba_cache_size, written.engine.replay, written.name) == (
        40,
        None,
        "dflash_r8_full-plan",
    )
    assert found["plan"]["flags_added"] == ["--max-mamba-cache-size 40"]
    assert found["plan"]["predicted"]["state_slots"] == 40


def test_strict_is_for_scripts() -> None:
    kept = " ".join(f"--keep {kind}" for kind in ("fraction", "ratio", "kv_dtype", "draft_tokens", "strategy", "radix"))
    hopeless = f"params/story/tp1-8.yaml --want running_requests=2000 {kept}"
    done = CliRunner().invoke(app, ["plan", *shlex.split(hopeless), "--strict", "--json"])
    assert done.exit_code == 1 and json.loads(done.stdout)["reached"] is False


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        ("", "no params file, and no --model", "Give PARAMS, or --model and --gpu"),
        ("--model Qwen/Qwen3.6-27B", "no params file, and no --gpu", "--gpus 2"),
        ("--model Qwen/Qwen3.6-28B --gpu h200", "Did you mean 'Qwen/Qwen3.6-27B'", "hipped"),
        ("--model Qwen/Qwen3.6-27B --gpu h2000", "--gpu: 'h2000' is not in the GPU table. Did you mean", "Known:"),
        ("--model Qwen/Qwen3.6-27B --gpu h200 --gpus 0", "--gpus: got 0", "1 or more"),
        (f"{ONE_STEP} --want context=1", "given twice", "Keep one"),
        (f"{ONE_STEP} --keep fractoin", "no such kind (did you mean 'fraction'?)", "Kinds: slots, ratio"),
        (f"{ONE_STEP} --set parallel.tp_size=3 --set gpu.count=3", "do not divide over 3 ranks", "Allowed: 1, 2, 4"),
        ("--model Qwen/Qwen3.6-27B --gpu h200 --algorithm DFLASHY", "DFLASHY", "ized are"),
        ("params/story/tp1-8.yaml --want draft=4", "no such wish", "Wishes: running_requests"),
    ],
)
def test_bad_input_is_two_lines(arguments: str, first: str, second: str) -> None:
    with pytest.raises(SpecbenchError) as told:
        plan(arguments)
    lines = str(told.value).splitlines()
    assert len(lines) == 2 and first in lines[0] and second in lines[1], lines


def test_what_is_chosen_without_a_params_file_is_told() -> None:
    """And on three cards, over which the model does not divide, two are planned with."""
    found = document(ONE_STEP.replace("0.5.16", "0.5.12").replace("--gpus 2", "--gpus 3"))
    assert any("does not divide over 3 ranks: planned from TP2" in note for note in found["notes"])
    assert "--mamba-scheduler-strategy extra_buffer" in found["plan"]["shell"]
    assert any("extra_buffer only" in note for note in found["notes"])
    assert yaml.safe_load(json.dumps(found)) == found  # plain values throughout
