"""Simulated acceptance: who asks for it, who honours it, and that it cannot be overlooked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from specbench import frames, plots, show
from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import of_record
from specbench.diagnose.document import to_document
from specbench.engines import check
from specbench.engines.sglang.acceptance import honoured, simulated, variables
from specbench.records.caveats import marks, marks_of, simulated_length
from specbench.records.record import RunRecord
from specbench.studies.study import collect, study

RECORDS = Path(__file__).parent / "records"


def run(version: str, algorithm: str, length: float | None, **env: str) -> RunConfig:
    speculative: dict[str, Any] = {"algorithm": algorithm}
    if algorithm == "DFLASH":
        speculative |= {"draft_model_path": "z-lab/Qwen3.6-27B-DFlash", "num_draft_tokens": 16}
    if algorithm in ("NEXTN", "EAGLE"):
        speculative |= {"num_steps": 3, "num_draft_tokens": 4, "eagle_topk": 1}
    return RunConfig.model_validate(
        {
            "name": "simulated",
            "engine": {"version": version, "env": env},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
            "speculative": speculative,
            "workload": {"simulate_acc_len": length},
        }
    )


@pytest.mark.parametrize(
    ("algorithm", "version", "expected"),
    [
        ("NEXTN", "0.5.12", True),
        ("EAGLE", "0.5.23", True),
        ("DFLASH", "0.5.12", False),
        ("DFLASH", "0.5.16", False),
        ("DFLASH", "0.5.17", True),
        ("dflash", "0.5.23", True),
        ("DSPARK", "0.5.16", True),
        ("NGRAM", "0.5.12", False),
        ("NGRAM", "0.5.14", True),
        ("none", "0.5.23", False),
    ],
)
def test_who_honours_it(algorithm: str, version: str, expected: bool) -> None:
    assert honoured(version, algorithm) is expected


def test_the_key_becomes_variables_of_the_server() -> None:
    assert variables(run("0.5.16", "NEXTN", None)) == {}
    assert variables(run("0.5.16", "NEXTN", 2.5)) == {
        "SGLANG_SIMULATE_ACC_LEN": "2.5",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
    }
    own = run("0.5.16", "NEXTN", 2.5, SGLANG_SIMULATE_ACC_METHOD="multinomial")
    assert variables(own)["SGLANG_SIMULATE_ACC_METHOD"] == "multinomial"


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, {}),
        ({"SGLANG_SIMULATE_ACC_LEN": "3"}, {"SGLANG_SIMULATE_ACC_LEN": "3"}),
        ({"SGLANG_SIMULATE_ACC_LEN": "-1"}, {}),
        ({"SGLANG_SIMULATE_ACC_METHOD": "multinomial"}, {}),
        ({"SPECBENCH_SIM_ACCEPT": "6.3"}, {"SPECBENCH_SIM_ACCEPT": "6.3"}),
        ({"MY_SIMULATE_ACCEPTANCE": "on"}, {"MY_SIMULATE_ACCEPTANCE": "on"}),
        ({"MY_SIMULATE_ACCEPTANCE": "false"}, {}),
    ],
)
def test_variables_of_the_user_count_as_simulated(env: dict[str, str], found: dict[str, str]) -> None:
    assert simulated(run("0.5.16", "NEXTN", None, **env)) == found
    # also when the server inherits them
    assert simulated(run("0.5.16", "NEXTN", None), env) == found


@pytest.mark.parametrize(
    ("version", "algorithm", "length", "reason"),
    [
        ("0.5.16", "DFLASH", 6.3, "sglang 0.5.16 does not simulate the acceptance of DFLASH, 0.5.17 does"),
        ("0.5.12", "none", 2.0, "without speculation nothing is drafted"),
        ("0.5.16", "NEXTN", 4.5, "a step of 4 tokens cannot yield more than 4, bonus token included"),
    ],
)
def test_what_would_not_be_simulated_is_refused(version: str, algorithm: str, length: float, reason: str) -> None:
    refusals = [one for one in check(run(version, algorithm, length)) if one.key == "workload.simulate_acc_len"]
    assert [one.reason for one in refusals] == [reason]


@pytest.mark.parametrize(("version", "algorithm", "length"), [("0.5.20", "DFLASH", 6.3), ("0.5.16", "NEXTN", 4.0)])
def test_what_is_simulated_is_not_refused(version: str, algorithm: str, length: float) -> None:
    assert [one for one in check(run(version, algorithm, length)) if one.key == "workload.simulate_acc_len"] == []


def test_the_mark_says_when_the_engine_ignores_it() -> None:
    assert marks_of(run("0.5.20", "DFLASH", 6.3)) == ("SIMULATED ACCEPTANCE 6.3: speed is a cost model, not a result",)
    ignored = marks_of(run("0.5.16", "DFLASH", None, SGLANG_SIMULATE_ACC_LEN="2.5"))
    assert "sglang 0.5.16 does not look at it with DFLASH" in ignored[0]
    assert marks_of(run("0.5.16", "DFLASH", None)) == ()


@pytest.mark.parametrize(
    ("name", "length"),
    [("nextn_r4_full", "2.5"), ("nextn_r4_full_nodeepgemm", "2.5"), ("dflash_r8_full_sim", "6.3"), ("dflash_r8", None)],
)
def test_recordings_that_used_it(name: str, length: str | None) -> None:
    assert simulated_length(RunRecord.open(RECORDS / name)) == length


def test_it_stands_on_pages_in_tables_and_over_figures(tmp_path: Path) -> None:
    for name in ("dflash_r8_full_sim", "dflash_r8"):
        shutil.copytree(RECORDS / name, tmp_path / name)
    mark = "SIMULATED ACCEPTANCE 6.3: speed is a cost model, not a result"
    one = study(tmp_path / "dflash_r8_full_sim")
    assert marks(one.record) == (mark,)
    for shown in (show.headline(one), show.overview(one), show.latency(one)):
        assert mark in shown.html
        assert mark in shown.text
    runs = collect(tmp_path)
    assert f"{mark}: in 1 of 2 runs. These are: dflash_r8_full_sim." in show.campaign(runs).text
    row = next(line for line in show.runs_table(runs).text.splitlines() if line.startswith("dflash_r8_full_sim"))
    assert "SIMULATED ACCEPTANCE 6.3" in row
    figure = plots.latency_bars(frames.latency(runs.studies), "ttft_s", ax=plt.figure().gca())
    assert figure.get_title(loc="left").startswith("SIMULATED ACCEPTANCE 6.3 in the rows marked so")
    named = [label.get_text() for label in figure.get_yticklabels()]
    assert all("[simulated 6.3]" in text for text in named if text.startswith("dflash_r8_full_sim"))
    assert not any("simulated" in text for text in named if text.startswith("dflash_r8 "))
    alone = plots.latency_ecdf(frames.requests([one]), ax=plt.figure().gca())
    assert alone.get_title(loc="left") == mark
    assert to_document(of_record(one.record))["marks"] == [mark]


def test_where_nothing_was_answered_it_stands_in_the_row_alone(tmp_path: Path) -> None:
    shutil.copytree(RECORDS / "nextn_r4_full", tmp_path / "nextn_r4_full")
    one = study(tmp_path / "nextn_r4_full")  # crashed at its first batch
    assert marks(one.record) == ()
    assert "SIMULATED" not in show.headline(one).text
    assert "SIMULATED" in show.latency(one).text  # its warm-up was answered, and has times
    assert "SIMULATED ACCEPTANCE 2.5" in show.runs_table(collect(tmp_path)).text


def test_other_recordings_have_no_mark() -> None:
    other = study(RECORDS / "dflash_r8")
    assert "SIMULATED" not in show.overview(other).text
    assert plots.latency_ecdf(frames.requests([other]), ax=plt.figure().gca()).get_title(loc="left") == ""
