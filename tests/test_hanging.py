"""A start whose log says that it failed, and whose processes go on: when it is given up, and when it must not be."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from specbench.engines.sglang.fatal import is_fatal
from specbench.engines.sglang.logs import read
from specbench.lifecycle import hanging as hanging_module
from specbench.lifecycle.ending import classify
from specbench.lifecycle.hanging import Hanging
from specbench.lifecycle.launch import launch
from tests.test_launch import stand_in

RECORDS = Path(__file__).parent / "records"
STAMP = "[2026-11-29 10:00:00] "
CANNOT_BIND = (
    f"{STAMP}ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
    "address already in use\n"
)
HEALTH = 'INFO:     127.0.0.1:50000 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
DIED = (
    f"{STAMP}Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process\n'
    "    scheduler = Scheduler(\n"
    "RuntimeError: CUDA error: an illegal memory access was encountered\n\n"
)
UNCAUGHT = (
    "Traceback (most recent call last):\n"
    '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '  File "/x/sglang/launch_server.py", line 60, in <module>\n'
    "    run_server(server_args)\n"
    "KeyError: 'linear_attn_config'\n"
)
#: A helper of another package: its end is not the engine's.
HELPER = (
    "Traceback (most recent call last):\n"
    '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '  File "/x/torch/_inductor/compile_worker/__main__.py", line 50, in <module>\n'
    "    main()\n"
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)
#: Caught and logged; the start goes on with the weights.
CAUGHT = (
    f"{STAMP}Failed to import an optional kernel\n"
    "Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/layers/quantization/__init__.py", line 30, in load\n'
    "    import vllm\n"
    "ModuleNotFoundError: No module named 'vllm'\n"
    f"{STAMP}Load weight begin. avail mem=139.13 GB\n"
)


class Log:
    """A log that grows, and what is thought of it at some second."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "server.log"
        self._hanging = Hanging(self._path, 30000)

    def failed(self, now_s: float, more: str = "") -> bool:
        with self._path.open("a") as log:
            log.write(more)
        return self._hanging.failed(now_s)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_before_there_is_a_log_nothing_failed(tmp_path: Path) -> None:
    assert not Hanging(tmp_path / "absent.log", 30000).failed(1000.0)


@pytest.mark.parametrize("fatal", [CANNOT_BIND, DIED, f"{STAMP}Received sigquit from a child process. It usually…\n"])
def test_after_a_fatal_line_and_twelve_silent_seconds_it_hangs(log: Log, fatal: str) -> None:
    assert not log.failed(100.0, fatal)
    assert not log.failed(111.9)
    assert log.failed(112.0)


def test_whoever_still_speaks_is_given_time_but_not_for_ever(log: Log) -> None:
    assert not log.failed(0.0, DIED)
    for second in range(10, 60, 10):
        assert not log.failed(float(second), f"{STAMP}still tidying up\n")
    assert log.failed(60.0, f"{STAMP}still tidying up\n")


def test_answers_to_our_own_questions_are_no_sign_of_life(log: Log) -> None:
    assert not log.failed(0.0, DIED)
    assert not log.failed(6.0, HEALTH)
    assert log.failed(12.0, HEALTH)


def test_a_line_may_come_in_pieces(log: Log) -> None:
    assert not log.failed(0.0, CANNOT_BIND[:40])
    assert not log.failed(1.0, CANNOT_BIND[40:])
    assert log.failed(13.0)


def test_a_silent_start_is_no_failure(log: Log) -> None:
    assert not log.failed(0.0, f"{STAMP}Load weight begin. avail mem=139.13 GB\n")
    assert not log.failed(800.0)


@pytest.mark.parametrize("text", [CAUGHT, HELPER])
def test_an_error_that_is_not_the_engines_end_is_no_failure(log: Log, text: str) -> None:
    assert not log.failed(0.0, text)
    assert not log.failed(39.0)
    assert not log.failed(41.0)
    assert not log.failed(500.0)


def test_what_nobody_caught_in_the_engines_code_is_a_failure_after_forty_seconds(log: Log) -> None:
    assert not log.failed(0.0, UNCAUGHT)
    assert not log.failed(39.0)
    assert log.failed(40.0)


def test_another_address_may_be_in_use() -> None:
    assert is_fatal(CANNOT_BIND.encode(), 30000)
    assert not is_fatal(CANNOT_BIND.encode(), 3000)
    assert not is_fatal(b"[Errno 98] Address already in use: trying port 30001", 30000)


READY = b"The server is fired up"
BECAME_READY = sorted(path.parent.name for path in RECORDS.glob("*/server.log") if READY in path.read_bytes())


@pytest.mark.parametrize("record", BECAME_READY)
def test_a_recorded_start_that_became_ready_is_never_given_up(record: str) -> None:
    """However slowly its lines came."""
    before = (RECORDS / record / "server.log").read_bytes().split(READY)[0]
    assert not [line for line in before.split(b"\n") if is_fatal(line, 30000)]
    assert not [failure for failure in read(before.splitlines(keepends=True)).failures if failure.ends]


def test_an_address_that_was_in_use_is_no_failure_of_a_server_that_became_ready() -> None:
    ready = f"{CANNOT_BIND}{STAMP}The server is fired up and ready to roll!\n"
    assert read(ready.encode().splitlines(keepends=True)).failures == ()


def test_the_reason_says_that_it_hung() -> None:
    (failure,) = read(CANNOT_BIND.encode().splitlines(keepends=True)).failures
    end = classify(ready=False, ended_by_itself=False, exit_code=None, failures=[failure], hung=True)
    assert end.status == "crashed"
    assert end.reason == (
        "failed while starting (it hung after its error, and was ended): ERROR: [Errno 98] error while attempting to "
        "bind on address ('127.0.0.1', 30000): address already in use"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="whose a port is, is read from /proc")
def test_a_server_that_cannot_bind_and_hangs_is_ended_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging_module, "SILENT_S", 0.5)
    said = (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): address already in use"
    )
    asked = stand_in(
        tmp_path, before=f"print({said!r}.format(port=port), flush=True); time.sleep(600)", ready_timeout_s=500.0
    )
    began = time.monotonic()
    with launch(asked, log_path=tmp_path / "server.log") as server:
        assert server.hung and not server.ready and not server.timed_out
    assert time.monotonic() - began < 250
    end = server.ending(500.0)
    assert (end.status, end.exit_code) == ("crashed", None)
    assert "address already in use" in end.reason
