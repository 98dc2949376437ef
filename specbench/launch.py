"""A server as a context manager: start it under the supervisor, wait until it is ready, end its whole tree.

In: a RunConfig and where the log goes. Out: a `Server` that is ready, or that has ended, or that ran out of time: all
three are results. Only a process that could not be started at all raises (LaunchError). With `engine.replay` the replay
process is started instead of the engine; everything else is the same code.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .config import RunConfig
from .ending import Ending, classify
from .errors import LaunchError
from .paths import resolve

#: Seconds between SIGTERM and SIGKILL. SGLang drains its requests and ends its workers in that time.
GRACE_S = 10.0
_POLL_S = 0.1
#: SGLang waits 5 s after a crash of its scheduler before it ends itself.
_SETTLE_S = 15.0
#: The supervisor waits up to 30 s for GPU memory after the grace period.
_GONE_TIMEOUT_S = 60.0


class Server:
    """A started server. `ready`, `exit_code` and `timed_out` say where it stands."""

    def __init__(self, argv: Sequence[str], *, host: str, port: int, log_path: Path, env: dict[str, str]) -> None:
        self.argv, self.host, self.port, self.log_path = tuple(argv), host, port, log_path
        self.ready = self.timed_out = False
        self.answering = True  # still healthy when the workload was done
        self.ready_s: float | None = None
        self.exit_code: int | None = None  # None: alive, or ended by us
        self.gpu_memory: str | None = None  # what the supervisor saw after the end
        self._ended, self._gone = threading.Event(), threading.Event()
        self._failed: str | None = None
        self.started_unix_s = time.time()
        self._began = time.perf_counter()
        self._supervisor = _start_supervisor()
        order = {"argv": list(argv), "env": env, "log": str(log_path), "cwd": None, "grace_s": GRACE_S}
        self._reader = threading.Thread(target=self._read_events, name="supervisor-events", daemon=True)
        self._reader.start()
        self._say(json.dumps(order))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def alive(self) -> bool:
        """The engine's process has not ended by itself."""
        return not self._ended.is_set()

    def wait_ready(self, timeout_s: float, tick: Callable[[float], None] | None = None) -> None:
        """Until /health answers 200, the process ends, or the time is up. LaunchError when it could not start."""
        while not self._ended.is_set():
            waited = time.perf_counter() - self._began
            if _healthy(self.host, self.port):
                self.ready, self.ready_s = True, round(waited, 3)
                return
            if waited >= timeout_s:
                self.timed_out = True
                return
            if tick:
                tick(waited)
            self._ended.wait(_POLL_S)
        if self._failed is not None:
            raise LaunchError(
                f"{self.argv[0]}: cannot be started: {self._failed}.\n"
                "Check engine.python: it names the interpreter that has the engine."
            )

    def settle(self) -> None:
        """Before a planned stop: a server that answers no more is given time to end by itself, so that it is seen."""
        if self.ready and self.alive and not _healthy(self.host, self.port):
            self.answering = False
            self._ended.wait(_SETTLE_S)

    def stop(self) -> None:
        """Ends the tree and waits until nothing of it is left. Does nothing the second time."""
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
        self._supervisor.stdout.close()

    def ending(self, timeout_s: float, *, exit_code_known: bool = True) -> Ending:
        """How it ended, from the process and the log. Ask after `stop`.

        `exit_code_known` is False for the replay of an end whose code was not recorded: the process's own says nothing.
        """
        from .engines.sglang.logs import read

        fine = self.ready and self.answering and self.exit_code is None
        failures = () if fine else read(self.log_path).failures
        return classify(
            ready=self.ready,
            ended_by_itself=self.exit_code is not None,
            exit_code=self.exit_code if exit_code_known else None,
            answering=self.answering,
            failures=failures,
            timeout_s=timeout_s if self.timed_out else None,
        )

    def get(self, path: str, timeout_s: float = 20.0) -> str | None:
        """The body of a GET that answered 200; None otherwise."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode("utf-8", "replace")
            return body if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._supervisor.stdin:
                self._supervisor.stdin.write(f"{text}\n".encode())
                self._supervisor.stdin.flush()

    def _read_events(self) -> None:
        assert self._supervisor.stdout
        for line in self._supervisor.stdout:
            self._take(json.loads(line))
        self._ended.set()
        self._gone.set()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "failed":
            self._failed = event["error"]
            self._ended.set()
        elif kind == "exited":
            self.exit_code = event["exit_code"]
            self._ended.set()
        elif kind == "gone":
            self.gpu_memory = event["gpu_memory"]
            self._gone.set()


@contextlib.contextmanager
def launch(config: RunConfig, *, log_path: Path, tick: Callable[[float], None] | None = None) -> Iterator[Server]:
    """Starts the configured server and waits for it. `tick` is called with the seconds waited so far.

    Whatever ends the `with` block (an exception, Ctrl-C, the death of this process), the whole tree is ended.
    """
    host = config.engine.host
    port = config.engine.port or free_port(host)
    server = Server(
        server_argv(config, host, port),
        host=host,
        port=port,
        log_path=log_path,
        env={**(_own_environment() if config.engine.replay else os.environ), **config.engine.env},
    )
    try:
        server.wait_ready(config.engine.ready_timeout_s, tick)
        yield server
        server.settle()
    finally:
        server.stop()


def server_argv(config: RunConfig, host: str, port: int) -> list[str]:
    """The exact argument list: of the engine, or of the replay that stands in for it."""
    if config.engine.replay is not None:
        record = resolve(config.engine.replay, kind="engine.replay")
        place = ["--host", host, "--port", str(port), "--speed", str(config.engine.replay_speed)]
        return [sys.executable, "-m", "specbench.replay", str(record), *place]
    from .engines.sglang.command import command

    draft = config.speculative.draft_model_path
    return command(
        config,
        model_path=_path_or_name(config.model),
        draft_path=None if draft is None else _path_or_name(draft),
        host=host,
        port=port,
    )


def free_port(host: str) -> int:
    """A port that is free at this moment."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _path_or_name(model: str) -> str:
    """A folder as an absolute path, a published name as it is: the engine finds that by itself."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def _healthy(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=10.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _own_environment() -> dict[str, str]:
    """This environment, in which `python -m specbench…` finds this very package, installed or not."""
    package_parent = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (package_parent, os.environ.get("PYTHONPATH"))))}


def _start_supervisor() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "specbench.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_own_environment(),
        start_new_session=True,  # a Ctrl-C in the terminal is for us; we tell the supervisor
    )
