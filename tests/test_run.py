"""A configuration run whole on a replay: record, figures in recorded time, refusals, and nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from specbench import show
from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError, LaunchError
from specbench.host import machine, nvml
from specbench.host.machine import Gpu, GpuState
from specbench.lifecycle import fetch
from specbench.lifecycle.server import Server
from specbench.params import load_run
from specbench.reading import latency
from specbench.reading.freeread import measured_offsets
from specbench.records.caveats import RANDOM_WEIGHTS
from specbench.records.record import RunRecord
from specbench.records.writer import RecordWriter
from specbench.running import captures, environment
from specbench.running.carried import NOTE, carried
from specbench.running.run import run
from specbench.studies.study import study

RECORDS = Path(__file__).parent / "records"


def replay_of(name: str, **changes: Any) -> RunConfig:
    return RunRecord.open(RECORDS / name).config.replace(
        {"engine.replay": str(RECORDS / name), "engine.replay_speed": "instant", **changes}
    )


def test_a_served_run_leaves_a_record_in_recorded_time(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    asked = replay_of("dflash_r8", **{"workload.warmup": 1, "workload.requests": 8})
    record = run(asked, tmp_path / "run", lambda *what: told.append(what))
    assert record.folder == tmp_path / "run" / "record"
    assert record.config == asked
    assert (record.status.status, record.origin) == ("served", "recorded")
    assert record.status.ready_s is not None

    conc1, conc8 = latency.table(record).measured
    # Medians as recorded: 20.444 s to the first token of 8 clients, 0.123 s of one; 22.27 ms per token.
    assert conc8.ttft_s and conc8.ttft_s.p50 == pytest.approx(20.444, abs=0.001)
    assert conc8.tpot_s and conc8.tpot_s.p50 == pytest.approx(0.02227, abs=0.00001)
    assert (conc8.ok, conc8.failed, conc8.inexact) == (8, 0, 0)
    assert conc1.ttft_s and conc1.ttft_s.p50 == pytest.approx(0.123, abs=0.001)
    assert (conc1.ok, conc1.inexact) == (8, 6)  # two were recorded, six repeat them and say so
    # One client, one request after the other: 8 x 5.802 s.
    assert conc1.span_s == pytest.approx(8 * 5.802, abs=0.05)

    assert record.status.flushes == {
        "conc1-in1024": "HTTP 200: Cache flushed.",
        "conc8-in1024": "HTTP 200: Cache flushed.",
    }
    assert list(record.status.phases) == ["start", "warmup", "conc1-in1024", "conc8-in1024", "stop"]
    assert record.command()[1:3] == ("-m", "specbench.replay")
    info = record.server_info()
    assert info and info["max_total_num_tokens"] == 158177
    assert record.metrics_text()
    replay = record.env["replay"]
    assert (replay["name"], replay["speed"], replay["differences"]) == ("dflash_r8", "instant", {})
    assert replay["sha256"] == RunRecord.open(RECORDS / "dflash_r8").sha256()
    assert record.env["machine"]["driver"] == "580.159.04"  # the recorded machine, not this one
    assert any("all times of requests are in recorded time" in note for note in record.status.notes)
    assert "7 of these requests have no counterpart in the recording" in show.latency(study(record.folder)).text
    assert ("conc8-in1024", 8, 8) in told and ("stop", 0, 1) in told


def test_at_a_speed_times_are_multiplied_back(tmp_path: Path) -> None:
    """100 times as fast: not multiplied back, 20.444 s would read 0.2 s. A busy machine is late, never early."""
    asked = replay_of(
        "dflash_r8",
        **{"engine.replay_speed": 100.0, "workload.concurrency": [8], "workload.requests": 8, "workload.warmup": 0},
    )
    record = run(asked, tmp_path)
    (row,) = latency.table(record).rows
    assert row.ttft_s and 20.4 < row.ttft_s.p50 < 100
    assert row.e2e_s and 26.1 < row.e2e_s.p50 < 130
    assert record.env["replay"]["speed"] == 100.0


def stand_in(folder: Path, version: str) -> Path:
    """A site folder whose engine is a replay under the engine's name: specbench takes it for a real one."""
    package = folder / "site" / "sglang"
    package.mkdir(parents=True)
    (folder / "site" / "sglang.dist-info").mkdir()
    (folder / "site" / "sglang.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    )
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "import runpy, sys\n"
        "port = sys.argv[sys.argv.index('--port') + 1]\n"
        f"sys.argv = ['replay', {str(RECORDS / 'nospec_r8')!r}, '--port', port, '--speed', 'instant']\n"
        "runpy.run_module('specbench.replay', run_name='__main__')\n"
    )
    return folder / "site"


