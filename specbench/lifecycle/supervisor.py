"""A small process between us and the engine, which ends the engine's whole tree when its control pipe closes.

    python -m specbench.lifecycle.supervisor     # stdin: one JSON line, the order; then "stop" or end-of-file
                                       # stdout: JSON lines, the events

The order: {"argv": [...], "env": {...}, "log": "path", "cwd": "path" | null, "grace_s": 10.0,
"gpu_wait_s": 30.0, "gpus": [...] | null, "temporary": "path" | null}; env is the whole one, gpus are NVML indices
(null: all; empty: it uses none), temporary is a folder that is made before the start and removed after the end.
Events: started (pid, mark) · failed (error) · exited (exit_code) · stopping (why), and last gone (killed, temporary,
gpu_memory, others, memory) when no process is left and the memory of the GPUs is back (or cannot be read), or held
(the same, and `left`: pids that could not be ended) when it is not; temporary: why the folder is still there, or null.

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
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, TextIO

from ..host import gpu_use, nvml, processes, shared_memory
from ..host.gpu_use import GpuMemory, InUse, Probe
from ..host.processes import MARK
from . import temporary

_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: after a fork is no time to load a library
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
#: SGLang's workers take a new title by setproctitle, which writes it over their environment, and so over the mark, in
#: /proc/<pid>/environ; with this variable it leaves the environment alone.
_KEEP_ENVIRON = {"SPT_NOENV": "1"}
#: Other users of the card move a little.
_GPU_POLL_S = 0.2
_GPU_TOLERANCE_BYTES = 256 * 2**20
#: A process that hangs in the driver does not even die of SIGKILL; whoever waits is told after this time.
_KILL_S = 20.0
#: Who has ended, but is not yet to be collected: threads of it are still in the driver.
_COLLECT_S = 5.0


class Tree:
    """The engine and everything that came out of it."""

    def __init__(self, order: Mapping[str, Any], mark: str) -> None:
        self.mark = mark
        self.exit_code: int | None = None
        self.killed: list[int] = []
        self.childless = False  # nobody is left to be collected
        self._seen: set[int] = set()
        with Path(order["log"]).open("ab") as log:
            self._process = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_KEEP_ENVIRON, **order["env"], MARK: self.mark},
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
                self.childless = True
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
        found = set(processes.tree(self.mark, self.pid, parent=os.getpid()))
        self._seen |= found
        return found

    def holds(self, pid: int) -> bool | None:
        """Whether a process is or was of this tree; None: there is no such process here, so nobody can say."""
        if pid == self.pid or pid in self._seen or processes.carries(pid, self.mark):
            return True
        if processes.session_of(pid) == self.pid:  # it ended just now: its environment, and so the mark, is gone
            return True
        return False if processes.exists(pid) else None

    def end(self, grace_s: float) -> set[int]:
        """SIGTERM, the grace period, SIGKILL; returns when nothing is left, else what could not be ended."""
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
        deadline = time.monotonic() + _KILL_S
        while (left := self._left()) and time.monotonic() < deadline:
            for pid in left:
                processes.send(pid, signal.SIGKILL)
            if sys.platform != "linux":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.killed += [pid for pid in left if pid not in self.killed]
            time.sleep(_POLL_S)
        return left

    def collect(self) -> None:
        """Collects who ended since the last look: after us nobody may (the first process of a container mostly does
        not), and they would stay as zombies."""
        deadline = time.monotonic() + _COLLECT_S
        self.reap()
        while not self.childless and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            self.reap()

    def _left(self) -> set[int]:
        self.reap()
        return self.alive()


def supervise(order: Mapping[str, Any], control: IO[bytes], report: TextIO, probe: Probe | str) -> int:
    """Runs one engine until it ends or `control` closes. `probe` reads the GPUs' memory, or says why it cannot.

    Returns 0, or 1 when the engine could not be started at all. Reports are lost silently when nobody reads them.
    """
    wake, _ = _signals()
    gpus = order.get("gpus")
    before = _read(probe, gpus) if gpus is None or gpus else "this server uses no GPU of this machine"
    mark, folder = uuid.uuid4().hex, order.get("temporary")

    def look() -> None:
        if shared.look(tree.alive()) and folder:
            temporary.note(Path(folder), shared.noted())  # should this process be killed

    with closing(shared_memory.Watched()) as shared, ExitStack() as until_the_end:
        try:
            until_the_end.enter_context(temporary.made(folder, mark))
            tree = Tree(order, mark)
        except (OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: a NUL in what it is given
            _tell(report, event="failed", error=f"{type(error).__name__}: {error}")
            return 1
        _tell(report, event="started", pid=tree.pid, mark=tree.mark)
        why = _wait(tree, control, wake, look, shared)
        if tree.exit_code is not None:
            _tell(report, event="exited", exit_code=tree.exit_code)
        _tell(report, event="stopping", why=why)
        look()
        left = tree.end(float(order.get("grace_s", 10.0)))
        still_there = _emptied(folder, left)
        shared_memory.remove(shared.noted())
    memory = _after(probe, gpus, before, tree, float(order.get("gpu_wait_s", 30.0)))
    tree.collect()
    fine = not left and memory.is_back is not False
    event: dict[str, Any] = {"event": "gone"} if fine else {"event": "held", "left": sorted(left)}
    words = {"gpu_memory": gpu_use.verdict(memory), "others": gpu_use.taken_meanwhile(memory)}
    _tell(report, **event, killed=tree.killed, temporary=still_there, **words, memory=asdict(memory))
    return 0


def _emptied(folder: str | None, left: set[int]) -> str | None:
    """Why the temporary folder is still there; None: it is not."""
    if folder is None:
        return None
    if left:
        return f"{folder}: the next start removes it, once processes {sorted(left)} have ended"
    return temporary.remove(Path(folder))


def _wait(tree: Tree, control: IO[bytes], wake: int, look: Callable[[], None], shared: shared_memory.Watched) -> str:
    watched: list[Any] = [control, wake, *([shared.descriptor] if shared.descriptor >= 0 else [])]
    while True:
        if tree.reap():
            return "the engine ended by itself"
        if shared.is_due():
            look()
        readable, _, _ = select.select(watched, [], [], shared.wait_s(1.0))
        if shared.descriptor in readable:
            shared.news()
        if wake in readable and any(number in (signal.SIGTERM, signal.SIGINT) for number in os.read(wake, 64)):
            return "signal"
        if control in readable:
            text = os.read(control.fileno(), 4096)
            if not text:
                return "the control pipe closed"
            if b"stop" in text:
                return "asked"


def _after(
    probe: Probe | str, gpus: list[int] | None, before: tuple[InUse, ...] | str, tree: Tree, wait_s: float
) -> GpuMemory:
    """Waits until the memory is back: a driver frees it a moment after the process has gone."""
    known = () if isinstance(before, str) else before
    memory = GpuMemory(before=known, after=(), is_back=None, tolerance_bytes=_GPU_TOLERANCE_BYTES)
    if isinstance(before, str):
        return replace(memory, reason=before)
    began = time.monotonic()
    while True:
        now = _read(probe, gpus)
        if isinstance(now, str):
            return replace(memory, reason=now)
        waited_s = time.monotonic() - began
        after = gpu_use.marked(now, tree.holds)
        is_back = all(more <= _GPU_TOLERANCE_BYTES for more in gpu_use.above(before, after).values())
        if is_back or waited_s >= wait_s:
            return replace(memory, after=after, is_back=is_back, waited_s=round(waited_s, 1))
        time.sleep(_GPU_POLL_S)


def _read(probe: Probe | str, gpus: list[int] | None) -> tuple[InUse, ...] | str:
    """The GPUs that count, or why they cannot be read: a GPU that is lost must not keep a tree alive."""
    found = gpu_use.read(probe)
    return (
        found if isinstance(found, str) else gpu_use.only(found, gpus) or "NVML does not know the GPUs of this server"
    )


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


def main(find_probe: Callable[[], Probe | str] = nvml.use_reader) -> int:
    """Reads the order and supervises. The process is its own session, so that a Ctrl-C in a terminal passes it by."""
    with suppress(PermissionError):
        os.setsid()
    _become_subreaper()
    line = _first_line(sys.stdin.fileno())
    if not line.endswith(b"\n"):
        return 1  # whoever started this ended before it gave its order
    order = json.loads(line)
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as control:
        return supervise(order, control, sys.stdout, find_probe())


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
