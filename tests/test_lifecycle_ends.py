"""How a run may be ended from outside: none of the server's processes is left, and the memory of its card is free.

scenario                                              test
----------------------------------------------------  ----------------------------------------------------------------
exception in a cell                                   test_an_exception_in_a_cell
Ctrl-C in JupyterLab, during a request, at the start  test_an_interrupt_in_jupyterlab
Ctrl-C in the terminal                                test_ctrl_c_in_the_terminal
papermill's execution time-out                        test_papermills_time_out
SIGTERM, SIGKILL of the kernel                        test_the_kernel_is_ended
SIGTERM, SIGKILL of papermill                         test_papermill_is_ended
SIGTERM of `specbench run`                            test_the_command_is_ended
SIGKILL of `specbench run`                            test_the_command_is_killed (and what the next command makes of it)
SIGKILL of a worker                                   test_batch: test_a_worker_that_is_killed_costs_its_own_…
a process that called `launch` is killed              test_launch: test_the_death_of_the_launching_process_…

How a server itself may behave is in test_lifecycle.py. The engine is a stand-in with a real tree of processes, two of
which have left their parents; in most of these tests it has just been sent a request, which it does not answer.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from specbench.records.folders import unfinished
from tests.workbench import ROOT, Workbench, in_terminal, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc"),
]
NOTEBOOK = str(ROOT / "notebooks" / "2_run.ipynb")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    found = Workbench(tmp_path)
    yield found
    found.close()


def papermill(bench: Workbench, params: Path, *options: str) -> subprocess.Popen[str]:
    out = str(bench.folder / "run")
    return bench.start(
        "-m", "papermill", NOTEBOOK, "out.ipynb", "-p", "params", str(params), "-p", "out", out, *options
    )


def notebook(folder: Path, *cells: str) -> Path:
    """Of these cells, for a kernel."""
    from nbformat.v4 import new_code_cell, new_notebook

    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel})
    nbformat.write(made, folder / "cells.ipynb")
    return folder / "cells.ipynb"


def nothing_is_left(bench: Workbench) -> None:
    assert len(bench.engine) == 4
    assert bench.left() == {}
    assert bench.used_mib == 618
    assert re.fullmatch(r"sb-[0-9a-f]{8}", bench.engines_file.parent.name)  # a folder of its own
    assert not bench.engines_file.parent.exists()
    assert bench.engines_shared_memory == []


def test_an_exception_in_a_cell(bench: Workbench) -> None:
    params = bench.params()
    source = notebook(
        bench.folder,
        "from pathlib import Path\n"
        "from specbench.lifecycle.launch import launch\nfrom specbench.params import load_run",
        f"with launch(load_run({str(params)!r}), log_path=Path('server.log')) as server:\n    1 / 0",
    )
    process = bench.start("-m", "papermill", str(source), "out.ipynb")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "ZeroDivisionError: division by zero" in said
    nothing_is_left(bench)


#: What a cell of JupyterLab's does, and what its interrupt button does: an own kernel, and a message or a signal.
#: ipykernel sends the reply of a failed cell before it has thrown away what is queued behind it: a cell that comes
#: at once may be answered "aborted", and is then sent again, as a person would.
LAB = """
import sys, warnings
warnings.simplefilter("ignore")
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
print("kernel", manager.provisioner.pid, flush=True)
def reply(sent):
    while True:
        message = client.get_shell_msg(timeout=240)
        if message["parent_header"].get("msg_id") == sent:
            return message["content"]
first = client.execute(sys.argv[1])
sys.stdin.readline()
manager.interrupt_kernel()
print("cell", reply(first)["ename"], flush=True)
while (status := reply(client.execute("x = 6 * 7"))["status"]) == "aborted":
    pass
print("cell", status, flush=True)
sys.stdin.readline()
client.stop_channels()
manager.shutdown_kernel()
"""


def said_next(process: subprocess.Popen[str], word: str) -> str:
    """What stands behind `word` in the next line that begins with it; the lines before it are kept for the failure."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        if line.startswith(f"{word} "):
            return line.split()[1]
        lines.append(line)
    pytest.fail(f"ended without a line {word!r}; it said:\n{''.join(lines)}")


@pytest.mark.parametrize("wrong", ["mute", "hang_at_start"])
def test_an_interrupt_in_jupyterlab(bench: Workbench, wrong: str) -> None:
    """The kernel stays, the cell says KeyboardInterrupt, the server is gone when it says so."""
    cell = (
        "from pathlib import Path\nfrom specbench.params import load_run\nfrom specbench.running.run import run\n"
        f"run(load_run({str(bench.params(wrong))!r}), Path('run'))"
    )
    process = bench.start("-c", LAB, cell, stdin=subprocess.PIPE)
    assert process.stdin
    pid = int(said_next(process, "kernel"))
    tree = bench.wait_for_request() if wrong == "mute" else bench.wait_for_tree()
    process.stdin.write("interrupt\n")
    process.stdin.flush()
    assert said_next(process, "cell") == "KeyboardInterrupt"
    assert set(tree) & set(bench.alive()) == set()
    assert bench.used_mib == 618
    assert list((bench.folder / "run").iterdir()) == []
    assert said_next(process, "cell") == "ok"  # the same kernel goes on
    assert pid in bench.alive()
    process.communicate("end\n", timeout=120)
    nothing_is_left(bench)


def command(bench: Workbench, wrong: str = "mute") -> tuple[str, ...]:
    return ("-m", "specbench", "run", str(bench.params(wrong)), "--out", str(bench.folder / "out"))


