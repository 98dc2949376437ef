"""Servers whose supervisor and client were both killed: real processes, found by the mark that they carry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from specbench.host import processes
from specbench.lifecycle import temporary
from specbench.lifecycle.leftovers import in_words, left_over

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc")

#: A server's worker in a session of its own, which outlives the server; it says its pid. The server leaves a table in
#: shared memory, as SGLang does.
SERVER = """
import mmap, os, subprocess, sys, time
table = open(f"/dev/shm/sglang_loads_{os.getpid()}.shm", "w+b")
table.truncate(64)
mapped = mmap.mmap(table.fileno(), 64)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1] + ".partial", "w").write(str(worker.pid))
__import__("os").replace(sys.argv[1] + ".partial", sys.argv[1])
time.sleep(600)
"""


def until(true: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """(its supervisor, the worker's pid) of a server that runs."""
    said = tmp_path / "pid"
    order = {
        "argv": [sys.executable, "-c", SERVER, str(said)],
        "env": dict(os.environ),
        "log": str(tmp_path / "log"),
        "gpus": [],
        "temporary": str(tmp_path / "sb-0123abcd"),
    }
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "specbench.lifecycle.supervisor"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert supervisor.stdin
    supervisor.stdin.write(f"{json.dumps(order)}\n".encode())
    supervisor.stdin.flush()
    until(said.exists)
    worker = int(said.read_text())
    yield supervisor, worker
    with suppress(OSError):
        supervisor.stdin.close()
    supervisor.wait()
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)


def test_a_server_that_runs_is_not_left_over(supervised: tuple[subprocess.Popen[bytes], int]) -> None:
    _, worker = supervised
    assert worker not in left_over()


def test_who_outlives_the_supervisor_is_named_with_the_way_to_end_it(
    supervised: tuple[subprocess.Popen[bytes], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, worker = supervised
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    note = tmp_path / "sb-0123abcd" / ".specbench-shared-memory"
    until(note.exists)
    (table,) = (Path("/dev/shm", name) for name in json.loads(note.read_text()))
    assert table.exists()
    supervisor.kill()
    supervisor.wait()
    found = left_over()
    assert worker in found
    assert found[worker].startswith("python")
    done = subprocess.run(
        [sys.executable, "-m", "specbench", "doctor", "--json"], capture_output=True, text=True, timeout=300, check=True
    )
    told = json.loads(done.stdout)
    assert worker in [one["pid"] for one in told["left_over"]]
    folder = tmp_path / "sb-0123abcd"
    assert folder.is_dir() and str(folder) not in told["left_over_folders"]  # the worker may use it
    os.kill(worker, signal.SIGKILL)
    until(lambda: worker not in processes.table())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert folder in temporary.left_over()
    temporary.sweep()
    assert not folder.exists()
    assert not table.exists()


def test_the_sentence_has_every_pid_in_its_command() -> None:
    text = in_words({70 + n: "python3 -m sglang.launch_server" for n in range(10)})
    assert text.startswith(
        "LEFT BY AN EARLIER RUN of specbench, whose supervisor was killed: pid 70 (python3 -m sglang."
    )
    assert text.endswith(
        " and 2 more; end them with: kill 70 71 72 73 74 75 76 77 78 79 (kill -9 when that does not end them)"
    )