def real_start(site: Path) -> RunConfig:
    path = os.pathsep.join((str(site), str(Path(__file__).parent.parent)))
    return RunRecord.open(RECORDS / "nospec_r8").config.replace(
        {"engine.env": {"PYTHONPATH": path}, "workload.concurrency": [8], "workload.requests": 8, "workload.warmup": 0}
    )


def one_card(name: str, mib: int) -> GpuState:
    gpu = Gpu(index=0, name=name, total_bytes=mib * 2**20, free_bytes=mib * 2**20)
    return GpuState(gpus=(gpu,), driver="580.0", reason=None)


def test_a_real_engine_is_measured_by_this_machines_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: one_card("NVIDIA L4", 23034))
    record = run(real_start(stand_in(tmp_path, "0.5.16")), tmp_path / "run")
    assert (record.status.status, record.origin) == ("served", "measured")
    (row,) = latency.table(record).rows
    assert row.ok == 8
    assert row.e2e_s and 0 < row.e2e_s.p50 < 4.0  # as recorded it would be 4.915 s
    assert record.env["replay"] is None
    assert "--max-running-requests" in record.command()
    assert record.env["inputs_sha256"]["model"] is not None
    assert record.env["gpu_telemetry"].startswith(("NVML", "no NVML on this machine: "))
    assert record.env["engine"]["installed"] == "0.5.16"
    known_from = f"the source files in {tmp_path}/site/sglang"  # the stand-in has none of them
    unread = {"algorithms": None, "flags": None, "known_from": known_from, "plugins": []}
    assert record.env["engine"]["capabilities"] == unread
    assert record.status.notes[0].startswith("ANOTHER CARD: this machine has NVIDIA L4 (23,034 MiB); ")


def test_what_a_real_start_leaves_of_its_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's lines with their moments, the parts of the start, /metrics, the cache and the client, on one clock."""
    monkeypatch.setattr(machine, "gpus", lambda: one_card("NVIDIA H200", 143771))
    told: list[str] = []
    record = run(
        real_start(stand_in(tmp_path, "0.5.16")), tmp_path / "run", progress=lambda phase, *_: told.append(phase)
    )
    status, capture = record.status, record.env["capture"]
    arrivals = record.log_arrivals()
    assert [a.line for a in arrivals] == list(range(1, record.log_bytes().count(b"\n") + 1))
    assert all(later.t_s >= a.t_s for a, later in itertools.pairwise(arrivals))
    lines = record.log_bytes().split(b"\n")
    assert all(record.log_bytes()[a.offset :].startswith(lines[a.line - 1][:80]) for a in arrivals)
    assert next(iter(status.stages)) == "importing"
    assert status.stages.keys() >= {"loading weights", "allocating pools", "the engine's own warm-up"}
    assert sum(status.stages.values()) == pytest.approx(status.ready_s, abs=5.0)
    assert 0 < status.marks["load_begin"] <= status.marks["fired_up"]
    assert any(phase.startswith("start: importing (") for phase in told)
    assert {sample.phase for sample in record.metric_samples()} >= {"ready"}
    assert any(sample.name == "max_total_num_tokens" for sample in record.metric_samples())
    assert capture["metrics"].startswith("/metrics ")
    (step,) = status.caches
    assert status.caches[step].flushed
    assert "--enable-metrics" in record.command()


