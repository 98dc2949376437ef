"""When the client itself was the limit, from what a step cost it and from what it measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from specbench import show
from specbench.reading.client_limit import limits
from specbench.reading.latency import table
from specbench.records.record import RunRecord
from specbench.records.types import ClientCost
from specbench.studies.study import collect

RECORD = Path(__file__).parent / "records" / "dflash_r4"
#: Of its steps seq1 (a client, 8 requests): TTFT, and about 20 ms between chunks.
FINE = {"wall_s": 10.0, "cpu_s": 0.5, "process_cpu_s": 0.6, "chunks": 1000, "ticks": 1000}
IN_TIME = {"lag_p50_s": 0.001, "lag_p99_s": 0.002, "lag_max_s": 0.004}


def told(
    tmp_path: Path, origin: str = "measured", step: str = "seq1", **cost: Any
) -> tuple[RunRecord, tuple[str, ...]]:
    """The record as it would be with this cost, and what is said of it."""
    folder = tmp_path / "run" / "record"
    if not folder.exists():
        shutil.copytree(RECORD, folder)
    status = RunRecord.open(folder).status
    spent = ClientCost.model_validate({**FINE, **IN_TIME, **cost})
    changed = status.model_copy(update={"origin": origin, "client": {step: spent}})
    (folder / "status.json").write_text(changed.model_dump_json(by_alias=True))
    record = RunRecord.open(folder)
    return record, limits(record, table(record).rows)


def test_an_idle_client_is_no_limit(tmp_path):
    assert told(tmp_path)[1] == ()


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"cpu_s": 8.7}, "seq1: the client's thread used 87% of a core"),
        ({"lag_p99_s": 0.03}, "seq1: its event loop was up to 30.0 ms late (99th percentile), while chunks came every"),
        ({"lag_max_s": 2.0}, "seq1: its event loop once stood still for 2000 ms, while the time to first token is"),
    ],
)
def test_each_reason_is_told(tmp_path, cost, words):
    record, sentences = told(tmp_path, **cost)
    assert len(sentences) == 1
    assert sentences[0].startswith(words)
    page = show.latency(collect(record.folder.parent.parent).studies[0])
    assert "The client itself was the limit" in page.html
    assert "The client itself was the limit" in show.campaign(collect(record.folder.parent.parent)).text


def test_the_times_of_a_replay_are_recorded_ones(tmp_path):
    assert told(tmp_path, origin="recorded", cpu_s=9.9, lag_p99_s=1.0, lag_max_s=2.0)[1] == ()


def test_the_warm_up_is_in_no_figure(tmp_path):
    assert told(tmp_path, step="warmup", cpu_s=9.9)[1] == ()


def test_a_step_too_short_to_tell_is_not_judged(tmp_path):
    assert told(tmp_path, lag_p50_s=None, lag_p99_s=None, lag_max_s=None)[1] == ()


def test_the_page_has_what_it_cost(tmp_path):
    record, _ = told(tmp_path)
    text = show.latency(collect(record.folder.parent.parent).studies[0]).text
    row = next(line for line in text.splitlines() if line.startswith("seq1  ") and "5.0%" in line)
    assert row.split() == ["seq1", "1000", "500", "5.0%", "1000", "1.0", "2.0", "4.0"]
    assert "What measuring cost the client: CPU of its thread" in text


def test_of_a_replay_it_is_said_whose_client_it_was(tmp_path):
    record, _ = told(tmp_path, origin="recorded", ticks=7)
    env = json.loads((record.folder / "env.json").read_text())
    (record.folder / "env.json").write_text(json.dumps({**env, "replay": {"name": "dflash_r4"}}))
    text = show.latency(collect(record.folder.parent.parent).studies[0]).text
    assert (
        "What measuring cost the client, measured on this machine by the client that replayed, not by the one that "
        "recorded: CPU of its thread"
    ) in text
    row = next(line for line in text.splitlines() if line.startswith("seq1  ") and "5.0%" in line)
    assert row.split() == ["seq1", "1000", "500", "5.0%", "7", "1.0", "2.0", "4.0"]


def test_old_records_have_no_cost():
    record = RunRecord.open(RECORD)
    assert record.status.client == {}
    assert limits(record, table(record).rows) == ()
    assert "What measuring cost" not in show.latency(collect(RECORD.parent).studies[0]).text


def test_nothing_received_has_no_cost_per_chunk():
    cost = ClientCost.model_validate({**FINE, "chunks": 0, "wall_s": 0.0})
    assert (cost.cpu_per_chunk_s, cost.cpu_share) == (None, None)
