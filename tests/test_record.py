"""Records: written once and whole, read back equal, later schemas refused by name."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specbench.configuration.config import RunConfig
from specbench.errors import RecordError
from specbench.records import size as record_size
from specbench.records.folders import new_run_folder, unfinished
from specbench.records.record import RunRecord
from specbench.records.types import GpuSample, RequestTrace, RunStatus
from specbench.records.writer import RecordWriter

RECORDS = Path(__file__).parent / "records"
CONFIG = RunConfig.model_validate(
    {"name": "r", "engine": {"version": "0.5.16"}, "model": "m", "gpu": {"name": "h200"}, "workload": {"seed": 7}}
)
TRACE = RequestTrace(
    step="conc1",
    phase="measured",
    index=0,
    concurrency=1,
    input_tokens=8,
    max_new_tokens=4,
    sent_s=0.0,
    http_status=200,
    chunks=((0.25, 1), (0.5, 3)),
    end_s=0.5,
    output_tokens=4,
    finish_reason="length",
)
SAMPLE = GpuSample(
    t_s=0.5,
    phase="start",
    gpu=1,
    used_bytes=647_000_064,
    free_bytes=1,
    total_bytes=647_000_065,
    utilization_pct=None,
    power_w=132.5,
)
SERVED = RunStatus(status="served", origin="measured", reason="ready, and ran until it was stopped", ready_s=3.5)


def write(folder: Path, log: bytes = b"a line\n") -> RunRecord:
    with RecordWriter(folder / "record") as writer:
        writer.config(CONFIG)
        writer.command(["python", "-m", "x", "--flag", "a b"])
        writer.env({"engine": {"version": "0.5.16"}})
        writer.log_path.write_bytes(log)
        writer.requests([TRACE])
        writer.gpu_samples([SAMPLE])
        writer.text("metrics.txt", "m 1\n", compress=True)
        return writer.finish(SERVED)


def test_a_record_reads_back_equal_from_the_run_folder_and_from_its_own(tmp_path: Path) -> None:
    write(tmp_path)
    for place in (tmp_path, tmp_path / "record"):
        record = RunRecord.open(place)
        assert record.config == CONFIG
        assert record.status == SERVED
        assert record.requests() == (TRACE,)
        assert record.gpu_samples() == (SAMPLE,)
        assert record.command() == ("python", "-m", "x", "--flag", "a b")
        assert record.metrics_text() == "m 1\n"
        assert record.server_info() is None
        assert record.log_bytes() == b"a line\n"


def test_a_large_log_is_stored_compressed_and_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "_COMPRESS_LOG_FROM", 100)
    record = write(tmp_path, b"line\r\n" * 50)
    assert record.log_path.name == "server.log.gz"
    assert gzip.decompress(record.log_path.read_bytes()) == record.log_bytes() == b"line\r\n" * 50
    assert not (record.folder / "server.log").exists()


def test_nothing_is_visible_before_the_end_and_nothing_stays_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RecordWriter(tmp_path / "record") as writer:
        writer.config(CONFIG)
        assert not (tmp_path / "record").exists()
        assert (tmp_path / f"record.partial-{os.getpid()}").is_dir()
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_never_written_twice(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(RecordError, match="written once"):
        RecordWriter(tmp_path / "record")


def test_what_a_killed_run_leaves_is_called_unfinished(tmp_path: Path) -> None:
    program = "\n".join(
        (
            "import os, signal, sys",
            "from pathlib import Path",
            "from specbench.records.writer import RecordWriter",
            "RecordWriter(Path(sys.argv[1]) / 'record').log_path.write_text('half')",
            "os.kill(os.getpid(), signal.SIGKILL)",
        )
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=30, check=False)
    assert done.returncode == -9
    (left,) = unfinished(tmp_path)
    assert not left.alive
    with pytest.raises(RecordError, match="unfinished: its process was killed"):
        RunRecord.open(tmp_path)


def test_where_no_lock_tells_the_pid_has_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have no locks. 2^40 is beyond any pid, and beyond what the kernel takes for one."""
    monkeypatch.setattr("specbench.records.folders.is_held", lambda folder: None)
    for pid in (os.getpid(), 2**40):
        (tmp_path / f"record.partial-{pid}").mkdir()
    assert {left.pid: left.alive for left in unfinished(tmp_path)} == {os.getpid(): True, 2**40: False}


def test_what_a_living_process_writes_is_not_given_up_and_a_pid_alone_tells_nothing(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "record") as writer:
        # As on another machine, where this pid is nobody's or another's.
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / f"record.partial-{os.getpid()}").mkdir()
        assert [left.alive for left in unfinished(tmp_path)] == [True]
        assert [left.alive for left in unfinished(tmp_path / "elsewhere")] == [False]
        with pytest.raises(RecordError, match="still being written"):
            RunRecord.open(tmp_path)
        writer.config(CONFIG)
    assert unfinished(tmp_path) == ()


