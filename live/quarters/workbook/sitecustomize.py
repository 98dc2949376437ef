"""On PYTHONPATH of specbench: NVML shows eight quarters of the cards, quarter r with what the process of rank r holds.

The same arithmetic as in ../engine. Does nothing unless NVML_SHOWS_QUARTERS is set.
"""

import contextlib
import functools
import importlib.util
import os
import re
import sys
import time
from pathlib import Path

SHARE, PARTS, RANKS = 35_942 * 2**20, 4, 8
_STALE_S = 0.002  # lists of processes are slow to read; the four quarters of a card are read together
_REREAD_S = 0.5  # … and are read again after this, also where the card's total has not changed


class Quarter:
    def __init__(self, rank, card, handle):
        self.rank, self.card, self.handle = rank, card, handle


def show_quarters(nvml):
    count, handle_of, memory, uuid, name = (
        nvml.nvmlDeviceGetCount,
        nvml.nvmlDeviceGetHandleByIndex,
        nvml.nvmlDeviceGetMemoryInfo,
        nvml.nvmlDeviceGetUUID,
        nvml.nvmlDeviceGetName,
    )
    lists = [
        getattr(nvml, key)
        for key in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
        if hasattr(nvml, key)
    ]
    ranks, seen = {}, {}

    def rank_of(pid):
        """By the title that SGLang gives its process; None: no rank, or not titled yet."""
        if ranks.get(pid) is None:
            found = None
            with contextlib.suppress(OSError):
                found = re.search(rb"scheduler_(?:.*?_)?TP(\d+)", Path(f"/proc/{pid}/cmdline").read_bytes())
            ranks[pid] = int(found[1]) if found else None
        return ranks[pid]

    def look(quarter):
        now, old = time.monotonic(), seen.get(quarter.card)
        if old is None or now - old["at"] > _STALE_S:
            whole = memory(quarter.handle)
            if old is not None and old["used"] == whole.used and now - old["read"] < _REREAD_S:
                old["at"] = now
            else:
                found = {}
                for processes in lists:
                    with contextlib.suppress(nvml.NVMLError):
                        found.update({process.pid: process for process in processes(quarter.handle)})
                seen[quarter.card] = {"at": now, "read": now, "used": whole.used, "processes": found}
        last = seen[quarter.card]
        every = last["processes"]
        own = [process for pid, process in every.items() if rank_of(pid) == quarter.rank]
        of_no_rank = [process for pid, process in every.items() if rank_of(pid) is None]
        return own, of_no_rank, max(0, last["used"] - size(every.values())) // PARTS

    def size(processes):
        return sum(process.usedGpuMemory or 0 for process in processes)

    def memory_info(quarter, *more):
        own, of_no_rank, of_nobody = look(quarter)
        told = memory(quarter.handle)
        told.total, told.used = SHARE, size(own) + size(of_no_rank) // PARTS + of_nobody
        told.free = SHARE - told.used
        return told

    def through(function):
        @functools.wraps(function)
        def call(handle, *more, **named):
            return function(handle.handle if isinstance(handle, Quarter) else handle, *more, **named)

        return call

    for key in dir(nvml):
        if key.startswith("nvmlDevice") and callable(getattr(nvml, key)):
            setattr(nvml, key, through(getattr(nvml, key)))
    nvml.nvmlDeviceGetCount = lambda: RANKS
    nvml.nvmlDeviceGetHandleByIndex = lambda rank: Quarter(rank, rank % count(), handle_of(rank % count()))
    nvml.nvmlDeviceGetMemoryInfo = memory_info
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda quarter: [*look(quarter)[0], *look(quarter)[1]]
    nvml.nvmlDeviceGetName = lambda quarter: f"a quarter of an {name(quarter.handle)}"
    nvml.nvmlDeviceGetUUID = lambda quarter: f"{uuid(quarter.handle)}-quarter-{quarter.rank // count()}"


class Finder:
    """Changes pynvml right after it ran."""

    def find_spec(self, name, path=None, target=None):
        if name != "pynvml":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            show_quarters(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("NVML_SHOWS_QUARTERS"):
    sys.meta_path.insert(0, Finder())
