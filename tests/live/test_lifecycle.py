"""How a real engine starts, crashes, is killed and is gone. Every test ends with no process left (see conftest).

What stand-ins prove in seconds is in tests/test_launch.py and tests/test_supervisor.py; here are SGLang's own process
tree (tokenizer, scheduler, detokenizer), its own signal handlers and its own words.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import of_record
from specbench.errors import LaunchError
from specbench.lifecycle import temporary
from specbench.lifecycle.leftovers import left_over
from specbench.params import load_campaign, load_run
from specbench.records.record import RunRecord
from specbench.running.run import run

from .conftest import ROOT, carriers

PARAMS = ROOT / "params" / "live" / "server.yaml"
RANKS = ROOT / "params" / "live-tp.yaml"  # of several ranks
_PATIENCE_S = 600.0  # eight ranks on two cores take minutes to start


def asked(ranks: int = 1, **changes: object) -> RunConfig:
    """The configuration of `make live`, with few requests."""
    runs = (load_run(PARAMS),) if ranks == 1 else load_campaign(RANKS).runs
    base = next(run for run in runs if run.parallel.tp_size == ranks)
    few = {"workload.concurrency": [2], "workload.requests": 2, "workload.warmup": 0}
    return base.replace(few | {key.replace("__", ".", 1): value for key, value in changes.items()})


def endless(ranks: int = 1, **changes: object) -> RunConfig:
    """Requests that are still running when something happens."""
    return asked(ranks, workload__output_tokens=3000, workload__concurrency=[1], workload__requests=4, **changes)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {_PATIENCE_S:.0f} s"
        time.sleep(0.1)


def text(log: Path) -> str:
    return log.read_text("utf-8", "replace") if log.exists() else ""


def starting(log: Path) -> bool:
    """All processes of the engine are there, and it is not ready."""
    return "Load weight begin" in text(log)


def decoding(log: Path) -> bool:
    """A request of the workload is being answered: after the engine's own warm-up, which decodes too."""
    return "Decode batch" in text(log).partition("fired up and ready")[2]


def engine_of(mark: str) -> list[psutil.Process]:
    """SGLang's processes: the server, a scheduler per rank, its detokenizer."""
    return [process for process in carriers(mark) if "SGLANG_USE_CPU_ENGINE" in process.environ()]


def schedulers(mark: str) -> list[psutil.Process]:
    return [process for process in engine_of(mark) if "schedul" in process.name()]


