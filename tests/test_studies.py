"""A folder of runs in which one record is damaged: the others are read, that one is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specbench.errors import RecordError
from specbench.studies.study import Missing, collect, siblings, study

RECORDS = Path(__file__).parent / "records"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, `bad` and `fine`."""
    for name in ("bad", "fine"):
        shutil.copytree(RECORDS / "nospec_r8", tmp_path / name / "record")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("server_info.json", b"1"),
        ("server_info.json", b'{"max_total_num_tokens": "many", "internal_states": 5, "context_length": 1e300}'),
        ("requests.jsonl", b"\xff\xfe\n"),
        ("config.yaml", b"\x00\x01"),
        ("status.json", b"[[["),
        ("env.json", b"[]"),
        ("server.log", b"\xff\x00" * 1000),
    ],
)
def test_one_damaged_record_does_not_cost_the_collection(runs: Path, file: str, content: bytes) -> None:
    (runs / "bad" / "record" / file).write_bytes(content)
    entries = {entry.name: entry for entry in collect(runs).entries}
    assert set(entries) == {"bad", "fine"}
    assert not isinstance(entries["fine"], Missing)
    bad = entries["bad"]
    if isinstance(bad, Missing):
        assert str(runs / "bad" / "record") in bad.error


def test_a_request_with_hostile_meta_info_is_read_as_not_said(runs: Path) -> None:
    file = runs / "bad" / "record" / "requests.jsonl"
    traces = [json.loads(line) for line in file.read_text().splitlines()]
    hostile = {"spec_verify_ct": "x", "cached_tokens": [1], "specbench_replay": 5, "finish_reason": {"a": {}}}
    file.write_text("".join(json.dumps({**trace, "meta_info": hostile}) + "\n" for trace in traces))
    row = study(runs / "bad").latency.measured[0]
    assert row.ok > 0
    assert (row.accept_length, row.inexact) == (None, None)


def test_values_that_cannot_be_evaluated_are_a_record_error(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: object) -> None:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr("specbench.studies.study.latency_table", overflow)
    with pytest.raises(RecordError, match=r"cannot be evaluated \(OverflowError: int too large"):
        study(runs / "bad")


def test_a_damaged_sibling_is_left_out(runs: Path) -> None:
    listing = {"schema": 1, "campaign": "c", "runs": [{"name": n, "folder": n} for n in ("bad", "fine")]}
    (runs / "campaign.json").write_text(json.dumps(listing))
    assert len(siblings(study(runs / "fine"))) == 1
    (runs / "bad" / "record" / "env.json").write_text("[]")
    assert siblings(study(runs / "fine")) == ()
