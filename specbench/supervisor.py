"""A small process between us and the engine, which ends the engine's whole tree when its control pipe closes.

    python -m specbench.supervisor     # stdin: one JSON line, the order; then "stop" or end-of-file
                                       # stdout: JSON lines, the events

The order: {"argv": [...], "env": {...}, "log": "path", "cwd": "path" | null, "grace_s": 10.0}; env is the whole one.
Events: started (pid, mark) · failed (error) · exited (exit_code) · stopping (why) · gone (killed, gpu_memory)

Why a process of its own: a Jupyter kernel can be ended by SIGKILL, and then nothing of it runs any more; an engine's
workers re-parent to PID 1 or start sessions of their own, so a process group is not the tree. The supervisor is a
child subreaper (Linux): orphans of the tree become its children. It also looks for its mark in the environment of all
processes of this user. Standard library only, so it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TextIO

from . import nvml, processes
from .processes import MARK

#: NVML index -> used bytes.
MemoryProbe = Callable[[], Mapping[int, int]]

_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: after a fork is no time to load a library
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
#: A driver frees memory a moment after the process has gone; other users of the card move a little.
_GPU_WAIT_S = 30.0
_GPU_TOLERANCE_BYTES = 256 * 2**20


class Tree:
    """The engine and everything that came out of it."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.mark = uuid.uuid4().hex
        self.exit_code: int | None = None
        self.killed: list[int] = []
        with Path(order["log"]).open("ab") as log:
            self._process = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**order["env"], MARK: self.mark},
                cwd=order.get("cwd"),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self.pid = self._process.pid

    def reap(self) -> bool:
        """Collects every ended child. True at the moment when the engine's own process has ended."""
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self.pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self._process.returncode = self.exit_code
                ended = True

    def alive(self) -> set[int]:
        """Every living process of the tree, as pids."""
        if not Path("/proc/self/stat").exists():
            return set() if self.exit_code is not None else {self.pid}
        return set(processes.tree(self.mark, self.pid, parent=os.getpid()))

    def end(self, grace_s: float) -> None:
        """SIGTERM, the grace period, SIGKILL; returns when nothing is left."""
        deadline = time.monotonic() + grace_s
        asked: set[int] = set()
        while self._left():
            # The engine's own process first: it knows how to end its workers. Who outlives it is asked as well.
            targets = {self.pid} if self.exit_code is None else self.alive()
            for pid in targets - asked:
                processes.send(pid, signal.SIGTERM)
            asked |= targets
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        while left := self._left():
            for pid in left:
                processes.send(pid, signal.SIGKILL)
            if sys.platform != "linux":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.killed += [pid for pid in left if pid not in self.killed]
            time.sleep(_POLL_S)

    def _left(self) -> set[int]:
        self.reap()
        return self.alive()


def supervise(order: Mapping[str, Any], control: IO[bytes], report: TextIO, probe: MemoryProbe | str) -> int:
    """Runs one engine until it ends or `control` closes. `probe` reads used GPU memory, or says why it cannot.

    Returns 0, or 1 when the engine could not be started at all. Reports are lost silently when nobody reads them.
    """
    wake, _ = _signals()
    baseline = probe() if callable(probe) else None
    try:
        tree = Tree(order)
    except (OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: a NUL in what it is given
        _tell(report, event="failed", error=f"{type(error).__name__}: {error}")
        return 1
    _tell(report, event="started", pid=tree.pid, mark=tree.mark)
    why = _wait(tree, control, wake)
    if tree.exit_code is not None:
        _tell(report, event="exited", exit_code=tree.exit_code)
    _tell(report, event="stopping", why=why)
    tree.end(float(order.get("grace_s", 10.0)))
    memory = str(probe) if baseline is None or not callable(probe) else _until_baseline(probe, baseline)
    _tell(report, event="gone", killed=tree.killed, gpu_memory=memory)
    return 0


def _wait(tree: Tree, control: IO[bytes], wake: int) -> str:
    watched: list[Any] = [control, wake]
    while True:
        if tree.reap():
            return "the engine ended by itself"
        readable, _, _ = select.select(watched, [], [], 1.0)
        if wake in readable and any(number in (signal.SIGTERM, signal.SIGINT) for number in os.read(wake, 64)):
            return "signal"
        if control in readable:
            text = os.read(control.fileno(), 4096)
            if not text:
                return "the control pipe closed"
            if b"stop" in text:
                return "asked"


def _until_baseline(probe: MemoryProbe, baseline: Mapping[int, int]) -> str:
    deadline = time.monotonic() + _GPU_WAIT_S
    while True:
        used = probe()
        above = {gpu: used.get(gpu, 0) - before for gpu, before in baseline.items()}
        if all(more <= _GPU_TOLERANCE_BYTES for more in above.values()):
            return "back at baseline"
        if time.monotonic() >= deadline:
            worst = max(above.values()) / 2**20
            return f"still {worst:.0f} MiB above baseline after {_GPU_WAIT_S:g} s"
        time.sleep(0.2)


def _signals() -> tuple[int, int]:
    """A pipe that becomes readable at SIGCHLD, SIGTERM and SIGINT. SIGHUP is ignored: a closed terminal is no order."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reader, writer


def _become_subreaper() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """In the engine's process: if the supervisor itself is killed, at least the engine's main process goes too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tell(report: TextIO, **event: Any) -> None:
    with suppress(OSError, ValueError):
        report.write(json.dumps({**event, "unix_s": time.time()}) + "\n")
        report.flush()


def nvml_probe() -> MemoryProbe | str:
    """Reads used memory of every GPU; without NVML the reason in words."""
    read = nvml.reader()
    if isinstance(read, str):
        return f"not checked: {read}"
    return lambda: {reading.gpu: reading.used_bytes for reading in read()}


def main() -> int:
    """Reads the order and supervises. The process is its own session, so that a Ctrl-C in a terminal passes it by."""
    with suppress(PermissionError):
        os.setsid()
    _become_subreaper()
    line = _first_line(sys.stdin.fileno())
    if not line.endswith(b"\n"):
        return 1  # whoever started this ended before it gave its order
    order = json.loads(line)
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as control:
        return supervise(order, control, sys.stdout, nvml_probe())


def _first_line(descriptor: int) -> bytes:
    """Byte by byte, so that nothing of what follows is swallowed by a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