class InAProcess:
    """`run` in a process of its own, which can be ended as a kernel is."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._folder = folder
        program = (
            "import sys; from pathlib import Path; from specbench.configuration.config import RunConfig; "
            "from specbench.running.run import run; run(RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, config.model_dump_json(), str(folder)], cwd=ROOT, stderr=subprocess.DEVNULL
        )

    @property
    def log(self) -> Path:
        """It has another folder until the record is whole."""
        return next(self._folder.glob("record*/server.log"), self._folder / "absent")

    def wait_for(self, when: Callable[[Path], bool]) -> None:
        until(lambda: when(self.log) or self.process.poll() is not None, when.__name__)
        assert self.process.poll() is None, f"the run ended: {text(self.log)[-2000:]}"

    def end_by(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE_S)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_normal_end(tmp_path: Path, ranks: int, nothing_is_left: str) -> None:
    seen: list[str] = []

    def watch(phase: str, done: int, total: int) -> None:
        if phase == "stop":
            seen.extend(process.name() for process in carriers(nothing_is_left))

    record = run(asked(ranks), tmp_path / "run", watch)
    assert (record.status.status, record.status.exit_code, record.status.origin) == ("served", None, "measured")
    assert len(seen) >= 3 + ranks  # the supervisor, the server, its detokenizer, a scheduler per rank
    assert sum("schedul" in name for name in seen) == ranks
    assert [trace.error for trace in record.requests()] == [None, None]
    assert record.env["engine"]["installed"] == "0.5.23"


@pytest.mark.parametrize(
    ("ranks", "number", "when"),
    [
        (1, signal.SIGKILL, starting),
        (1, signal.SIGKILL, decoding),
        (1, signal.SIGINT, starting),
        (1, signal.SIGTERM, decoding),
        (4, signal.SIGKILL, decoding),
        (4, signal.SIGINT, starting),
        (8, signal.SIGKILL, starting),
    ],
)
def test_the_end_of_the_kernel(
    tmp_path: Path, ranks: int, number: signal.Signals, when: Callable[[Path], bool]
) -> None:
    kernel = InAProcess(endless(ranks), tmp_path / "run")
    kernel.wait_for(when)
    code = kernel.end_by(number)
    assert code in {signal.SIGKILL: (-9,), signal.SIGTERM: (143,), signal.SIGINT: (1, 130, -2)}[number]
    assert not (tmp_path / "run" / "record" / "status.json").exists()


def test_the_end_of_the_kernel_and_of_the_supervisor(tmp_path: Path, nothing_is_left: str) -> None:
    """Nobody is left to clean up: what stays is named, and removed by whoever comes next."""
    kernel = InAProcess(endless(), tmp_path / "run")
    kernel.wait_for(decoding)
    (supervisor,) = [one for one in carriers(nothing_is_left) if "specbench.lifecycle.supervisor" in one.cmdline()]
    kernel.process.send_signal(signal.SIGSTOP)  # else it would do it in the supervisor's place
    supervisor.kill()
    kernel.end_by(signal.SIGKILL)
    for process in psutil.wait_procs(engine_of(nothing_is_left), timeout=30)[1]:
        assert process.pid in left_over()
        process.kill()
    (folder,) = temporary.left_over()
    assert len(list(folder.glob("tmp*"))) >= 3  # of SGLang's five
    assert json.loads((folder / ".specbench-shared-memory").read_text())
    assert temporary.sweep() == ()


@pytest.mark.parametrize(
    ("ranks", "number"),
    [(1, signal.SIGTERM), (1, signal.SIGINT), (1, signal.SIGKILL), (4, signal.SIGINT), (4, signal.SIGKILL)],
)
def test_the_end_of_the_command(tmp_path: Path, ranks: int, number: signal.Signals, nothing_is_left: str) -> None:
    """`specbench run`, which has papermill and a kernel between itself and the server."""
    params = tmp_path / "endless.yaml"
    params.write_text(endless(ranks).model_dump_json(exclude_unset=True))  # JSON is YAML
    out = tmp_path / "out"
    command = subprocess.Popen(
        [sys.executable, "-m", "specbench", "run", str(params), "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: any(decoding(log) for log in out.rglob("server.log")), "a request that is being answered")
    command.send_signal(number)
    assert command.wait(_PATIENCE_S) in {signal.SIGKILL: (-9,)}.get(number, (130, 143))
    assert list(out.rglob("status.json")) == []


def test_a_scheduler_that_is_killed_during_a_request_is_a_crash(tmp_path: Path, nothing_is_left: str) -> None:
    folder = tmp_path / "run"
    kernel = InAProcess(endless(), folder)
    kernel.wait_for(decoding)
    (scheduler,) = schedulers(nothing_is_left)
    scheduler.kill()
    assert kernel.process.wait(_PATIENCE_S) == 0
    record = RunRecord.open(folder / "record")
    assert record.status.status == "crashed"
    assert "exit code -9" in text(kernel.log)  # SGLang says so itself
    assert "-9" in (record.status.reason or "")
    assert any(trace.error for trace in record.requests())


@pytest.mark.parametrize(
    ("ranks", "rank", "when"), [(4, "TP2", decoding), (4, "TP0", decoding), (4, "TP3", starting), (8, "TP5", decoding)]
)
def test_one_rank_of_several_that_is_killed_is_named(
    tmp_path: Path, ranks: int, rank: str, when: Callable[[Path], bool], nothing_is_left: str
) -> None:
    """The others lose their connections first, and the server ends for that: the rank that says nothing was killed."""
    folder = tmp_path / "run"
    kernel = InAProcess(endless(ranks), folder)
    kernel.wait_for(when)
    (victim,) = [process for process in schedulers(nothing_is_left) if process.name().endswith(rank)]
    victim.kill()
    assert kernel.process.wait(_PATIENCE_S) == 0
    record = RunRecord.open(folder / "record")
    assert record.status.status == "crashed"
    assert all(trace.error for trace in record.requests())
    found = of_record(record)
    (fatal,) = [finding for finding in found.findings if finding.severity == "fatal"]
    number = rank.removeprefix("TP")
    named = (
        f"{rank} alone says no error",  # the others' connections broke
        f"{rank} is ",  # 'TP3 is loading weights, TP0 to TP2 have loaded weights: the others wait for it'
        f"The process scheduler_{number} (rank {number}) was ended by a signal",  # SGLang's watchdog was first
        f"The scheduler of rank {number} was ended by a signal",
    )
    assert any(words in fatal.cause for words in named), fatal.cause
    assert rank in record.status.reason  # 'TP3 was ended by SIGKILL', 'TP2 alone says no error', 'waited for TP3'


def test_an_engine_that_is_killed_as_a_whole_is_a_crash(tmp_path: Path, nothing_is_left: str) -> None:
    folder = tmp_path / "run"
    kernel = InAProcess(endless(), folder)
    kernel.wait_for(decoding)
    min(engine_of(nothing_is_left), key=psutil.Process.create_time).kill()
    assert kernel.process.wait(_PATIENCE_S) == 0
    status = RunRecord.open(folder / "record").status
    assert (status.status, status.exit_code) == ("crashed", -9)


def test_too_few_slots_are_refused_in_the_engines_words(tmp_path: Path) -> None:
    record = run(asked(memory__max_mamba_cache_size=2), tmp_path / "run")
    assert record.status.status == "refused"
    assert record.requests() == ()


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_a_start_that_takes_too_long_is_ended(tmp_path: Path, ranks: int, nothing_is_left: str) -> None:
    record = run(asked(ranks, engine__ready_timeout_s=4.0 if ranks == 1 else 30.0), tmp_path / "run")
    assert record.status.status == "timed_out"
    assert record.requests() == ()


@pytest.mark.parametrize(("ranks", "stopped"), [(1, ""), (4, "scheduler_TP2")])
def test_a_server_that_hangs_is_ended(tmp_path: Path, ranks: int, stopped: str, nothing_is_left: str) -> None:
    """Every process of the engine stopped (SIGSTOP): it neither answers nor hears SIGTERM. Or one rank of four: the
    others wait for it."""
    folder = tmp_path / "run"
    kernel = InAProcess(endless(ranks, workload__request_timeout_s=8.0), folder)
    kernel.wait_for(decoding)
    for process in engine_of(nothing_is_left):
        if stopped in process.name():
            os.kill(process.pid, signal.SIGSTOP)
    assert kernel.process.wait(_PATIENCE_S) == 0
    record = RunRecord.open(folder / "record")
    assert record.status.status == "crashed"
    assert all(trace.error for trace in record.requests())
    assert [one.id for one in of_record(record).findings if one.severity == "fatal"] == ["stopped-answering"]


def test_a_port_that_is_taken_is_refused_before_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(LaunchError, match="in use by another process"):
        run(asked(engine__port=other.getsockname()[1]), tmp_path / "run")
    assert not (tmp_path / "run" / "record" / "server.log").exists()


def test_a_port_that_was_taken_in_between_is_never_taken_for_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang 0.5.23 says that it cannot bind, and then hangs in its shutdown: it is ended for that."""
    monkeypatch.setattr("specbench.lifecycle.launch.check_address", lambda config: None)
    monkeypatch.setattr("specbench.running.subject.check_address", lambda config: None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        record = run(asked(engine__port=port, engine__ready_timeout_s=600.0), tmp_path / "run")
    assert record.status.status == "crashed" and record.status.ready_s is None
    assert "address already in use" in record.status.reason
    assert record.requests() == ()
    assert "address already in use" in text(tmp_path / "run" / "record" / "server.log").lower()
