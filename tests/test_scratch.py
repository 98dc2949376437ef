"""Folders of killed processes are removed by the next one; those of living ones and of others are let alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from specbench.workbook.scratch import scratch, sweep

HOLD = (
    "import time; from specbench.workbook.scratch import scratch\n"
    "with scratch() as f: print(f, flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_ends_with_its_block(temporary: Path) -> None:
    with scratch() as folder:
        assert folder.parent == temporary
        assert folder.name.startswith(f"specbench-{os.getpid()}-")
        (folder / "file").touch()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(temporary: Path) -> None:
    (temporary / "specbench-runs-1").mkdir()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout
        folder = Path(process.stdout.readline().strip())
        with scratch():
            assert folder.is_dir()  # its process lives
        process.send_signal(signal.SIGKILL)
    assert folder.is_dir()
    with scratch():
        assert not folder.exists()
    assert [entry.name for entry in temporary.iterdir()] == ["specbench-runs-1"]


def test_a_pid_that_is_gone_here_but_whose_lock_is_held_is_let_alone(temporary: Path) -> None:
    """As of a container that shares the directory: its pids mean nothing here."""
    import fcntl

    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    folder = temporary / f"specbench-{ended.pid}-abc"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    sweep(temporary)
    assert folder.is_dir()
    os.close(lock)
    sweep(temporary)
    assert not folder.exists()


def test_where_there_are_no_locks_none_is_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid may be one of another host, which has this directory, too."""
    (temporary / "specbench-4194304-x").mkdir()
    monkeypatch.setattr("specbench.workbook.scratch.is_held", lambda _: None)
    sweep(temporary)
    assert (temporary / "specbench-4194304-x").is_dir()


def test_a_link_of_such_a_name_is_not_followed(temporary: Path) -> None:
    (temporary / "mine").mkdir()
    (temporary / "specbench-4194304-x").symlink_to("mine")
    sweep(temporary)
    assert (temporary / "mine").is_dir()
