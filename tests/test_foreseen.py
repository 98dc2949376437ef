"""What would not come to its end is told before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.budget.predict import predict
from specbench.cli import app
from specbench.lifecycle.preflight import no_interpreter
from specbench.load import foreseen
from specbench.params import load_campaign, load_run

PARAMS = Path(__file__).parent.parent / "params"


def test_prompts_that_the_engine_will_refuse_are_counted() -> None:
    run = next(run for run in load_campaign(PARAMS / "h200.yaml").runs if run.name == "too-long")
    (told,) = foreseen.of_workload(run, predict(run))
    assert told.startswith("2 of 3 prompt lengths expected to be refused by the engine: input 19,994 + output 64")
    assert "the context holds 32,768: 1 too many" in told


@pytest.mark.parametrize("command", ["predict", "run"])
def test_a_workload_that_run_would_refuse_is_told(command: str) -> None:
    given = ["--set", "workload.input_tokens=[40000]", "--json"] + (["--dry-run"] if command == "run" else [])
    done = CliRunner().invoke(app, [command, str(PARAMS / "h200" / "0.5.16.yaml"), *given])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    warnings = data["warnings"] if command == "predict" else data["runs"][0]["warnings"]
    assert warnings[-1].startswith("run refuses this workload: input 40,000 + output ")


def test_what_fits_is_not_doubted() -> None:
    run = load_run(PARAMS / "h200" / "0.5.16.yaml", [f"engine.python={sys.executable}"])
    assert foreseen.of_workload(run, predict(run)) == ()
    assert no_interpreter(run) == ()


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    run = load_run(PARAMS / "h200" / "0.5.16.yaml", [f"engine.python={tmp_path}/python"])
    (told,) = no_interpreter(run)
    assert told == f"run refuses this: engine.python: '{tmp_path}/python' is not on this machine"
