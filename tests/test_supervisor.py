"""The supervisor against real process trees: nothing of a tree may outlive its end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from specbench.host import nvml
from specbench.lifecycle import supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc")
ROOT = Path(supervisor.__file__).parents[1]


class Supervised:
    """A real supervisor process with its pipes."""

    def __init__(
        self, folder: Path, program: str, grace_s: float = 0.4, begin: str = "", gpus: list[int] | None = None
    ) -> None:
        """`begin`: statements in the supervisor's own process before it begins."""
        script = folder / "engine.py"
        script.write_text(textwrap.dedent(program))
        self.log = folder / "engine.log"
        lines = ("import sys", "from specbench.lifecycle import supervisor", "options = {}", begin)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "\n".join((*lines, "sys.exit(supervisor.main(**options))"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        order = {
            "argv": [sys.executable, str(script)],
            "env": dict(os.environ),
            "log": str(self.log),
            "cwd": str(folder),
            "grace_s": grace_s,
            "gpu_wait_s": 0.6,
            "gpus": gpus,
        }
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def event(self, kind: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The next event, which must be of this kind."""
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        assert ready, f"no event within {timeout_s} s, waited for {kind}"
        event: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert event["event"] == kind, event
        return event

    def said(self, *words: str, timeout_s: float = 60.0) -> list[int]:
        """Waits until the engine has printed each of `words` followed by a pid; returns the pids."""
        deadline = time.monotonic() + timeout_s
        while True:
            lines = dict(line.split() for line in self.log.read_text().splitlines() if len(line.split()) == 2)
            if all(word in lines for word in words):
                return [int(lines[word]) for word in words]
            assert time.monotonic() < deadline, (words, lines)
            time.sleep(0.01)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe and not pipe.closed:
                pipe.close()
        self.process.wait(60)


def gone(pid: int, timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


STUBBORN = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("engine", os.getpid(), flush=True)
    worker = ("import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
              "print('worker', os.getpid(), flush=True); time.sleep(600)")
    subprocess.Popen([sys.executable, "-c", worker])
    time.sleep(600)
"""

ESCAPING = """
    import os, sys, time
    print("engine", os.getpid(), flush=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            # No parent of the tree, a session of its own, and not even the mark in its environment.
            os.execve(sys.executable, [sys.executable, "-c",
                "import os, time; os.setsid(); print('escaped', os.getpid(), flush=True); time.sleep(600)"], {})
        os._exit(0)
    os.wait()
    time.sleep(600)
"""


def test_a_tree_that_ignores_sigterm_is_killed_and_reported(tmp_path: Path) -> None:
    run = Supervised(tmp_path, STUBBORN)
    run.event("started")
    engine, worker = run.said("engine", "worker")
    assert run.process.stdin
    run.process.stdin.write(b"stop\n")
    run.process.stdin.flush()
    assert run.event("stopping")["why"] == "asked"
    end = run.event("gone")
    assert set(end["killed"]) == {engine, worker}
    assert gone(engine, 0.1) and gone(worker, 0.1)
    run.close()


def test_a_double_forked_grandchild_in_its_own_session_without_the_mark_is_found(tmp_path: Path) -> None:
    run = Supervised(tmp_path, ESCAPING)
    run.event("started")
    engine, escaped = run.said("engine", "escaped")
    assert os.getsid(escaped) != os.getsid(engine)
    assert run.process.stdin
    run.process.stdin.close()  # what happens when the kernel ends in any way
    assert run.event("stopping")["why"] == "the control pipe closed"
    run.event("gone")
    assert gone(engine, 0.1) and gone(escaped, 0.1)
    run.close()


@pytest.mark.parametrize(("own", "seen"), [(None, "1"), ("0", "0")])
def test_workers_that_take_a_title_keep_their_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, seen: str
) -> None:
    """setproctitle, by which SGLang names its workers, clears /proc/<pid>/environ unless SPT_NOENV is set."""
    monkeypatch.delenv("SPT_NOENV", raising=False)
    if own is not None:
        monkeypatch.setenv("SPT_NOENV", own)
    run = Supervised(tmp_path, "import os; print('told', os.environ['SPT_NOENV'], flush=True)")
    run.event("started")
    assert run.event("exited")["exit_code"] == 0
    assert run.said("told") == [int(seen)]
    run.close()


def test_a_killed_kernel_takes_the_tree_with_it(tmp_path: Path) -> None:
    """A stand-in for the Jupyter kernel starts the supervisor and is ended by SIGKILL."""
    (tmp_path / "engine.py").write_text(textwrap.dedent(STUBBORN))
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        textwrap.dedent(
            """
            import json, os, subprocess, sys, time
            process = subprocess.Popen([sys.executable, "-m", "specbench.lifecycle.supervisor"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, start_new_session=True)
            order = {"argv": [sys.executable, "engine.py"], "env": dict(os.environ), "log": "engine.log",
                     "grace_s": 0.2}
            process.stdin.write(json.dumps(order).encode() + b"\\n")
            process.stdin.flush()
            print(process.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(kernel)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    supervisor_pid = int(process.stdout.readline())
    log = tmp_path / "engine.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pids = [int(line.split()[1]) for line in log.read_text().splitlines()]
    process.kill()
    process.wait(60)
    process.stdout.close()
    assert all(gone(pid) for pid in (*pids, supervisor_pid))


def test_an_engine_that_ends_by_itself_is_reported_with_its_code_and_its_workers_are_ended(tmp_path: Path) -> None:
    run = Supervised(
        tmp_path,
        """
        import os, subprocess, sys
        worker = "import os, time; print('worker', os.getpid(), flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", worker], stdout=subprocess.PIPE, start_new_session=True)
        print(child.stdout.readline().decode(), flush=True)
        os._exit(7)
        """,
    )
    run.event("started")
    assert run.event("exited")["exit_code"] == 7
    assert run.event("stopping")["why"] == "the engine ended by itself"
    run.event("gone")
    (worker,) = run.said("worker")
    assert gone(worker, 0.1)
    run.close()


def test_memory_of_a_process_that_has_just_ended_is_the_servers(tmp_path: Path) -> None:
    """A zombie has no mark to be seen, and may never have been looked at while it lived; it keeps its session."""
    engine = "import os, time; child = os.fork() or os._exit(0); print(child, flush=True); time.sleep(600)"
    program = f"""
        import os, sys, time
        from pathlib import Path
        from specbench.lifecycle import supervisor
        log = Path("log")
        argv = [sys.executable, "-c", {engine!r}]
        tree = supervisor.Tree({{"argv": argv, "env": dict(os.environ), "log": str(log)}}, "a-mark")
        while not log.read_text().endswith("\\n"):
            time.sleep(0.01)
        child = int(log.read_text())
        while Path(f"/proc/{{child}}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        print(tree.holds(child), tree.holds(os.getpid()))
        tree.end(0.0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True False\n", "", 0)


def test_a_signal_that_ended_the_engine_is_a_negative_code(tmp_path: Path) -> None:
    run = Supervised(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    run.event("started")
    assert run.event("exited")["exit_code"] == -9
    run.close()


def test_a_polite_engine_gets_its_grace_and_is_not_killed(tmp_path: Path) -> None:
    run = Supervised(
        tmp_path,
        """
        import os, signal, sys, time
        def leave(*_):
            print("left", os.getpid(), flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        print("engine", os.getpid(), flush=True)
        time.sleep(600)
        """,
        grace_s=10.0,
    )
    run.event("started")
    run.said("engine")
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.event("stopping")["why"] == "signal"
    assert run.event("gone")["killed"] == []
    run.said("left")
    run.close()


def test_a_program_that_does_not_exist_is_reported_not_raised(tmp_path: Path) -> None:
    order = {"argv": [str(tmp_path / "absent")], "env": {}, "log": str(tmp_path / "log")}
    done = subprocess.run(
        [sys.executable, "-m", "specbench.lifecycle.supervisor"],
        input=json.dumps(order) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["event"] == "failed"
    assert "FileNotFoundError" in done.stdout


#: Its parent collects no orphans by itself, as the first process of many containers; it says who was left to it.
CONTAINER = r"""
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
script, order = sys.argv[1:]
process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
process.stdin.write(order.encode() + b"\n")
process.stdin.flush()
code = process.wait()  # the engine ends by itself
left = []
try:
    while True:
        left.append(os.waitpid(-1, 0)[0])
except ChildProcessError:
    print(code, "left:", len(left))
"""

#: An engine that leaves three orphans, which are the supervisor's then.
ORPHANS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os._exit(0)
    os.wait()
"""
#: Everything dies after the last look at who is alive.
LATE = """
def end(self, grace_s):
    for pid in self.alive():
        supervisor.processes.send(pid, supervisor.signal.SIGKILL)
    return set()
supervisor.Tree.end = end
"""


@pytest.mark.parametrize("begin", ["", LATE])
def test_no_zombie_is_left_to_whoever_comes_after_the_supervisor(tmp_path: Path, begin: str) -> None:
    (tmp_path / "engine.py").write_text(ORPHANS)
    order = {
        "argv": [sys.executable, "engine.py"],
        "env": dict(os.environ),
        "log": str(tmp_path / "log"),
        "cwd": str(tmp_path),
        "grace_s": 0.2,
        "gpus": [],
    }
    lines = ("import sys", "from specbench.lifecycle import supervisor", begin, "sys.exit(supervisor.main())")
    done = subprocess.run(
        [sys.executable, "-c", CONTAINER, "\n".join(lines), json.dumps(order)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.stdout == "0 left: 0\n", done.stderr


#: The first thread ends, a second one goes on: /proc calls such a process a zombie.
HEADLESS = """
    import ctypes, os, threading, time
    def report():
        while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        print("headless", os.getpid(), flush=True)
        time.sleep(600)
    threading.Thread(target=report).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # exit, of this thread alone
"""


def test_a_process_whose_first_thread_has_ended_is_alive_and_is_ended(tmp_path: Path) -> None:
    run = Supervised(tmp_path, HEADLESS)
    run.event("started")
    (engine,) = run.said("headless", timeout_s=60)
    assert engine in supervisor.processes.table()
    assert run.process.stdin
    run.process.stdin.close()
    run.event("stopping")
    run.event("gone", timeout_s=60)
    assert not psutil.pid_exists(engine)
    run.close()


def test_what_cannot_be_ended_is_told(tmp_path: Path) -> None:
    """A process that hangs in a driver takes no signal; here none is sent to it."""
    deaf = "supervisor._KILL_S = 0.2\nsupervisor.processes.send = lambda pid, number: None"
    run = Supervised(tmp_path, "import os, time; print('engine', os.getpid(), flush=True); time.sleep(600)", begin=deaf)
    run.event("started")
    (engine,) = run.said("engine")
    assert run.process.stdin
    run.process.stdin.close()
    run.event("stopping")
    try:
        assert run.event("held")["left"] == [engine]
    finally:
        os.kill(engine, signal.SIGKILL)
        run.close()


CARD = """
from specbench.host.gpu_use import Holder, InUse
def use(mib, *holders):
    return (InUse(gpu=0, used_bytes=mib * 2**20, free_bytes=0, total_bytes=10**11, holders=holders),)
readings = iter([{readings}])
def read():
    found = next(readings)
    if isinstance(found, Exception):
        raise found
    return found
options["find_probe"] = lambda: read
"""


@pytest.mark.parametrize(
    ("readings", "kind", "words", "is_back"),
    [
        # before; 9 GiB and 5 GiB while the driver frees; within 256 MiB
        ("use(590), use(9216), use(5120), use(846)", "gone", "back at baseline", True),
        ("use(590), *[use(847)] * 1000", "held", "still 257 MiB above baseline on GPU 0 after ", False),
        (
            "use(590), *[use(1590, Holder(pid=1, name='init', used_bytes=1000 * 2**20))] * 9",
            "gone",
            "back at baseline; 1,000 MiB on GPU 0 were taken by others meanwhile: held by pid 1 (init, not of this",
            True,
        ),
        ("RuntimeError('lost')", "gone", "not checked: the GPUs' memory could not be read: lost", None),
        ("use(590), RuntimeError('lost')", "gone", "not checked: the GPUs' memory could not be read: lost", None),
    ],
)
def test_gone_is_said_when_the_memory_is_back(
    tmp_path: Path, readings: str, kind: str, words: str, is_back: bool | None
) -> None:
    run = Supervised(tmp_path, "pass", begin=CARD.format(readings=readings))
    run.event("started")
    run.event("exited")
    run.event("stopping")
    event = run.event(kind)
    assert event["gpu_memory"].startswith(words)
    assert event["memory"]["is_back"] is is_back
    run.close()


def test_a_server_that_uses_no_gpu_is_not_asked_for_one(tmp_path: Path) -> None:
    run = Supervised(tmp_path, "pass", begin=CARD.format(readings=""), gpus=[])
    run.event("started")
    run.event("exited")
    run.event("stopping")
    assert run.event("gone")["gpu_memory"] == "not checked: this server uses no GPU of this machine"
    run.close()


def test_without_nvml_the_report_says_so(tmp_path: Path) -> None:
    if callable(nvml.use_reader()):
        pytest.skip("this machine has NVML")
    run = Supervised(tmp_path, "pass")
    run.event("started")
    run.event("exited")
    run.event("stopping")
    assert run.event("gone")["gpu_memory"].startswith("not checked: ")
    run.close()
