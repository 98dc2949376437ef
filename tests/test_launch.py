"""Starting a server and seeing how it ends, with real processes: replays, and small stand-ins for the engine."""

from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError, LaunchError
from specbench.lifecycle import launch as launching
from specbench.lifecycle.launch import launch, server_argv
from specbench.lifecycle.ports import free_port
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"

#: An engine of the right name that answers /health on the given port. `BEFORE` and `AFTER` are filled in.
ENGINE = """
import http.server, os, signal, subprocess, sys, threading, time
port = int(sys.argv[sys.argv.index("--port") + 1])
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("worker", worker.pid, flush=True)
{before}
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Health)
threading.Thread(target=server.serve_forever, daemon=True).start()
{after}
time.sleep(600)
"""


def config(**engine: Any) -> RunConfig:
    data = {"name": "l", "engine": {"version": "0.5.16", **engine}, "model": "m", "gpu": {"name": "h200"}}
    return RunConfig.model_validate(data)


def stand_in(folder: Path, before: str = "", after: str = "", **engine: Any) -> RunConfig:
    """A configuration whose engine is ENGINE."""
    package = folder / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        ENGINE.format(before=textwrap.dedent(before), after=textwrap.dedent(after))
    )
    return config(env={"PYTHONPATH": str(folder / "site")}, **engine)


def worker_of(log: Path) -> int:
    (pid,) = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("worker ")]
    return pid


def test_a_server_that_becomes_ready_is_served_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with launch(stand_in(tmp_path), log_path=log) as server:
        assert server.ready and server.alive and server.ready_s is not None
        assert server.get("/absent").body is None
        worker = worker_of(log)
        assert psutil.pid_exists(worker)
    assert not psutil.pid_exists(worker)
    end = server.ending(900.0)
    assert (end.status, end.exit_code) == ("served", None)
    assert server.gpu_memory is not None


