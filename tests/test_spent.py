"""Where the time of a run went, from the phases in its record and the durations in its notebooks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specbench import show
from specbench.campaign.types import CampaignResult, PointResult
from specbench.cli.campaign_text import document
from specbench.reading.spent import Spent, spent
from specbench.records.record import RunRecord
from specbench.studies.study import collect

RECORD = Path(__file__).parent / "records" / "dflash_r4"


def run_folder(root: Path, name: str, run_s: object, diagnosis_s: object = None) -> Path:
    """A run folder with the record dflash_r4 and notebooks that took so long."""
    folder = root / name
    shutil.copytree(RECORD, folder / "record")
    for notebook, seconds in (("2_run.ipynb", run_s), ("3_diagnose.ipynb", diagnosis_s)):
        if seconds is not None:
            text = json.dumps({"cells": [], "metadata": {"papermill": {"duration": seconds}}})
            (folder / notebook).write_text(text)
    return folder


def test_specbenchs_own_time_is_what_the_engine_did_not_take(tmp_path):
    # In its status: start 8.93, warmup 0.701635, warmup2 1.834842, seq1 11.605722, conc4 23.285595,
    # conc8_queue 23.512053; their sum is 69.869847. It has no stop, and a total that is no phase of its own.
    time = spent(run_folder(tmp_path, "a", 72.0, 3.5), RunRecord.open(RECORD))
    assert time.start_s == 8.93
    assert time.warmup_s == pytest.approx(2.536477)
    assert time.measured_s == pytest.approx(58.40337)
    assert time.stop_s is None
    assert time.engine_s == pytest.approx(69.869847)
    assert time.own_s == pytest.approx(2.130153)
    assert time.own_share == pytest.approx(0.0295855, rel=1e-4)
    assert time.diagnosis_s == 3.5


@pytest.mark.parametrize("seconds", [None, "3", True, -1.0, {}])
def test_without_a_duration_specbenchs_own_time_is_unknown(tmp_path, seconds):
    time = spent(run_folder(tmp_path, "a", seconds), RunRecord.open(RECORD))
    assert (time.run_s, time.own_s, time.own_share, time.diagnosis_s) == (None, None, None, None)
    assert time.measured_s is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metadata":{}}', "[" * 100_000])
def test_a_notebook_that_is_none_says_nothing(tmp_path, text):
    folder = run_folder(tmp_path, "a", None)
    (folder / "2_run.ipynb").write_text(text)
    assert spent(folder, RunRecord.open(RECORD)).run_s is None


def test_nothing_known_is_not_zero():
    nothing = Spent(start_s=None, warmup_s=None, measured_s=None, stop_s=None, run_s=5.0, diagnosis_s=None)
    assert (nothing.engine_s, nothing.own_s, nothing.own_share) == (None, None, None)


def test_clocks_that_disagree_give_no_time_below_zero():
    late = Spent(start_s=3.0, warmup_s=None, measured_s=2.0, stop_s=0.5, run_s=5.0, diagnosis_s=None)
    assert late.own_s == 0.0
    assert replace(late, run_s=6.5).own_s == 1.0


def test_the_table_has_a_row_per_run_and_one_for_all(tmp_path):
    run_folder(tmp_path, "a", 72.0)
    run_folder(tmp_path, "b", 80.0)
    run_folder(tmp_path, "c", None)  # imported: left out
    lines = show.time_spent(collect(tmp_path)).text.splitlines()
    assert [line.split() for line in lines[3:]] == [
        ["a", "8.9", "2.5", "58.4", "none", "2.1", "72.0", "3.0%"],
        ["b", "8.9", "2.5", "58.4", "none", "10.1", "80.0", "12.7%"],
        ["all", "17.9", "5.1", "116.8", "none", "12.3", "152.0", "8.1%"],
    ]


def test_records_without_notebooks_say_so():
    assert show.time_spent(collect(RECORD.parent)).text == (
        "Not recorded: these records lie without their run notebooks."
    )


def test_json_has_the_seconds_of_every_run(tmp_path):
    folder = run_folder(tmp_path, "a", 72.0, 3.5)
    point = PointResult(name="a", folder=folder, status="served", outcome="capped", error=None)
    result = CampaignResult(name="x", folder=tmp_path, index=tmp_path / "index.html", points=(point,), problems=())
    seconds = document(result)["runs"][0]["seconds"]
    assert seconds == {
        "engine_start": 8.93,
        "warmup": pytest.approx(2.536477),
        "measured": pytest.approx(58.40337),
        "engine_stop": None,
        "specbench": pytest.approx(2.130153),
        "whole_run": 72.0,
        "diagnosis": 3.5,
    }