def test_ctrl_c_in_the_terminal(bench: Workbench) -> None:
    """The key, not a signal: the terminal sends SIGINT to every process of its foreground group."""
    with in_terminal(bench, *command(bench)) as (process, type_keys):
        bench.wait_for_request()
        type_keys(b"\x03")
        assert process.wait(300) == 130
    assert set(bench.engine) & set(bench.alive()) == set()  # whoever waited for the command finds the card free
    nothing_is_left(bench)
    assert list((bench.folder / "out" / "life").glob("record*")) == []
    assert list(bench.temporary.iterdir()) == []


def test_papermills_time_out(bench: Workbench) -> None:
    process = papermill(bench, bench.params("hang_at_start"), "--execution-timeout", "20")
    bench.wait_for_tree()
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "CellTimeoutError" in said or "Timeout waiting for execute reply" in said
    nothing_is_left(bench)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_kernel_is_ended(bench: Workbench, number: signal.Signals) -> None:
    process = papermill(bench, bench.params("mute"))
    bench.wait_for_request()
    os.kill(bench.find("ipykernel_launcher"), number)
    process.communicate(timeout=300)
    assert process.returncode in (1, 138)  # the cell's error, or papermill's own code for a kernel that died
    nothing_is_left(bench)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_papermill_is_ended(bench: Workbench, number: signal.Signals) -> None:
    """Nobody tells the kernel: it sees that it has no parent any more."""
    process = papermill(bench, bench.params("mute"))
    bench.wait_for_request()
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == -number
    nothing_is_left(bench)


def test_the_command_is_ended(bench: Workbench) -> None:
    process = bench.start(*command(bench))
    bench.wait_for_request()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143
    assert set(bench.engine) & set(bench.alive()) == set()
    nothing_is_left(bench)
    assert list((bench.folder / "out" / "life").glob("record*")) == []
    assert list(bench.temporary.iterdir()) == []


#: `specbench …` that writes no pages, where they have been looked at.
WITHOUT_PAGES = """
from specbench.campaign import report
from specbench.cli import main
report.build = lambda root, *_, **__: (root / report.INDEX, ())
main()
"""


def test_the_command_is_killed(bench: Workbench) -> None:
    """It cannot clean up. What it leaves is an unfinished record, which the commands after it name and pass over."""
    process = bench.start(*command(bench))
    bench.wait_for_request()
    process.kill()
    process.communicate(timeout=300)
    nothing_is_left(bench)
    run = bench.folder / "out" / "life"
    (left,) = unfinished(run)
    assert not left.alive
    assert (left.folder / "server.log").is_file()
    assert until(lambda: list(bench.temporary.iterdir()) == [], 10)

    reported = bench.start("-m", "specbench", "report", str(bench.folder / "out"))
    said, _ = reported.communicate(timeout=300)
    assert reported.returncode == 0, said
    words = "this record is unfinished: its process was killed"
    assert words in (run / "index.html").read_text("utf-8")
    assert words in (bench.folder / "out" / "index.html").read_text("utf-8")

    for entry in bench.ledger.iterdir():
        entry.unlink()
    again = bench.start("-c", WITHOUT_PAGES, *command(bench, "serve")[2:])
    said, _ = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert "life exists: this run is life.2" in said
    assert (bench.folder / "out" / "life.2" / "record" / "status.json").is_file()
    assert left.folder.is_dir()  # nobody has touched it
    nothing_is_left(bench)


def test_the_stand_in_is_what_it_is_taken_for(bench: Workbench) -> None:
    """Two of its four processes are no descendants of the first: without a search for them they would live on."""
    log = bench.folder / "server.log"
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom specbench.lifecycle.launch import launch\n"
        "from specbench.params import load_run\n"
        "with launch(load_run(sys.argv[1]), log_path=Path(sys.argv[2])) as server:\n"
        "    print('ready', server._pid, flush=True)\n    time.sleep(600)\n"
    )
    process = bench.start("-c", program, str(bench.params()), str(log))
    assert process.stdout
    engine = int(process.stdout.readline().split()[1])
    tree = bench.wait_for_tree()
    groups = {os.getpgid(pid) for pid in tree}
    assert len(groups) == 3  # engine with detokenizer, scheduler, compiler
    supervisor = bench.find("-m specbench.lifecycle.supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    os.killpg(os.getpgid(engine), signal.SIGKILL)
    assert until(lambda: len(set(tree) & set(bench.alive())) == 2, 60)  # what the end of a process group leaves
    os.kill(supervisor, signal.SIGCONT)
    assert until(lambda: not set(tree) & set(bench.alive()), 60)
    process.kill()
    nothing_is_left(bench)


@pytest.mark.parametrize(("args", "with_card"), [({}, True), ({"device": "cpu"}, False)])
def test_the_scenarios_for_a_real_gpu_run_with_the_stand_in(
    bench: Workbench, args: dict[str, str], with_card: bool
) -> None:
    """So that they work the first time on a GPU: one of them, with the memory checked and without."""
    asked = bench.params("serve", engine__args=args)
    environ = {**bench.environ, "SPECBENCH_GPU_PARAMS": str(asked)}
    if not with_card:
        del environ["STAND_IN_LEDGER"]
        environ["PYTHONPATH"] = str(ROOT)
    arguments = ("-m", "pytest", "-q", "-m", "gpu", str(ROOT / "tests" / "gpu"), "-k", "normal_end", "-n", "0")
    process = bench.start(*arguments, env=environ)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "1 passed, 4 deselected" in said
