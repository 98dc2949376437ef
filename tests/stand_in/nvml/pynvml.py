"""A stand-in for NVIDIA's library, as far as specbench calls it: H200s whose memory is held by real processes.

Who holds how much stands in the folder that STAND_IN_LEDGER names (see the stand-in engine): a file per pid, "MiB" of
the first card or "MiB card", which counts as long as that process lives, and perhaps `leaked`, which counts always and
belongs to nobody. With a file `lost` in it the cards can no longer be read. There are STAND_IN_CARDS of them, or one.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

MIB = 2**20
TOTAL_MIB = 143_771
#: What the driver keeps for itself, as on the cards that were recorded.
DRIVER_MIB = 618


class NVMLError(Exception):
    """As the library names it."""


def holders(ledger: Path, card: int = 0) -> dict[str, int]:
    """Name of the file -> MiB."""
    names = [entry.name for entry in sorted(ledger.iterdir())]
    counted = [name for name in names if name == "leaked" or (name.isdigit() and lives(int(name)))]
    held = {name: [*map(int, (ledger / name).read_text().split()), 0] for name in counted}
    return {name: mib for name, (mib, on, *_) in held.items() if on == card}


def used_mib(ledger: Path, card: int = 0) -> int:
    """Of the whole card, now."""
    return DRIVER_MIB + sum(holders(ledger, card).values())


def _ledger() -> Path:
    return Path(os.environ["STAND_IN_LEDGER"])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def nvmlInit() -> None: ...


def nvmlDeviceGetCount() -> int:
    return int(os.environ.get("STAND_IN_CARDS", "1"))


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA H200"


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{0xA1B + handle:04x}"


def nvmlSystemGetDriverVersion() -> str:
    return "580.159.04"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    if (_ledger() / "lost").exists():
        raise NVMLError("GPU is lost")
    used = used_mib(_ledger(), handle) * MIB
    return SimpleNamespace(used=used, free=TOTAL_MIB * MIB - used, total=TOTAL_MIB * MIB)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(pid=int(name), usedGpuMemory=mib * MIB)
        for name, mib in holders(_ledger(), handle).items()
        if name.isdigit() and mib
    ]


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[SimpleNamespace]:
    raise NVMLError("Not Supported")


def __getattr__(name: str) -> object:
    """Any other figure of a card: this one does not report it."""
    if name.startswith("NVML_"):
        return 0
    if not name.startswith("nvml"):
        raise AttributeError(name)

    def unsupported(*_: object) -> None:
        raise NVMLError("Not Supported")

    return unsupported
