"""NVML, the only place that imports pynvml: every GPU's memory and load at one moment, who holds it, names, driver.

Without NVML (no GPU, no driver, nvidia-ml-py not installed) every function gives the reason in words instead: a machine
without a GPU is no error, and its figures are unknown, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..logclean import on_one_line
from .gpu_use import Holder, InUse, Probe
from .processes import name_of

#: The reason that says nothing about GPUs: the Python package is missing.
NOT_INSTALLED = "no NVML on this machine: nvidia-ml-py is not installed"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory of one GPU at one moment."""

    gpu: int  # NVML index
    used_bytes: int
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class GpuReading(MemoryReading):
    """One GPU at one moment."""

    utilization_pct: float | None  # None: this card does not tell
    power_w: float | None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class GpuNames:
    """What does not change: a name per GPU, and the driver."""

    names: tuple[str, ...]
    driver: str
    cuda: str | None = None  # the latest CUDA that the driver serves; None: it does not tell


Reader = Callable[[], Sequence[GpuReading]]
#: Memory alone: some 20 µs a GPU, so that it can be read a thousand times a second.
MemoryReader = Callable[[], Sequence[MemoryReading]]


def reader() -> Reader | str:
    """A function that reads every GPU of this machine; without NVML the reason in words."""
    connected = _connect()
    if isinstance(connected, str):
        return connected
    pynvml, handles = connected

    def optional(read: Callable[[Any], float], handle: Any) -> float | None:
        try:
            return read(handle)
        except pynvml.NVMLError:  # e.g. a card that does not report its power
            return None

    def utilization_pct(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    def power_w(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000

    def sm_clock_mhz(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))

    def memory_clock_mhz(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM))

    def temperature_c(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))

    def read() -> list[GpuReading]:
        readings = []
        for index, handle in enumerate(handles):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            readings.append(
                GpuReading(
                    gpu=index,
                    used_bytes=int(memory.used),
                    free_bytes=int(memory.free),
                    total_bytes=int(memory.total),
                    utilization_pct=optional(utilization_pct, handle),
                    power_w=optional(power_w, handle),
                    sm_clock_mhz=optional(sm_clock_mhz, handle),
                    memory_clock_mhz=optional(memory_clock_mhz, handle),
                    temperature_c=optional(temperature_c, handle),
                )
            )
        return readings

    return read


def use_reader() -> Probe | str:
    """A function that reads the memory of every GPU and who holds it; without NVML the reason in words."""
    connected = _connect()
    if isinstance(connected, str):
        return connected
    pynvml, handles = connected

    def holders(handle: Any) -> tuple[Holder, ...] | None:
        sizes: dict[int, int | None] = {}
        lists = (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses)
        told = False
        for running in lists:
            try:
                found = running(handle)
            except pynvml.NVMLError:  # not supported by this card, or not permitted
                continue
            told = True
            for process in found:  # one that computes and draws is in both lists, with the same figure
                sizes[process.pid] = process.usedGpuMemory or sizes.get(process.pid)
        return (
            tuple(Holder(pid=pid, name=name_of(pid), used_bytes=size) for pid, size in sizes.items()) if told else None
        )

    def uuid(handle: Any) -> str | None:
        try:
            return _text(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            return None

    uuids = [uuid(handle) for handle in handles]

    def read() -> tuple[InUse, ...]:
        uses = []
        for index, handle in enumerate(handles):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            uses.append(
                InUse(
                    gpu=index,
                    used_bytes=int(memory.used),
                    free_bytes=int(memory.free),
                    total_bytes=int(memory.total),
                    uuid=uuids[index],
                    holders=holders(handle),
                )
            )
        return tuple(uses)

    return read


def memory_reader() -> MemoryReader | str:
    """A function that reads the memory of every GPU and nothing else; without NVML the reason in words."""
    connected = _connect()
    if isinstance(connected, str):
        return connected
    pynvml, handles = connected

    def read() -> list[MemoryReading]:
        readings = []
        for index, handle in enumerate(handles):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            readings.append(MemoryReading(index, int(memory.used), int(memory.free), int(memory.total)))
        return readings

    return read


def names() -> GpuNames | str:
    """Names of the GPUs and the driver's version; without NVML the reason in words."""
    connected = _connect()
    if isinstance(connected, str):
        return connected
    pynvml, handles = connected
    try:
        found = tuple(_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return f"the GPUs' names could not be read: {on_one_line(str(error))}"
    try:
        number = int(pynvml.nvmlSystemGetCudaDriverVersion())  # 13000 is 13.0
        cuda = f"{number // 1000}.{number % 1000 // 10}"
    except pynvml.NVMLError:
        cuda = None
    return GpuNames(names=found, driver=driver, cuda=cuda)


def _connect() -> tuple[Any, list[Any]] | str:
    """The initialised module and a handle per GPU. Initialising again is counted by NVML and costs nothing."""
    try:
        import pynvml
    except ImportError:
        return NOT_INSTALLED
    try:
        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except AttributeError as error:  # another module of that name
        return f"what is installed as pynvml is not nvidia-ml-py: {on_one_line(str(error))}"
    except (pynvml.NVMLError, OSError) as error:  # a library that cannot be loaded is no error of NVML's
        return f"no NVML on this machine: {on_one_line(str(error))}"


def _text(value: str | bytes) -> str:
    """Older versions of nvidia-ml-py give bytes."""
    return on_one_line(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