def test_an_engine_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    asked = RunRecord.open(RECORDS / "nospec_r8").config.replace({"engine.env": {"PYTHONPATH": str(tmp_path)}})
    with pytest.raises(LaunchError, match=r"engine\.python: sglang is not installed for "):
        run(asked, tmp_path / "run")
    with pytest.raises(LaunchError, match=r"engine\.version: 0\.5\.16 is asked for, .* has sglang 0\.5\.12\."):
        run(real_start(stand_in(tmp_path, "0.5.12")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["0512_dflash_r8_exact", "oom_r8"])
def test_a_refused_start_is_a_record_without_requests(tmp_path: Path, name: str) -> None:
    record = run(replay_of(name), tmp_path)
    assert (record.status.status, record.status.exit_code, record.status.ready_s) == ("refused", -9, None)
    assert record.status.reason.startswith("refused to start (signal 9): ")
    assert record.log_bytes() == (RECORDS / name / "server.log").read_bytes()
    assert record.requests() == ()
    assert record.server_info() is None


def test_a_crash_at_the_first_batch_is_recorded_with_its_requests(tmp_path: Path) -> None:
    asked = replay_of("nextn_r4_full", **{"workload.warmup": 1, "workload.requests": 4})
    record = run(asked, tmp_path)
    assert (record.status.status, record.status.exit_code) == ("crashed", None)  # the code was not recorded
    assert "The expanded size of the tensor (524288) must match the existing size (524352)" in record.status.reason
    conc1, conc4 = latency.table(record).measured
    assert (conc1.ok, conc1.inexact) == (4, 4)
    assert (conc4.ok, conc4.failed) == (0, 4)
    assert all(text.startswith("the connection broke after 0 tokens") for text, _ in conc4.errors)
    assert any("draft acceptance was simulated (SGLANG_SIMULATE_ACC_LEN=2.5)" in note for note in record.status.notes)
    assert record.env["simulated_acceptance"] == {"SGLANG_SIMULATE_ACC_LEN": "2.5"}


def test_an_impossible_workload_is_refused_with_the_arithmetic_before_anything_starts(tmp_path: Path) -> None:
    asked = replay_of("dflash_r8_full", **{"workload.input_tokens": [32600]})
    with pytest.raises(ConfigError, match="= 32,856 tokens; the context holds 32,768: 88 too many") as raised:
        run(asked, tmp_path / "run")
    assert len(str(raised.value).splitlines()) == 2
    assert not (tmp_path / "run").exists()


def test_an_impossible_workload_that_is_allowed_shows_the_engines_own_error(tmp_path: Path) -> None:
    changes = {
        "workload.input_tokens": [32600],
        "workload.concurrency": [1],
        "workload.requests": 1,
        "workload.warmup": 0,
        "workload.allow_overflow": True,
    }
    record = run(replay_of("dflash_r8_full", **changes), tmp_path)
    (trace,) = record.requests()
    assert trace.http_status == 200  # the error came as an event of a stream
    assert trace.error is not None
    assert trace.error.endswith(
        "You requested a total of 32856 tokens: 32600 tokens from the input messages and 256 tokens for the "
        "completion. Please reduce the number of tokens in the input messages or the completion to fit within "
        "the limit."
    )
    assert record.status.status == "served"


def test_a_load_only_replay_says_so_and_sends_nothing(tmp_path: Path) -> None:
    record = run(replay_of("ngram_r8", **{"workload.requests": 8}), tmp_path)
    assert record.status.status == "served"
    assert record.requests() == ()
    assert any("load only: no request was recorded" in note for note in record.status.notes)
    info = record.server_info()
    assert info and info["max_total_num_tokens"] == 429666


def test_a_run_inside_a_running_event_loop_works_as_in_a_notebook(tmp_path: Path) -> None:
    asked = replay_of("nospec_r8", **{"workload.concurrency": [8], "workload.requests": 8, "workload.warmup": 0})

    async def cell() -> RunRecord:
        return run(asked, tmp_path)

    (row,) = latency.table(asyncio.run(cell())).rows
    assert (row.ok, row.failed) == (8, 0)


def test_a_replay_of_another_configuration_is_refused(tmp_path: Path) -> None:
    asked = replay_of("ngram_r8", **{"memory.max_running_requests": 4, "gpu.name": "rtx-pro-6000"})
    with pytest.raises(ConfigError) as raised:
        run(asked, tmp_path / "run")
    first, second = str(raised.value).splitlines()
    assert first.startswith(
        "gpu.name: rtx-pro-6000 asked, h200 recorded; memory.max_running_requests: 4 asked, 8 recorded"
    )
    assert second == "A replay plays the server that was recorded: use those values, or leave engine.replay out."
    assert not (tmp_path / "run").exists()


def test_a_replay_runs_as_what_was_recorded(tmp_path: Path) -> None:
    """Params that state no more than they must: the record's configuration, not theirs, is what ran."""
    asked = RunConfig.model_validate(
        {
            "name": "short",
            "engine": {"version": "0.5.16", "replay": str(RECORDS / "tp2_nospec_r8"), "replay_speed": "instant"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
            "workload": {"requests": 0},
        }
    )
    record = run(asked, tmp_path)
    recorded = RunRecord.open(RECORDS / "tp2_nospec_r8").config
    assert record.config.name == "short"
    assert (record.config.gpu.count, record.config.parallel.tp_size) == (2, 2)
    assert record.config.memory == recorded.memory
    assert (record.config.engine.args, record.config.engine.env) == (recorded.engine.args, recorded.engine.env)
    (note,) = [note for note in record.status.notes if "taken from the recording" in note]
    assert "gpu.count 2, parallel.tp_size 2, memory.mem_fraction_static 0.5088" in note
    assert record.env["replay"]["taken_from_the_record"]["parallel.tp_size"] == 2
    assert RANDOM_WEIGHTS in record.status.notes


def test_the_machine_that_was_recorded_and_the_one_that_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "gpus", lambda: one_card("NVIDIA L4", 23034))
    record = run(replay_of("tp2_nospec_r8", **{"workload.requests": 0}), tmp_path)
    assert record.recorded_machine is not None
    assert record.recorded_machine.words == "2 × NVIDIA H200, driver 580.159.04"
    assert record.this_machine is not None
    assert record.this_machine.words == "1 × NVIDIA L4, driver 580.0"
    assert record.gpu_samples() == ()  # this machine's card had no part in it
    assert record.env["gpu_telemetry"] == "not sampled: a replay uses no GPU"


def test_what_was_watched_when_it_was_recorded_is_in_the_record_of_the_replay(tmp_path: Path) -> None:
    """Recorded figures: its page tells of the recorded cards, and of what the solver read, as that of the recording."""
    recording = RunRecord.open(RECORDS / "h200-tp2_dflash-8")
    record = run(load_run(RECORDS.parent.parent / "params" / "recordings" / "h200-tp2_dflash-8.yaml"), tmp_path)
    assert record.origin == "recorded"
    assert record.log_bytes() == recording.log_bytes()
    assert record.gpu_samples() == recording.gpu_samples() != ()
    assert record.log_arrivals() == recording.log_arrivals() != ()
    assert record.metric_samples() == recording.metric_samples() != ()
    assert record.gpu_memory == recording.gpu_memory is not None
    assert record.env["server_gpus"] == [0, 1]
    assert measured_offsets(record) == measured_offsets(recording)
    assert NOTE in record.status.notes


def test_a_replay_that_is_sent_something_else_has_nothing_of_what_was_watched(tmp_path: Path) -> None:
    """Its log is the same to the byte, its steps are not those of the recorded samples."""
    asked = load_run(RECORDS.parent.parent / "params" / "recordings" / "h200-tp2_nextn-8-no-graphs.yaml")
    record = run(asked.replace({"workload.requests": [1, 8, 24]}), tmp_path)
    assert record.log_bytes() == RunRecord.open(RECORDS / "h200-tp2_nextn-8-no-graphs").log_bytes()
    assert (record.gpu_samples(), record.log_arrivals(), record.metric_samples()) == ((), (), ())
    assert record.env["gpu_telemetry"] == "not sampled: a replay uses no GPU"
    assert NOTE not in record.status.notes


def test_a_replay_with_another_log_gets_nothing_of_what_was_watched(tmp_path: Path) -> None:
    recording = RunRecord.open(RECORDS / "h200-tp2_dflash-8")
    cut = tmp_path / "server.log"
    cut.write_bytes(recording.log_bytes()[:-100])
    assert carried(recording, recording.config.workload, cut) is None
    cut.write_bytes(recording.log_bytes())
    assert carried(recording, recording.config.workload, cut) is not None
    assert carried(recording, recording.config.workload, tmp_path / "gone.log") is None
    shutil.copytree(recording.folder, tmp_path / "unsampled")
    (tmp_path / "unsampled" / "gpu.csv.gz").unlink()
    assert carried(RunRecord.open(tmp_path / "unsampled"), recording.config.workload, cut) is None
    shutil.copytree(recording.folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "gpu.csv").write_text("t_s,phase\nx,y\n")
    assert carried(RunRecord.open(tmp_path / "damaged"), recording.config.workload, cut) is None


def test_what_a_server_tells_of_itself_has_bounds_and_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are stored, a list, no JSON and too much are noted; when the time of all is used up, nothing is asked."""
    answers = {
        "/server_info": fetch.Fetched(status=200, problem="more than 16,777,216 bytes"),
        "/get_server_info": fetch.Fetched(status=200, body=b"[1]"),
        "/model_info": fetch.Fetched(status=200, body=b'{"a": 1}'),
        "/metrics": fetch.Fetched(status=200, body=b"\xff"),
    }

    class Told(Server):
        alive = True

        def __init__(self) -> None:
            self.notes: list[str] = []

        def get(self, path: str, timeout_s: float = 120.0) -> fetch.Fetched:
            return answers[path]

    server = Told()
    with RecordWriter(tmp_path / "record") as writer:
        told = captures.Captures(server, writer)
        told.json("server_info.json", ("/server_info", "/get_server_info"))
        told.json("model_info.json", ("/model_info",))
        told.text("metrics.txt", "/metrics")
        monkeypatch.setattr(captures, "_ALL_S", 0.0)
        captures.Captures(server, writer).text("more.txt", "/metrics")
        assert {file.name for file in writer.folder.iterdir()} == {"model_info.json", "metrics.txt"}
    assert server.notes == [
        "/server_info was not recorded: more than 16,777,216 bytes",
        "/get_server_info was not recorded: no JSON object",
        "/metrics was not asked: earlier answers took 0 s",
    ]


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"engine.host": "192.0.2.1"}, LaunchError, "engine.host: "),
        ({"engine.env": {"A=B": "1"}}, ConfigError, "engine.env: "),
        ({"engine.replay": "/absent/record"}, ConfigError, "engine.replay: "),
    ],
)
def test_what_cannot_start_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        run(RunRecord.open(RECORDS / "nospec_r8").config.replace(changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fewer_requests_than_clients_is_noted(tmp_path: Path) -> None:
    asked = replay_of("dflash_r8", **{"workload.concurrency": [8], "workload.requests": 2, "workload.warmup": 0})
    notes = run(asked, tmp_path).status.notes
    assert "2 requests cannot keep 8 clients busy: fewer ran at once" in notes


def test_a_replay_of_a_replay_gives_the_same_figures(tmp_path: Path) -> None:
    asked = replay_of("nospec_r8", **{"workload.concurrency": [8], "workload.requests": 8, "workload.warmup": 0})
    first = run(asked, tmp_path / "first")
    second = run(asked.replace({"engine.replay": str(tmp_path / "first")}), tmp_path / "second")
    assert [t.chunks for t in second.requests()] == [t.chunks for t in first.requests()]
    assert latency.table(second).rows[0].ttft_s == latency.table(first).rows[0].ttft_s
    assert second.log_bytes() == first.log_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_and_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted in the middle of a step: at speed 1 the recorded requests take 40 s."""
    source = tmp_path / "source"
    source.mkdir()
    for file in (RECORDS / "dflash_r8").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    # A short start, so that the step is reached at speed 1.
    lines = (source / "server.log").read_bytes().splitlines(keepends=True)
    ready = [line for line in lines if b"fired up" in line or b"Uvicorn running" in line]
    (source / "server.log").write_bytes(b"".join(ready))
    asked = replay_of("dflash_r8").replace(
        {
            "engine.replay": str(source),
            "engine.replay_speed": 1.0,
            "workload.concurrency": [8],
            "workload.requests": 8,
            "workload.warmup": 0,
        }
    )
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from specbench.configuration.config import RunConfig\n"
        "from specbench.running.run import run\n"
        "run(RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]),\n"
        "    lambda *what: print(*what, flush=True))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(asked.to_sections()), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert process.stdout
    for line in process.stdout:
        if line.startswith("conc8-in1024"):
            break
    else:
        pytest.fail(process.communicate()[1])
    tree = psutil.Process(process.pid).children(recursive=True)
    assert len(tree) >= 2  # supervisor and replay
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (143 if number == signal.SIGTERM else -number)
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert alive == []
    assert not (tmp_path / "run" / "record").exists()
    assert list((tmp_path / "run").glob("*")) == []


def test_a_gpu_that_cannot_be_read_does_not_cost_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> tuple[nvml.MemoryReading, ...]:
        raise RuntimeError("GPU is lost")

    monkeypatch.setattr(nvml, "memory_reader", lambda: lost)
    monkeypatch.setattr(nvml, "names", lambda: nvml.GpuNames(names=("NVIDIA H200",), driver="580.1", cuda="13.0"))
    record = run(replay_of("nospec_r8", **{"workload.requests": 8}), tmp_path / "run")
    assert record.status.status == "served"
    here = record.env["replay"]["played_on"]
    assert here["reason"] == "the GPUs' memory could not be read: GPU is lost"
    assert (here["gpus"], here["driver"], here["driver_cuda"]) == (None, "580.1", "13.0")
