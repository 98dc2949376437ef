"""How a server may behave, from its start to its end, and what the record then says. Real processes throughout.

scenario                                          test
------------------------------------------------  --------------------------------------------------------------------
normal end                                        test_a_server_and_its_record[serve]
ignores SIGTERM                                   test_a_server_and_its_record[stubborn]
crashes at start                                  test_a_server_and_its_record[crash_at_start]
crashes at graph capture, after its pool lines    test_a_server_and_its_record[crash_at_capture]
crashes in the middle of a request                test_a_server_and_its_record[crash_in_request]
hangs at start                                    test_a_server_and_its_record[hang_at_start]
answers health checks but no requests             test_a_server_and_its_record[mute]
port taken before the start                       test_launch: test_a_port_that_is_taken_is_refused_before_…
port taken between check and bind                 test_a_port_taken_between_check_and_bind
another server answers on the port                test_launch: test_the_answers_of_another_server_are_not_taken_…
an engine that is not there                       test_launch: test_an_interpreter_that_does_not_exist_is_a_launch_error
the supervisor is killed or ended                 test_launch: test_the_end_of_the_supervisor_is_a_crash_…
a process that survives SIGKILL                   test_supervisor: test_what_cannot_be_ended_is_told
others hold memory before the start               test_memory_that_others_hold_is_said_before_the_start
others take memory while it runs                  test_memory_that_others_take_meanwhile_is_not_held_against_the_server
memory stays in use after the end                 test_memory_that_stays_in_use_is_in_the_record_and_on_the_screen

The ends from outside (Ctrl-C, time-outs, signals to the kernel, papermill, the command) are in test_lifecycle_ends.py.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specbench.lifecycle.ports import free_port
from specbench.records.record import RunRecord
from specbench.studies.study import study
from tests.workbench import Workbench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc"),
]

#: The run as a notebook's cell does it; what is to be seen at once is printed.
RUN = """
import sys
from pathlib import Path
from specbench.lifecycle import server
from specbench.params import load_run
from specbench.running.run import run
server.GRACE_S, server._GPU_WAIT_S = map(float, sys.argv[3:])
run(load_run(sys.argv[1]), Path(sys.argv[2]), notice=lambda text: print("notice:", text, flush=True))
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    found = Workbench(tmp_path)
    yield found
    found.close()


def start(bench: Workbench, params: Path, *, grace_s: float = 10.0, gpu_wait_s: float = 30.0) -> subprocess.Popen[str]:
    return bench.start("-c", RUN, str(params), str(bench.folder / "run"), str(grace_s), str(gpu_wait_s))


def ended(bench: Workbench, process: subprocess.Popen[str]) -> tuple[RunRecord, str]:
    """The record and what was said."""
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return RunRecord.open(bench.folder / "run"), said


STOPPED = "ready, and ran until it was stopped"
LOST = "RuntimeError: CUDA error: an illegal memory access was encountered"
CAPTURE = "OutOfMemoryError: CUDA out of memory. "