def test_a_server_that_never_gets_ready_times_out_and_its_workers_are_ended(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    ticks: list[float] = []
    asked = stand_in(tmp_path, before="time.sleep(600)", ready_timeout_s=0.8)
    with launch(asked, log_path=log, tick=ticks.append) as server:
        assert server.timed_out and not server.ready
        worker = worker_of(log)
    assert not psutil.pid_exists(worker)
    end = server.ending(0.8)
    assert end.status == "timed_out"
    assert end.reason.startswith("not ready after 0.8 s")
    assert ticks == sorted(ticks) and len(ticks) > 2


def test_a_server_that_ends_while_starting_has_its_code(tmp_path: Path) -> None:
    with launch(stand_in(tmp_path, before="sys.exit(3)"), log_path=tmp_path / "server.log") as server:
        assert not server.ready and not server.alive
    end = server.ending(900.0)
    assert (end.status, end.exit_code) == ("crashed", 3)


def test_a_server_that_dies_while_serving_is_crashed(tmp_path: Path) -> None:
    asked = stand_in(tmp_path, after="time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)")
    with launch(asked, log_path=tmp_path / "server.log") as server:
        assert server.ready
        deadline = time.monotonic() + 60
        while server.alive:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert (server.ending(900.0).status, server.exit_code) == ("crashed", -9)


def test_a_server_that_answers_no_more_but_lives_is_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.lifecycle.server._SETTLE_S", 0.2)
    with launch(stand_in(tmp_path), log_path=tmp_path / "server.log") as server:
        port, server.port = server.port, free_port("127.0.0.1")  # nobody listens there
    assert port != server.port
    assert server.ending(900.0).status == "crashed"
    assert server.ending(900.0).reason.startswith("stopped answering while serving")


def test_a_server_that_has_proven_itself_is_not_asked_again(tmp_path: Path) -> None:
    with launch(stand_in(tmp_path), log_path=tmp_path / "server.log") as server:
        server.proven = True
        server.port = free_port("127.0.0.1")  # nobody listens there: had it been asked, it had not answered
    assert server.answering
    assert server.ending(900.0).status == "served"


def test_an_exception_in_the_block_ends_the_server_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with pytest.raises(KeyboardInterrupt), launch(stand_in(tmp_path), log_path=log):
        worker = worker_of(log)
        raise KeyboardInterrupt
    assert not psutil.pid_exists(worker)


def test_an_interpreter_that_does_not_exist_is_a_launch_error(tmp_path: Path) -> None:
    with (
        pytest.raises(LaunchError, match=r"cannot be started: FileNotFoundError(.|\n)*engine\.python"),
        launch(config(python="/absent/python"), log_path=tmp_path / "server.log"),
    ):
        pass


def test_the_engines_environment_reaches_the_engine_alone(tmp_path: Path) -> None:
    asked = stand_in(tmp_path, before="print('seen', os.environ['SGLANG_X'], flush=True)")
    asked = asked.replace({"engine.env": {**asked.engine.env, "SGLANG_X": "1"}})
    with launch(asked, log_path=tmp_path / "server.log") as server:
        assert server.ready
    assert "seen 1" in (tmp_path / "server.log").read_text()
    assert "SGLANG_X" not in os.environ


def test_a_replay_is_started_by_the_same_code_and_keeps_its_recorded_code(tmp_path: Path) -> None:
    asked = config(replay=str(RECORDS / "var_noradix_r8"), replay_speed="instant")
    with launch(asked, log_path=tmp_path / "server.log") as server:
        assert not server.ready
    end = server.ending(900.0)
    assert (end.status, end.exit_code) == ("refused", -9)
    assert "Loaded weights leave no GPU memory for the KV cache" in end.reason
    assert (tmp_path / "server.log").read_bytes() == RunRecord.open(RECORDS / "var_noradix_r8").log_bytes()


def test_the_command_line_of_a_replay(tmp_path: Path) -> None:
    asked = config(replay=str(RECORDS / "dflash_r8"), replay_speed=20.0)
    assert server_argv(asked, "127.0.0.1", 31000) == [
        sys.executable,
        "-m",
        "specbench.replay",
        str(RECORDS / "dflash_r8"),
        *("--host", "127.0.0.1", "--port", "31000", "--speed", "20.0"),
    ]


def test_a_folder_as_model_becomes_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    argv = server_argv(config().replace({"model": "mine"}), "127.0.0.1", 1)
    assert argv[argv.index("--model-path") + 1] == str(tmp_path / "mine")
    argv = server_argv(config().replace({"model": "org/name"}), "127.0.0.1", 1)
    assert argv[argv.index("--model-path") + 1] == "org/name"


def test_relative_paths_are_looked_for_in_the_workbook_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs in another directory than the command. A link stays one: it makes a virtual environment."""
    for name in ("notebooks", "params", "engine/bin", "mine", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "engine" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path / "notebooks")
    argv = server_argv(config(python="engine/bin/python").replace({"model": "mine"}), "127.0.0.1", 1)
    assert argv[0] == str(tmp_path / "engine" / "bin" / "python")
    assert argv[argv.index("--model-path") + 1] == str(tmp_path / "mine")
    assert server_argv(config(python="python3"), "127.0.0.1", 1)[0] == "python3"
    absent = server_argv(config(python="absent/python"), "127.0.0.1", 1)[0]
    assert absent == str(tmp_path / "notebooks" / "absent" / "python")


def test_the_death_of_the_launching_process_ends_the_server(tmp_path: Path) -> None:
    """SIGKILL, as papermill or the out-of-memory killer may end a kernel."""
    asked = stand_in(tmp_path)
    log = tmp_path / "server.log"
    program = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from specbench.configuration.config import RunConfig
        from specbench.lifecycle.launch import launch
        with launch(RunConfig.model_validate_json(sys.argv[1]), log_path=Path(sys.argv[2])) as server:
            assert server.ready
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", program, asked.model_dump_json(), str(log)], timeout=60, check=False)
    assert done.returncode == -9
    worker = worker_of(log)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(worker):
        assert time.monotonic() < deadline, "a worker outlived the kernel"
        time.sleep(0.05)


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        asked = stand_in(tmp_path, port=other.getsockname()[1])
        with pytest.raises(
            LaunchError, match=r"engine\.port: \d+ on 127\.0\.0\.1 .*in use by another process\.\n"
        ) as raised:
            launch(asked, log_path=tmp_path / "server.log").__enter__()
    assert len(str(raised.value).splitlines()) == 2
    assert not (tmp_path / "server.log").exists()


def test_a_port_whose_old_connections_linger_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = other.accept()
        accepted.close()  # the server's side first: it is this side that lingers
        client.close()
    with launch(stand_in(tmp_path, port=port), log_path=tmp_path / "server.log") as server:
        assert server.ready


@pytest.mark.skipif(sys.platform != "linux", reason="who holds a port is read from /proc")
def test_the_answers_of_another_server_are_not_taken_for_the_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server binds the port after the check, as a race would have it."""

    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as foreign:
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        monkeypatch.setattr(launching, "check_address", lambda config: None)
        asked = stand_in(tmp_path, before="time.sleep(600)", port=foreign.server_address[1], ready_timeout_s=4.0)
        with launch(asked, log_path=tmp_path / "server.log") as server:
            assert not server.ready and server.timed_out
        foreign.shutdown()
    assert any("answered by a process that is not the engine" in note for note in server.notes)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_cannot_be_bound_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(LaunchError, match=r"engine\.host: .* cannot be bound on this machine") as raised:
        launch(config(host=host), log_path=tmp_path / "server.log").__enter__()
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": "x\0y"}, {"A\0": "x"}])
def test_variables_that_no_process_can_have_are_refused(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"engine\.env: .*cannot be an environment variable"):
        launch(config(env=env), log_path=tmp_path / "server.log").__enter__()


def test_arguments_that_no_process_can_have_are_a_launch_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(LaunchError, match="cannot be started: ValueError: embedded null byte"),
        launch(config(args={"served_model_name": "a\0b"}), log_path=tmp_path / "server.log"),
    ):
        pass
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc")
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "the supervisor was killed while the server was serving"),
        (signal.SIGTERM, "the supervisor was ended by a signal while the server was serving"),
    ],
)
def test_the_end_of_the_supervisor_is_a_crash_and_leaves_no_worker(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    log = tmp_path / "server.log"
    # One more worker that does not carry the mark: it is known from the time when the server became ready.
    bare = """
    bare = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
    print("bare", bare.pid, flush=True)
    """
    with launch(stand_in(tmp_path, before=bare), log_path=log) as server:
        assert server.ready
        workers = [psutil.Process(int(line.split()[1])) for line in log.read_text().splitlines()]
        folder = Path(server.added_env["TMPDIR"])
        assert folder.is_dir()
        os.kill(server._supervisor.pid, number)
        deadline = time.monotonic() + 60
        while server.alive:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert len(workers) == 2
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    end = server.ending(900.0)
    assert (end.status, end.exit_code, end.reason) == ("crashed", None, reason)
    assert not folder.exists()


def test_a_chosen_port_is_none_that_an_outgoing_connection_may_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some may be taken just then: each is free at the moment of the answer, and they differ."""
    monkeypatch.setattr("specbench.lifecycle.ports._first_ephemeral", lambda: 32768)
    ports = {free_port("127.0.0.1") for _ in range(20)}
    assert all(10_000 <= port < 32768 for port in ports)
    assert len(ports) > 1
    monkeypatch.setattr("specbench.lifecycle.ports._first_ephemeral", lambda: 1024)  # every port: the system chooses
    assert free_port("127.0.0.1") >= 1024


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("specbench.lifecycle.ports._LOWEST_PORT", port)
        monkeypatch.setattr(
            "specbench.lifecycle.ports._first_ephemeral", lambda: port + 1
        )  # it alone is left to choose from
        assert free_port("127.0.0.1") != port
