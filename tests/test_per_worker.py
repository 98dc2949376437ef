"""Requests asked of a server, and of one of its data-parallel workers: the same figure everywhere."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.budget.predict import predict
from specbench.cli import app
from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import of_log
from specbench.diagnose.remedies import Situation, remedies
from specbench.engines.sglang.per_worker import requests_of_worker
from specbench.params import load_run
from specbench.studies.study import study

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "records"
PLAIN: dict[str, Any] = {"dp_size": 2}
ATTENTION: dict[str, Any] = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}


def run(version: str, parallel: dict[str, Any]) -> RunConfig:
    sections = load_run(ROOT / "params" / "h200" / "0.5.16.yaml").to_sections()
    sections["engine"] |= {"version": version}
    return RunConfig.model_validate(sections | {"parallel": parallel, "gpu": {"name": "h200", "count": 2}})


@pytest.mark.parametrize(
    ("version", "parallel", "asked", "share"),
    [
        ("0.5.16", {}, 8, 8),
        ("0.5.13", PLAIN, 8, 8),
        ("0.5.14", PLAIN, 8, 8),
        ("0.5.13", ATTENTION, 8, 4),
        ("0.5.16", ATTENTION, 9, 4),
        ("0.5.22", ATTENTION, 1, 0),
        ("0.5.23", ATTENTION, 1, 1),
        ("0.5.16", ATTENTION, None, None),
        ("0.4.9", PLAIN, 8, 8),  # no rule: as DP attention alone divides
        ("0.4.9", ATTENTION, 8, 4),
    ],
)
def test_the_share_of_one_worker(version: str, parallel: dict[str, Any], asked: int | None, share: int | None) -> None:
    assert requests_of_worker(run(version, parallel), asked) == share


def test_a_worker_that_resolves_its_share_is_not_capped(tmp_path: Path) -> None:
    """0.5.12 asks all 8 of each of two plain workers (the oracle says so of every release); each resolves 8."""
    folder = tmp_path / "two"
    shutil.copytree(RECORDS / "0512_nospec_r8", folder)
    sections = yaml.safe_load((folder / "config.yaml").read_text())
    sections["parallel"]["dp_size"] = sections["gpu"]["count"] = 2
    (folder / "config.yaml").write_text(yaml.safe_dump(sections, sort_keys=False))
    found = study(folder)
    assert (found.asked, found.wanted, found.resolved, found.outcome) == (8, 8, 8, "started")  # nothing was sent
    assert found.diagnosis.findings == ()
    assert {budget.verdict for budget in found.diagnosis.budgets.values()} == {"serves"}


def test_a_bare_log_of_two_workers_is_that_of_two_gpus() -> None:
    """Without data-parallel attention each worker is a copy of the model on a GPU of its own."""
    log = (RECORDS / "0512_dflash_r4" / "server.log").read_text()
    assert "dp_size=1" in log
    found = of_log(io.BytesIO(log.replace("dp_size=1", "dp_size=2").encode()), name="two")
    assert found.config is not None
    assert (found.config.parallel.dp_size, found.config.gpu.count) == (2, 2)
    assert {budget.verdict for budget in found.budgets.values()} <= {"serves", "capped"}


def test_remedies_with_more_gpus_count_the_copies() -> None:
    """dflash-8 on two plain workers of 0.5.16, each asked for 8: one card each runs 5, two cards each run all."""
    config = run("0.5.16", PLAIN).replace({"memory.max_running_requests": 8})
    budget = predict(config)
    assert budget.verdict == "capped"
    asked = Situation(config=config, budget=budget, free=None, wanted_requests=8, passed_fraction=None, graphs_bytes=0)
    found = remedies(asked, most=20)
    assert {"parallel.tp_size": 2, "gpu.count": 4} in [remedy.set for remedy in found]


def test_a_dry_run_counts_by_worker_what_is_predicted_and_what_is_asked(tmp_path: Path) -> None:
    """Plain workers of 0.5.12 without speculation: all 8 each, as the oracle says of every release."""
    done = CliRunner().invoke(
        app,
        [
            *("run", str(ROOT / "params" / "h200" / "0.5.12.yaml"), "--out", str(tmp_path / "out"), "--dry-run"),
            *("--set", "speculative.algorithm=none", "--set", "speculative.draft_model_path=null"),
            *("--set", "speculative.num_draft_tokens=null"),
            *("--set", "memory.max_running_requests=8", "--set", "parallel.dp_size=2", "--set", "gpu.count=2"),
        ],
        env={"COLUMNS": "200"},
    )
    assert done.exit_code == 0, done.output
    assert "expected to serve 8 of 8" in done.stdout
