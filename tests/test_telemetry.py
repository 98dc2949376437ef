"""GPU samples: from an injected reader, and without NVML."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from specbench.capture import telemetry as module
from specbench.capture.telemetry import Telemetry
from specbench.host.nvml import GpuReading, MemoryReading
from specbench.host.nvml import names as nvml_names
from specbench.host.nvml import reader as nvml_reader


def reading(gpu: int, used: int) -> GpuReading:
    return GpuReading(gpu, used, 100 - used, 100, None, 50.0)


def test_all_gpus_are_sampled_with_their_phase_until_the_end() -> None:
    used = iter(range(1, 10_000))
    enough = threading.Event()

    def read() -> list[GpuReading]:
        now = next(used)
        if now >= 6:
            enough.set()
        return [reading(0, now), reading(1, 2 * now)]

    with Telemetry(0.001, read) as telemetry:
        telemetry.phase("start")
        assert enough.wait(60)
    samples = telemetry.samples
    assert (samples[0].phase, samples[0].used_bytes) == ("before", 1)
    assert samples[-1].phase == "start"
    assert {sample.gpu for sample in samples} == {0, 1}
    assert [s.used_bytes for s in samples if s.gpu == 0] == list(range(1, len(samples) // 2 + 1))
    assert [s.t_s for s in samples] == sorted(s.t_s for s in samples)
    after = len(telemetry.samples)
    assert len(telemetry.samples) == after  # the thread has ended


def test_while_starting_every_level_of_memory_is_kept_with_its_beginning_and_its_end() -> None:
    """Whole samples come once a minute here: what is seen between them is seen by the quick look."""
    levels = [10, 10, 10, 20, 20, 20, 30]
    looks: list[int] = []
    done = threading.Event()

    def memory() -> list[MemoryReading]:
        looks.append(levels[min(len(looks), len(levels) - 1)])
        if len(looks) > len(levels) + 3:
            done.set()
        return [MemoryReading(0, looks[-1], 100 - looks[-1], 100)]

    with Telemetry(60.0, lambda: [reading(0, looks[-1] if looks else 10)], memory=memory) as telemetry:
        telemetry.phase("start")
        assert done.wait(30)
        telemetry.phase("ready")
    start = [s for s in telemetry.samples if s.phase == "start"]
    assert [s.used_bytes for s in start] == [10, 10, 20, 20, 30, 30]
    assert [s.power_w for s in start[1:]] == [None] * 5  # memory alone
    assert [s.t_s for s in start] == sorted(s.t_s for s in start)
    assert telemetry.samples[-1].phase == "ready"
    count = len(looks)
    assert telemetry.words == ("NVML every 60 s, all GPUs; while starting memory every 1 to 10 ms, changes only")
    assert len(looks) == count  # ready: no quick look any more


def test_a_look_that_the_driver_held_up_does_not_end_the_watch() -> None:
    """NVML can answer late (0.14 s on two H200s, while a process set up its GPU): the looks after it come as before."""
    looks: list[int] = []
    enough, late = threading.Event(), threading.Event()

    def memory() -> list[MemoryReading]:
        looks.append(len(looks))
        if len(looks) == 3:
            late.wait(0.4)  # times five is more than the interval of the whole samples
        if len(looks) > 30:
            enough.set()
        return [MemoryReading(0, looks[-1], 100 - looks[-1], 100)]

    with Telemetry(1.5, lambda: [reading(0, 0)], memory=memory) as telemetry:
        telemetry.phase("start")
        assert enough.wait(60)
        telemetry.phase("ready")
    alone = [s.t_s for s in telemetry.samples if s.power_w is None and s.phase == "start"]
    assert len(alone) >= 30


def test_a_run_of_many_hours_is_thinned_and_marks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SAMPLES", 10)
    telemetry = Telemetry(60.0, lambda: [reading(0, 1)])
    telemetry._sample(mark=True)
    for _ in range(9):
        telemetry._sample()
    assert len(telemetry.samples) == 5  # the mark and every second one of the nine
    assert telemetry.words.startswith("NVML every 60 s, thinned to every 120 s, all GPUs")


def test_a_lost_gpu_ends_the_samples_not_the_run() -> None:
    count = iter(range(10))

    def read() -> list[GpuReading]:
        if next(count) == 2:
            raise RuntimeError("GPU is lost")
        return [reading(0, 1)]

    with Telemetry(60.0, read) as telemetry:
        telemetry.phase("start")
        telemetry.phase("warmup")
    assert len(telemetry.samples) == 2
    assert "GPU is lost" in telemetry.words


def test_without_nvml_the_reason_is_kept() -> None:
    with Telemetry(0.01, "no NVML on this machine: no driver") as telemetry:
        telemetry.phase("start")
    assert telemetry.samples == ()
    assert telemetry.words == telemetry.unavailable == "no NVML on this machine: no driver"


def test_this_machine_reads_its_gpus_or_says_why_not() -> None:
    found = nvml_reader()
    if isinstance(found, str):
        assert found.startswith("no NVML on this machine: ")
    else:
        pytest.skip("this machine has NVML")


class NVMLError(Exception):
    """As the library names it."""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (NVMLError("Driver Not\n\x1b[31mLoaded"), "no NVML on this machine: Driver Not [31mLoaded"),
        (OSError("libnvidia-ml.so.1: cannot open"), "no NVML on this machine: libnvidia-ml.so.1: cannot open"),
        (AttributeError("nvmlInit"), "what is installed as pynvml is not nvidia-ml-py: nvmlInit"),
    ],
)
def test_what_does_not_begin_is_a_reason(monkeypatch: pytest.MonkeyPatch, wrong: Exception, words: str) -> None:
    def begin() -> None:
        raise wrong

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=begin, NVMLError=NVMLError))
    assert nvml_names() == nvml_reader() == words


def test_names_are_shown_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: ("NVIDIA \x1b[31mH200\n", b"NVIDIA H200")[handle],
        nvmlSystemGetDriverVersion=lambda: "580.159.04",
        nvmlSystemGetCudaDriverVersion=lambda: 13_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = nvml_names()
    assert not isinstance(found, str)
    assert (found.names, found.driver, found.cuda) == (("NVIDIA [31mH200 ", "NVIDIA H200"), "580.159.04", "13.0")
