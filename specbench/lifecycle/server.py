"""A started process with its supervisor: whether it is ready, how it ended, and what it left behind.

In: an argument list. Out: a `Server` that is ready, or that has ended, or that hangs after an error, or that ran out of
time: all are results. Only a process that could not be started at all raises (LaunchError).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..engines.sglang.addresses import HEALTH
from ..errors import LaunchError
from ..host import processes
from ..paths import PACKAGE
from . import fetch, temporary
from .ending import Ending, classify
from .hanging import Hanging
from .temporary import Temporary

#: Seconds between SIGTERM and SIGKILL. SGLang drains its requests and ends its workers in that time.
GRACE_S = 10.0
_POLL_S = 0.1
#: Once it answers, but not that it is healthy (503 until SGLang's own warm-up is done): it logs a line per question.
_WARMING_POLL_S = 0.5
#: SGLang waits 5 s after a crash of its scheduler before it ends itself.
_SETTLE_S = 15.0
#: A driver frees memory a moment after the process has gone; that long is waited for it.
_GPU_WAIT_S = 30.0
#: What the supervisor may take after the grace period: for processes that resist, and for the memory.
_GONE_TIMEOUT_S = 60.0
#: Some answers take that long while a large model captures its graphs.
_HEALTH_TIMEOUT_S = 10.0


class Server:
    """A started server. `ready`, `exit_code` and `timed_out` say where it stands."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        host: str,
        port: int,
        log_path: Path,
        env: dict[str, str],
        gpus: Sequence[int] | None = None,
        own_folder: Temporary | None = None,
    ) -> None:
        """Starts it. `gpus`: NVML indices whose memory must be back when it has ended; None: all, empty: none.
        `own_folder`: for its temporary files, gone with it; None: it leaves none."""
        self._own_folder = own_folder or Temporary()
        self.argv, self.host, self.port, self.log_path = tuple(argv), host, port, log_path
        self.headers: dict[str, str] = {}  # of every request to it
        self.ready = self.timed_out = False
        self.hung = False  # failed while starting, by its log, and did not end
        self.proven = False  # by the workload and what came after it: there is nothing left to ask at the end
        self.answering = True  # still healthy when the workload was done
        self.ready_s: float | None = None
        self.exit_code: int | None = None  # None: alive, or ended by us
        self.gpu_memory: str | None = None  # what the supervisor saw after the end, in words
        self.gpu_use: dict[str, Any] | None = None  # the same as readings: see `gpu_use.GpuMemory`
        self._ended, self._gone = threading.Event(), threading.Event()
        self.lost: str | None = None  # how the supervisor ended before it was asked to
        self.added_env = self._own_folder.variables  # which the engine has beside those that were asked for
        self.notes = [self._own_folder.note] if self._own_folder.note else []  # what a reader of the record must know
        self.left_behind: tuple[str, ...] = ()  # those of the notes that tell of what is not gone, or not known to be
        self._failed: str | None = None
        self._pid, self._mark = 0, ""
        self._stopping = self._reported = False  # asked to end the tree; said that it is gone
        self._known: dict[int, processes.Process] = {}  # the tree when it was last looked at
        self.started_unix_s = time.time()
        self._began = time.perf_counter()
        self._supervisor = _start_supervisor()
        order = {
            "argv": list(argv),
            "env": {**env, **self.added_env},
            "log": str(log_path),
            "cwd": None,
            "grace_s": GRACE_S,
            "gpu_wait_s": _GPU_WAIT_S,
            "gpus": None if gpus is None else list(gpus),
            "temporary": None if self._own_folder.folder is None else str(self._own_folder.folder),
        }
        self._reader = threading.Thread(target=self._read_events, name="supervisor-events", daemon=True)
        try:
            self._reader.start()
            self._say(json.dumps(order))
        except BaseException:  # Ctrl-C just now: nobody else knows this supervisor yet
            assert self._supervisor.stdin
            self._supervisor.stdin.close()
            self._supervisor.wait(GRACE_S + _GONE_TIMEOUT_S)
            raise

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def alive(self) -> bool:
        """The engine's process has not ended by itself."""
        return not self._ended.is_set()

    def wait_ready(
        self, timeout_s: float, tick: Callable[[float], None] | None = None, hanging: Hanging | None = None
    ) -> None:
        """Until /health answers 200, the process ends, its log says that it failed and it hangs, or the time is up.

        LaunchError when it could not start.
        """
        while not self._ended.is_set():
            waited = time.perf_counter() - self._began
            health = self._health()
            if health == 200 and self._listens_itself():
                self.ready, self.ready_s = True, round(waited, 3)
                return
            if waited >= timeout_s:
                self.timed_out = True
                return
            if hanging is not None and hanging.failed(time.monotonic()):
                self.hung = True
                return
            if tick:
                tick(waited)
            self._ended.wait(_POLL_S if health is None else _WARMING_POLL_S)
        if self._failed is not None:
            raise LaunchError(
                f"{self.argv[0]}: cannot be started: {self._failed}.\n"
                "Check engine.python (the interpreter that has the engine), engine.args and engine.env."
            )

    def settle(self) -> None:
        """Before a planned stop: a server that answers no more is given time to end by itself, so that it is seen.

        SGLang takes a second for each answer about its health (it generates a token, and looks once a second whether
        one came); a GPU need not be held for it when the server has just proven that it is well.
        """
        if self.ready and self.alive and not self.proven and self._health() != 200:
            self.answering = False
            self._ended.wait(_SETTLE_S)

    def stop(self) -> None:
        """Ends the tree and waits until nothing of it is left. Does nothing the second time.

        When the supervisor was killed, nothing ends the tree but this: it is found by its mark.
        """
        if self._supervisor.stdout is None or self._supervisor.stdout.closed:
            return
        self._stopping = True
        if self._supervisor.poll() is None:
            self._say("stop")
            self._gone.wait(GRACE_S + _GONE_TIMEOUT_S)
        assert self._supervisor.stdin and self._supervisor.stdout
        with contextlib.suppress(OSError):
            self._supervisor.stdin.close()
        try:
            self._supervisor.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # the engine's own process dies with it
            self._supervisor.wait()
        self._reader.join(GRACE_S)
        if self._mark and not self._reported:
            ended = processes.sweep(self._mark, self._pid, self._known, GRACE_S)
            self.notes.append(f"the supervisor was killed; processes that it left and that were ended: {ended}")
            self.gpu_memory = "not checked: the supervisor was killed"
        if self._own_folder.folder is not None and not self._reported:
            temporary.remove_unused(self._own_folder.folder)
        self._supervisor.stdout.close()

    def ending(self, timeout_s: float, *, exit_code_known: bool = True) -> Ending:
        """How it ended, from the process and the log. Ask after `stop`.

        `exit_code_known` is False for the replay of an end whose code was not recorded: the process's own says nothing.
        """
        from ..engines.sglang.logs import read
        from ..reading.lost_rank import lost_rank

        if self.lost and self.exit_code is None:
            when = "serving" if self.ready else "starting"
            return Ending(status="crashed", exit_code=None, reason=f"{self.lost} while the server was {when}")
        fine = self.ready and self.answering and self.exit_code is None
        log = None if fine else read(self.log_path)
        return classify(
            ready=self.ready,
            ended_by_itself=self.exit_code is not None,
            exit_code=self.exit_code if exit_code_known else None,
            answering=self.answering,
            failures=() if log is None else log.failures,
            lost=None if log is None else lost_rank(log),
            timeout_s=timeout_s if self.timed_out else None,
            hung=self.hung and self.exit_code is None,
        )

    def get(self, path: str, timeout_s: float = 20.0) -> fetch.Fetched:
        """A GET with an end: see `fetch`."""
        return fetch.get(self.host, self.port, path, timeout_s=timeout_s)

    def _health(self) -> int | None:
        """The status of the answer; None: there was none."""
        return fetch.get(self.host, self.port, HEALTH, timeout_s=_HEALTH_TIMEOUT_S, max_bytes=0).status

    def _listens_itself(self) -> bool:
        """Whether it is this server that answers: the engine cannot bind a port that another server holds."""
        if not self._mark:
            return False  # the supervisor has not started it yet
        self._known = processes.tree(self._mark, self._pid, parent=self._supervisor.pid)
        owned = processes.listens(self._known, self.port)
        if owned is None:
            self.notes.append(f"whether port {self.port} is held by the engine could not be checked on this machine")
        elif not owned:
            note = f"port {self.port} was answered by a process that is not the engine: that is not taken as ready"
            self.notes += [note] if note not in self.notes else []
        return owned is not False

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._supervisor.stdin:
                self._supervisor.stdin.write(f"{text}\n".encode())
                self._supervisor.stdin.flush()

    def _read_events(self) -> None:
        assert self._supervisor.stdout
        for line in self._supervisor.stdout:
            with contextlib.suppress(ValueError):  # half a line: it was killed while it wrote
                self._take(json.loads(line))
        if not self._reported and not self._stopping and self._failed is None:
            self.lost = "the supervisor was killed"
        self._ended.set()
        self._gone.set()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "started":
            self._pid, self._mark = event["pid"], event["mark"]
        elif kind == "failed":
            self._failed = event["error"]
            self._ended.set()
        elif kind == "exited":
            self.exit_code = event["exit_code"]
            self._ended.set()
        elif kind == "stopping" and event["why"] == "signal" and not self._stopping:
            self.lost = "the supervisor was ended by a signal"
        elif kind in ("gone", "held"):
            self._reported = True
            self.gpu_memory, self.gpu_use = event["gpu_memory"], event["memory"]
            self.left_behind = tuple(remains(event))
            self.notes += [*self.left_behind, *([event["others"]] if event["others"] else [])]
            self._gone.set()


def remains(event: dict[str, Any]) -> Iterator[str]:
    """What the end of a server left, by the supervisor's last word: a sentence each, for who looks now."""
    if event.get("left"):
        yield f"PROCESSES OF THE SERVER COULD NOT BE ENDED: pid {', '.join(map(str, event['left']))}"
    if event["temporary"]:
        yield f"THE TEMPORARY FOLDER OF THE SERVER COULD NOT BE REMOVED: {event['temporary']}"
    if event["memory"]["is_back"] is False:
        yield f"GPU MEMORY IS STILL HELD after the end of the server: {event['gpu_memory']}"
    elif event["memory"]["is_back"] is None and event["memory"]["before"]:
        yield f"WHETHER GPU MEMORY IS BACK is not known, though it was read before the start: {event['gpu_memory']}"


def own_environment() -> dict[str, str]:
    """This environment, in which `python -m specbench…` finds this very package, installed or not."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH")))),
    }


def _start_supervisor() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "specbench.lifecycle.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=own_environment(),
        start_new_session=True,  # a Ctrl-C in the terminal is for us; we tell the supervisor
    )
