"""Tests with real SGLang servers on the CPU: opt-in (`make live-test`), about a minute each."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from specbench.host import processes, shared_memory

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "live" / ".venv" / "bin" / "python"
#: In the environment of everything that a test starts: what carries it at the end was left behind.
TRACE = "SPECBENCH_LIVE_TEST"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only on request: these are too slow for every change, and need 1.6 GB."""
    here = [item for item in items if Path(item.path).parent == Path(__file__).parent]
    why = None
    if config.option.markexpr != "live":
        why = "starts real servers: make live-test"
    elif not ENGINE.exists():
        why = "no engine in live/.venv: make live"
    for item in here:
        item.add_marker(pytest.mark.live)
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No process that a test started, at any depth, outlives it, no temporary file but compiled kernels, and nothing in
    shared memory."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(TRACE, mark)
    monkeypatch.chdir(ROOT)
    # Short: sockets lie below.
    with tempfile.TemporaryDirectory(prefix="live-", dir="/tmp", ignore_cleanup_errors=True) as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        before = shared_memory.there()
        yield mark
        _, left = psutil.wait_procs(carriers(mark), timeout=60)
        assert [(process.pid, process.name()) for process in left] == []
        assert [entry.name for entry in Path(temporary).glob("*") if "torchinductor_" not in entry.name] == []
    now, used = shared_memory.there(), shared_memory.mapped(processes.table())  # by another server, perhaps
    assert {name for name, number in now.items() if before.get(name) != number and number not in used} == set()


def carriers(mark: str) -> list[psutil.Process]:
    """The processes with the mark in their environment, this one left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(TRACE) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found
