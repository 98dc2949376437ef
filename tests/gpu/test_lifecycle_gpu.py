"""The main ends of a run with the real engine: none of its processes is left, and NVML shows the memory free again.

All but the first end it as soon as it holds a GiB on a card: that takes the time of its imports, not of a whole start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from specbench.lifecycle import temporary
from specbench.records.folders import unfinished
from specbench.records.record import RunRecord
from specbench.terms import Status
from tests.gpu.conftest import GpuBench
from tests.workbench import ROOT, in_terminal, until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc"),
]

RUN = """
import sys
from pathlib import Path
from specbench.params import load_run
from specbench.running.run import run
run(load_run(sys.argv[1]), Path(sys.argv[2]), notice=print)
"""
_END_S = 200.0  # grace period, memory, the kernel's own end


def nothing_is_left(bench: GpuBench, tree: set[int]) -> None:
    assert tree, "no process of the server was seen"
    assert bench.left(timeout_s=_END_S) == {}
    assert not any(is_living(pid) for pid in tree)
    assert until(bench.is_free, 60), f"{bench.before} bytes in use before, {bench.used_bytes()} after"
    assert temporary.left_over() == ()


def is_living(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def papermill(bench: GpuBench, *options: str) -> subprocess.Popen[str]:
    params, out = str(bench.file(endless=True)), str(bench.folder / "run")
    notebook = str(ROOT / "notebooks" / "2_run.ipynb")
    return bench.start("-m", "papermill", notebook, "out.ipynb", "-p", "params", params, "-p", "out", out, *options)


def test_a_normal_end(bench: GpuBench) -> None:
    began = time.monotonic()
    process = bench.start("-c", RUN, str(bench.file()), str(bench.folder / "run"))
    tree = bench.wait_for_loading()
    bench.timing.loading_s = time.monotonic() - began
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said
    record = RunRecord.open(bench.folder / "run")
    served: tuple[Status, ...] = ("served", "refused")  # what the configuration says; its end is clean either way
    assert record.status.status in served, record.status.reason
    nothing_is_left(bench, tree)
    assert record.gpu_memory is not None
    assert record.gpu_memory.is_back is (None if bench.before is None else True), record.env["gpu_memory_after"]
    if bench.before is not None:
        assert [use.holders is not None for use in record.gpu_memory.before] == [True] * len(record.gpu_memory.before)


def test_the_kernel_is_killed(bench: GpuBench) -> None:
    process = papermill(bench)
    tree = bench.wait_for_loading()
    os.kill(bench.find("ipykernel_launcher"), signal.SIGKILL)
    process.communicate(timeout=_END_S)
    assert process.returncode != 0
    nothing_is_left(bench, tree)


def test_the_command_is_killed(bench: GpuBench) -> None:
    out = bench.folder / "out"
    process = bench.start("-m", "specbench", "run", str(bench.file(endless=True)), "--out", str(out))
    tree = bench.wait_for_loading()
    process.kill()
    process.communicate(timeout=_END_S)
    nothing_is_left(bench, tree)
    (left,) = unfinished(out / bench.config.name)
    assert not left.alive


def test_ctrl_c_in_the_terminal(bench: GpuBench) -> None:
    arguments = ("-m", "specbench", "run", str(bench.file(endless=True)), "--out", str(bench.folder / "out"))
    with in_terminal(bench, *arguments) as (process, type_keys):
        tree = bench.wait_for_loading()
        type_keys(b"\x03")
        assert process.wait(_END_S) == 130
    assert bench.is_free()  # whoever waited for the command finds the card free
    nothing_is_left(bench, tree)


def test_papermills_time_out_during_the_start(bench: GpuBench) -> None:
    """Of one cell: shorter than the start takes, longer than its way to the card took before."""
    limit_s = 90 if bench.timing.loading_s is None else max(20, round(bench.timing.loading_s) + 10)
    process = papermill(bench, "--execution-timeout", str(limit_s))
    tree = bench.wait_for_loading()
    said, _ = process.communicate(timeout=limit_s + _END_S)
    assert process.returncode != 0
    assert "Timeout" in said
    nothing_is_left(bench, tree)
