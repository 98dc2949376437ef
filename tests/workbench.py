"""A place to start servers and end them in every way: the stand-in engine, the stand-in card, and who is still alive.

Everything that is started carries a mark of the test in its environment, and what clears its environment is in the
ledger of the stand-in: so a process that outlives its end is found, whatever it has become a child of.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from specbench.host.processes import MARK

ROOT = Path(__file__).parent.parent
STAND_IN = Path(__file__).parent / "stand_in"
_MARK = "SPECBENCH_TEST"

_spec = importlib.util.spec_from_file_location("stand_in_pynvml", STAND_IN / "nvml" / "pynvml.py")
assert _spec is not None and _spec.loader is not None
card = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(card)


class Workbench:
    """Processes of one test, in a folder of its own."""

    def __init__(self, folder: Path, *, with_card: bool = True) -> None:
        """`with_card`: what is started sees the stand-in card, not this machine's."""
        self.folder = folder
        self.ledger, self.temporary = folder / "ledger", folder / "tmp"
        self.ledger.mkdir()
        self.temporary.mkdir()
        self.mark = uuid.uuid4().hex
        self.started: list[subprocess.Popen[Any]] = []
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(STAND_IN / "nvml") * with_card, str(ROOT), os.environ.get("PYTHONPATH")))
            ),
            "STAND_IN_LEDGER": str(self.ledger),
            "TMPDIR": str(self.temporary),
            "SPECBENCH_RUNS": str(folder / "runs"),
            _MARK: self.mark,
        }
        if with_card:
            self.environ.pop("CUDA_VISIBLE_DEVICES", None)

    def params(self, wrong: str = "", **changes: Any) -> Path:
        """A params file whose engine is the stand-in; `section__key=value` changes it."""
        sections: dict[str, Any] = {
            "name": "life",
            "engine": {
                "version": "0.5.16",
                "ready_timeout_s": 120.0,
                "env": {"PYTHONPATH": str(STAND_IN / "engine"), "STAND_IN": wrong},
            },
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
            "memory": {"max_running_requests": 8, "mem_fraction_static": 0.5088},
            "workload": {"input_tokens": [64], "output_tokens": 4, "concurrency": [2], "requests": 2, "warmup": 0},
        }
        for key, value in changes.items():
            section, _, name = key.partition("__")
            sections[section][name] = value
        file = self.folder / "life.yaml"
        file.write_text(yaml.safe_dump(sections), encoding="utf-8")
        return file

    def start(self, *command: str, **more: Any) -> subprocess.Popen[str]:
        """`python …` with this test's environment, output piped."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, *command], cwd=self.folder, **{"env": self.environ, **streams, **more}
        )
        self.started.append(process)
        return process

    @property
    def engine(self) -> list[int]:
        """Pids that the stand-in's processes wrote into the ledger, dead or alive."""
        return [int(entry.name) for entry in self.ledger.iterdir() if entry.name.isdigit()]

    @property
    def engines_file(self) -> Path:
        """The file that the stand-in made by `tempfile`, and did not remove."""
        return Path((self.ledger / "temporary").read_text())

    @property
    def engines_shared_memory(self) -> list[str]:
        """What the stand-in's processes still have in shared memory."""
        tables = (Path(f"/dev/shm/sglang_loads_{pid}.shm") for pid in self.engine)
        return [table.name for table in tables if table.exists()]

    @property
    def used_mib(self) -> int:
        """On the stand-in card, now."""
        return int(card.used_mib(self.ledger))

    def alive(self) -> dict[int, str]:
        """Every living process of this test, with its command line."""
        found: dict[int, str] = {}
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(_MARK) == self.mark or process.pid in self.engine
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def supervised(self) -> set[int]:
        """The living processes of this test that are of a server: what its supervisor marked, and their descendants."""
        found: set[int] = set()
        for pid in self.alive():
            try:
                process = psutil.Process(pid)
                if MARK in process.environ():
                    found |= {pid, *(child.pid for child in process.children(recursive=True))}
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def find(self, words: str) -> int:
        """The only living process of this test with these words in its command line."""
        (pid,) = [pid for pid, line in self.alive().items() if words in line]
        return pid

    def left(self, but: Sequence[int] = (), timeout_s: float = 120.0) -> dict[int, str]:
        """What is still alive after a generous time; empty as soon as nothing is."""
        until(lambda: not set(self.alive()) - set(but), timeout_s)
        return {pid: line for pid, line in self.alive().items() if pid not in but}

    def wait_for_tree(self) -> list[int]:
        """Until the engine's four processes have written themselves into the ledger; their pids."""
        self.wait(lambda: len(self.engine) == 4, "the stand-in's processes")
        assert all(psutil.pid_exists(pid) for pid in self.engine)
        return self.engine

    def wait_for_request(self) -> list[int]:
        """Until a request has reached a mute engine."""
        self.wait(lambda: (self.ledger / "asked").exists(), "a request")
        return self.engine

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Until `condition` holds; a process that ends before that fails the test with what it said."""

        def over() -> bool:
            return condition() or any(process.poll() is not None for process in self.started)

        assert until(over, seconds) and condition(), f"{what}: {self._said()}"

    def _said(self) -> str:
        ended = [process for process in self.started if process.poll() is not None and process.stdout]
        return "\n".join(process.communicate()[0] or "" for process in ended) or str(self.alive())

    def close(self) -> None:
        """Whatever the test left, also when it failed."""
        for pid in self.alive():
            psutil.Process(pid).kill()
        for process in self.started:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


@contextmanager
def in_terminal(bench: Workbench, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[bytes], object]]]:
    """A Python command in a terminal of its own, in whose foreground it runs, and what types on the keyboard."""
    keyboard, terminal = pty.openpty()

    def take() -> None:  # in the child, which leads a session
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    try:
        process = bench.start(
            *arguments,
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=take,
        )
        yield process, lambda keys: os.write(keyboard, keys)
    finally:
        os.close(keyboard)
        os.close(terminal)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