@pytest.mark.parametrize(
    ("wrong", "changes", "status", "exit_code", "reason", "outcome"),
    [
        ("serve", {}, "served", None, STOPPED, "served"),
        ("stubborn", {}, "served", None, STOPPED, "served"),
        ("crash_at_start", {}, "crashed", 1, f"ended while starting (exit code 1): {LOST}", "crashed"),
        ("crash_at_capture", {}, "refused", 1, f"refused to start (exit code 1): {CAPTURE}", "refused"),
        ("crash_in_request", {}, "crashed", -9, f"ended while serving (signal 9): {LOST}", "crashed"),
        ("hang_at_start", {"engine__ready_timeout_s": 3.0}, "timed_out", None, "not ready after 3 s", "timed_out"),
        ("mute", {"workload__request_timeout_s": 1.0}, "served", None, STOPPED, "unanswered"),
    ],
)
def test_a_server_and_its_record(
    bench: Workbench,
    wrong: str,
    changes: dict[str, float],
    status: str,
    exit_code: int | None,
    reason: str,
    outcome: str,
) -> None:
    grace_s = 0.5 if wrong == "stubborn" else 10.0
    record, said = ended(bench, start(bench, bench.params(wrong, **changes), grace_s=grace_s))
    assert (record.status.status, record.status.exit_code) == (status, exit_code)
    assert record.status.reason.startswith(reason)
    assert study(record.folder.parent).outcome == outcome
    assert len(bench.engine) == 4
    assert bench.left() == {}
    # The stand-in's processes held 600 + 2,048 + 512 MiB; the driver's 618 are there before and after.
    assert record.gpu_memory is not None
    assert record.gpu_memory.is_back is True
    assert record.env["gpu_memory_after"] == "back at baseline"
    assert [use.used_bytes // 2**20 for use in (*record.gpu_memory.before, *record.gpu_memory.after)] == [618, 618]
    assert bench.used_mib == 618
    assert "notice:" not in said
    assert record.env["environment"]["TMPDIR"] == str(bench.engines_file.parent)
    assert not bench.engines_file.parent.exists()
    assert bench.engines_shared_memory == [] or wrong == "crash_at_start"  # nobody may have seen it so soon
    if record.status.ready_s is not None:
        assert max(sample.used_bytes // 2**20 for sample in record.gpu_samples()) == 3778


@pytest.mark.parametrize("stated", [True, False])
def test_a_port_taken_between_check_and_bind(bench: Workbench, stated: bool) -> None:
    asked = {"engine__port": free_port("127.0.0.1")} if stated else {}
    process = start(bench, bench.params("gate", **asked))
    bench.wait_for_tree()  # the port was free when it was checked
    line = next(line for line in bench.alive().values() if "--port " in line)
    with socket.create_server(("127.0.0.1", int(line.partition("--port ")[2].split()[0]))):
        (bench.ledger / "go").touch()
        record, _ = ended(bench, process)
    assert (record.status.status, record.status.exit_code) == ("crashed", 1)
    assert record.status.ready_s is None
    # A stated port that cannot be had is an answer; of one that specbench chose the configuration knows nothing.
    assert record.status.cut_short == (None if stated else "port")
    assert b"error while attempting to bind on address" in record.log_bytes()
    assert bench.left() == {}
    assert bench.used_mib == 618


def test_memory_that_others_hold_is_said_before_the_start(bench: Workbench) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        (bench.ledger / str(other.pid)).write_text("48000")
        try:
            record, said = ended(bench, start(bench, bench.params()))
        finally:
            other.kill()
    # 143,771 - 618 - 48,000 MiB = 92.92 GiB free
    told = (
        "THIS START CANNOT HAVE ITS PREDICTED FREE MEMORY on GPU 0: 92.92 GiB are free now, of which the engine's own "
        "context takes at least 0.25 GiB; predicted before loading: 139.10 GiB or more, so 46.43 GiB are missing; "
        f"held by pid {other.pid} (sleep) 48,000 MiB"
    )
    assert f"notice: {told}" in said.splitlines()
    assert told in record.status.notes
    assert record.status.status == "served"  # it is said, not refused
    assert record.gpu_memory is not None
    (before,) = record.gpu_memory.before
    assert before.holders is not None
    assert [(holder.pid, holder.name) for holder in before.holders] == [(other.pid, "sleep")]
    assert record.gpu_memory.is_back is True  # it was there before


def test_memory_that_others_take_meanwhile_is_not_held_against_the_server(bench: Workbench) -> None:
    process = start(bench, bench.params("gate"))
    bench.wait_for_tree()
    with subprocess.Popen(["sleep", "600"]) as other:
        (bench.ledger / str(other.pid)).write_text("2000")
        (bench.ledger / "go").touch()
        try:
            record, _ = ended(bench, process)
        finally:
            other.kill()
    told = f"2,000 MiB on GPU 0 were taken by others meanwhile: held by pid {other.pid} (sleep, not of this server)"
    assert record.gpu_memory is not None and record.gpu_memory.is_back is True
    assert record.env["gpu_memory_after"] == f"back at baseline; {told} 2,000 MiB"
    assert f"{told} 2,000 MiB" in record.status.notes


def test_a_card_that_is_lost_while_it_serves_costs_no_record(bench: Workbench) -> None:
    record, said = ended(bench, start(bench, bench.params("lose_card"), gpu_wait_s=0.5))
    assert record.status.status == "served"
    assert record.gpu_memory is not None
    assert record.gpu_memory.is_back is None
    (note,) = [note for note in record.status.notes if note.startswith("WHETHER GPU MEMORY IS BACK is not known")]
    assert note.endswith("not checked: the GPUs' memory could not be read: GPU is lost")
    assert f"notice: {note}" in said.splitlines()
    assert bench.left() == {}


def test_memory_that_stays_in_use_is_in_the_record_and_on_the_screen(bench: Workbench) -> None:
    record, said = ended(bench, start(bench, bench.params("leak"), gpu_wait_s=0.5))
    assert record.gpu_memory is not None
    assert record.gpu_memory.is_back is False
    told = "still 1,024 MiB above baseline on GPU 0"
    assert record.env["gpu_memory_after"].startswith(told)
    (note,) = [note for note in record.status.notes if note.startswith("GPU MEMORY IS STILL HELD")]
    assert told in note and "1,642 MiB in use, NVML names no process" in note
    assert f"notice: {note}" in said.splitlines()
    assert bench.left() == {}
    assert bench.used_mib == 618 + 1024
