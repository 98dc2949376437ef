"""The rig that shows each of eight ranks a quarter of a card: its arithmetic, with an NVML that is made up."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from specbench.gpus import load_gpu
from specbench.units import MIB

RIG = Path(__file__).parent.parent / "live" / "quarters"


class FakeNvml(ModuleType):
    """Two cards, 1,000 MiB of each in use; a process of no rank holds 400 of the first."""

    NVMLError = OSError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.nvmlInit = lambda: None
        self.nvmlDeviceGetCount = lambda: 2
        self.nvmlDeviceGetHandleByIndex = lambda index: index
        self.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=0, free=0, used=1_000 * MIB)
        self.nvmlDeviceGetName = lambda handle: "NVIDIA H200"
        self.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
        holder = SimpleNamespace(pid=os.getpid(), usedGpuMemory=400 * MIB)
        self.nvmlDeviceGetComputeRunningProcesses = lambda handle: [holder] if handle == 0 else []


def rig(part: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"quarters_{part}", RIG / part / "sitecustomize.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    found = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_a_rank_is_counted_what_its_process_holds_and_a_quarter_of_what_nobody_does(fake: FakeNvml) -> None:
    """Nobody holds 1,000 - 400 = 600 MiB of the first card, a quarter is 150, and 1,000 / 4 = 250 of the second."""
    engine = rig("engine")
    assert engine.SHARE == load_gpu("h200-quarter").total_bytes == load_gpu("h200").total_mib // 4 * MIB
    assert engine.used(0, os.getpid()) == (400 + 150) * MIB
    assert engine.used(0, -1) == 150 * MIB
    assert engine.used(1, os.getpid()) == 250 * MIB


def test_nvml_shows_eight_quarters(fake: FakeNvml) -> None:
    """What a process that is no rank holds is divided as well: 400 / 4 + 600 / 4 = 250 MiB."""
    rig("workbook").show_quarters(fake)
    assert fake.nvmlDeviceGetCount() == 8
    quarters = [fake.nvmlDeviceGetHandleByIndex(rank) for rank in range(8)]
    assert [fake.nvmlDeviceGetUUID(one) for one in quarters[:3]] == [
        "GPU-0-quarter-0",
        "GPU-1-quarter-0",
        "GPU-0-quarter-1",
    ]
    for one in quarters:
        told = fake.nvmlDeviceGetMemoryInfo(one)
        assert (told.total // MIB, told.used // MIB, told.free // MIB) == (35_942, 250, 35_692)
    assert fake.nvmlDeviceGetName(quarters[7]) == "a quarter of an NVIDIA H200"
