"""A record and a bare log answer the same questions; what a log cannot tell is said, and is no figure."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench import frames, show
from specbench.cli.diagnosis_text import render
from specbench.errors import ConfigError
from specbench.studies.opened import LogStudy, opened
from specbench.studies.study import Study, siblings

RECORDS = Path(__file__).parent / "records"
CASES = Path(__file__).parent / "logs" / "sglang" / "cases"


@pytest.fixture(scope="module")
def log() -> LogStudy:
    found = opened(RECORDS / "dflash_r8" / "server.log")
    assert isinstance(found, LogStudy)
    return found


def test_a_log_tells_the_same_story_as_its_record(log: LogStudy) -> None:
    record = opened(RECORDS / "dflash_r8")
    assert isinstance(record, Study)
    for one in (log, record):
        assert (one.asked, one.wanted, one.resolved, one.served, one.outcome) == (8, 8, 1, 1, "capped")
        assert (one.basis, one.origin) == ("measured", "recorded")
        sentence = "Capped: 8 requests at once asked, 1 resolved, 1 served at once."
        assert sentence in str(show.headline(one)).splitlines()
        assert "8 slots // 5 per request = 1" in show.findings(one).text
    assert str(show.reconciliation_verdict(log)).count("match") >= 12


def test_what_a_log_has_not_is_said(log: LogStudy) -> None:
    assert log.record is None and log.folder is None and siblings(log) == ()
    assert str(show.latency(log)).startswith("A bare log has no requests of ours")
    assert frames.requests([log]).empty and frames.latency([log]).empty and frames.gpu([log]).empty
    assert len(frames.timeline([log])) == 67  # decode lines in that log
    assert "recorded: a log alone" in show.headline(log).text


def test_a_card_that_was_not_sampled_is_the_tables(log: LogStudy) -> None:
    """The GPU is assumed by its free memory: its total, of the GPU table, is where both sides end."""
    rows = frames.waterfall(log)
    stacked = rows[rows["term"] != "graphs"]
    assert stacked["observed_bytes"].sum() == stacked["predicted_bytes"].sum() == 143_771 * 2**20


def test_without_arguments_nobody_knows_what_was_asked() -> None:
    found = opened(CASES / "b300-tp8-ratio-skill.log")
    assert "What was asked is not logged" in show.headline(found).text
    rows = [line.split() for line in str(show.served_table(found)).splitlines()]
    assert ["kv_tokens", "not", "logged", "not", "predicted", "1167552"] in rows
    assert "too little was read" in show.findings(found).text
    assert frames.waterfall(found)["predicted_bytes"].isna().all()


def test_what_is_told_beside_a_log_has_known_names() -> None:
    with pytest.raises(ConfigError, match=r"^told: 'modell' .text.: no such key\.\nAllowed here: .*model"):
        opened(CASES / "b300-tp8-ratio-skill.log", told={"modell": "x"})
    with pytest.raises(ConfigError, match=r"^told: arguments: got 'x' .text.\.\nExpected names with their values"):
        opened(CASES / "b300-tp8-ratio-skill.log", told={"arguments": "x"})


def test_what_is_told_is_taken_and_what_is_missing_is_asked_for() -> None:
    """The log of one pool line: its model and card are told, and 8 requests."""
    told = {"arguments": {"max_running_requests": 8, "model_path": "Qwen/Qwen3.6-27B"}, "gpu": "h200"}
    found = opened(CASES / "b300-tp8-ratio-skill.log", told=told)
    assert (found.asked, found.asked_is_told) == (8, True)
    assert found.config is not None and (found.config.model, found.config.gpu.name) == ("Qwen/Qwen3.6-27B", "h200")
    untold = opened(CASES / "b300-tp8-ratio-skill.log")
    assert "--model" in show.questions(untold).text and "--model" in show.overview(untold).text
    assert "--model" not in show.questions(found).text


def test_what_to_send_is_the_text_of_the_report() -> None:
    found = opened(CASES / "glm-air-2x3090-tail.log")
    shown = show.to_send(found)
    assert "# " in shown.text and "CUDA out of memory" in shown.text
    assert shown.html.count("<details>") == 1


def test_one_rank_of_many_is_said_to_be_that_at_once() -> None:
    """In the first line of the terminal and of the page, not only among the questions at the end."""
    alone = opened(CASES.parent / "one_rank" / "0.5.16-tp8-dflash-32.log.gz")
    said = "1 rank of 8 in this log (TP0)"
    assert said in alone.provenance and said in str(show.headline(alone))
    console = Console(width=200, color_system=None, file=io.StringIO())
    render(alone.diagnosis, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[0].endswith(f"sglang 0.5.16, figures recorded, {said}")
    whole = opened(RECORDS / "tp4_dflash_r8" / "server.log")
    assert not any("in this log" in words for words in whole.provenance)