@pytest.mark.parametrize("file", ["status.json", "env.json"])
def test_a_later_schema_is_refused_by_its_number(tmp_path: Path, file: str) -> None:
    record = write(tmp_path)
    data = json.loads((record.folder / file).read_text())
    (record.folder / file).write_text(json.dumps({**data, "schema": 2, "new": True}))
    with pytest.raises(RecordError, match="schema 2 was written by a later specbench; this one reads up to schema 1"):
        RunRecord.open(tmp_path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"status.json": "{}"}, "no schema number"),
        ({"status.json": '{"schema": 1, "status": "fine"}'}, "cannot be read"),
        ({"status.json": "{"}, "not valid JSON"),
        ({"config.yaml": "name: [}"}, "cannot be read"),
        ({"requests.jsonl": '{"step": 1}\n'}, "line 1"),
    ],
)
def test_a_damaged_record_says_which_file(tmp_path: Path, damage: dict[str, str], words: str) -> None:
    record = write(tmp_path)
    for name, text in damage.items():
        (record.folder / name).write_text(text)
    with pytest.raises(RecordError, match=words):
        RunRecord.open(tmp_path).requests()


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("env.json", None, "env.json: cannot be read: Is a directory"),
        ("env.json", b"\xff", "not valid JSON"),
        ("config.yaml", None, "cannot be read"),
        ("config.yaml", b"\xff\xfe", "cannot be read"),
        ("requests.jsonl", b'\xff\xfe{"step": 1}\n', "requests.jsonl: not UTF-8"),
        ("requests.jsonl", TRACE.model_copy(update={"output_tokens": 10**400}).model_dump_json().encode(), "line 1"),
        ("requests.jsonl", TRACE.model_copy(update={"end_s": 1e308}).model_dump_json().encode(), "line 1"),
        ("server_info.json", b"1", "server_info.json: expected a JSON object"),
        ("model_info.json", b"[]", "model_info.json: expected a JSON object"),
        ("command.json", b'{"a": 1}', "command.json: expected a list of texts"),
        ("gpu.csv", b"t_s,phase\n1,start\n", "gpu.csv: not the table that was written"),
        ("gpu.csv", b"\xff\xfe\x00", "gpu.csv: not the table that was written"),
        ("metrics.txt.gz", b"no gzip", "metrics.txt.gz: cannot be read"),
        ("metrics.txt.gz", gzip.compress(b"abc" * 1000, mtime=0)[:20], "metrics.txt.gz: cannot be read"),
    ],
)
def test_every_part_that_is_damaged_is_a_record_error(
    tmp_path: Path, file: str, content: bytes | None, words: str
) -> None:
    place = write(tmp_path).folder / file
    place.unlink(missing_ok=True)
    if content is None:
        place.mkdir()
    else:
        place.write_bytes(content)
    with pytest.raises(RecordError, match=words):
        record = RunRecord.open(tmp_path)
        _ = record.requests(), record.server_info(), record.model_info(), record.command()
        _ = record.gpu_samples(), record.metrics_text()


def test_wrong_types_in_what_an_engine_or_a_machine_says_are_unknown(tmp_path: Path) -> None:
    record = write(tmp_path)
    env = {"schema": 1, "machine": {"gpus": [1, {"name": "NVIDIA H200"}, None], "driver": 5}}
    (record.folder / "env.json").write_text(json.dumps(env))
    seen = RunRecord.open(tmp_path).this_machine
    assert seen is not None and (seen.gpus, seen.driver) == (("NVIDIA H200",), None)
    for rounds in ("x", -1, True, 10**400, [1]):
        trace = TRACE.model_copy(update={"meta_info": {"spec_verify_ct": rounds, "specbench_replay": {"exact": 3}}})
        assert (trace.verify_rounds, trace.replayed_exactly) == (None, None)
    assert TRACE.model_copy(update={"meta_info": {"spec_verify_ct": 2}}).verify_rounds == 2


@pytest.mark.parametrize("below", ["file", "file/below", "n" * 300, "n\ud800", "n\0", "dangling"])
def test_where_no_run_can_be_written_is_said_in_two_lines(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "dangling").symlink_to(tmp_path / "file" / "x")
    for begin in (lambda: new_run_folder(tmp_path / below, "r"), lambda: RecordWriter(tmp_path / below / "record")):
        with pytest.raises(RecordError, match="runs cannot be written there: ") as raised:
            begin()
        assert len(str(raised.value).splitlines()) == 2


def test_no_record_is_told_from_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        RunRecord.open(tmp_path / "absent")
    with pytest.raises(RecordError, match="no record here"):
        RunRecord.open(tmp_path)


def test_run_folders_are_numbered_and_never_shared(tmp_path: Path) -> None:
    names = [new_run_folder(tmp_path / "runs", "tp1-8").name for _ in range(3)]
    assert names == ["tp1-8", "tp1-8.2", "tp1-8.3"]


def test_the_hash_changes_with_any_byte_and_any_name(tmp_path: Path) -> None:
    record = write(tmp_path)
    before = record.sha256()
    shutil.copytree(record.folder, tmp_path / "copy")
    assert RunRecord.open(tmp_path / "copy").sha256() == before
    (tmp_path / "copy" / "server.log").write_bytes(b"A line\n")
    assert RunRecord.open(tmp_path / "copy").sha256() != before


def test_what_several_readers_ask_for_is_read_once() -> None:
    record = RunRecord.open(RECORDS / "h200_story-4")
    assert record.requests() and record.requests() is record.requests()
    assert record.server_info() and record.server_info() is record.server_info()
    assert record.gpu_samples() and record.gpu_samples() is record.gpu_samples()
    assert record.metric_samples() and record.metric_samples() is record.metric_samples()


def test_every_shipped_record_opens() -> None:
    records = [RunRecord.open(folder) for folder in sorted(RECORDS.iterdir()) if folder.is_dir()]
    assert len(records) == 75  # 36 imported from a script, 14, 13, 10 and 2 that specbench itself recorded
    assert all(record.origin == "recorded" for record in records)
    assert sum(len(record.requests()) for record in records) == 1143
