"""On PYTHONPATH of SGLang: ranks share cards, and each is shown a quarter of its card as a card of its own.

Rank r of a server runs on card r % the number of cards that are there. Of its quarter that is in use what NVML says the
rank's own process holds, and a quarter of what no process holds (the driver's). Does nothing unless RANKS_SHARE_GPUS is
set. With READS=FOLDER, each free memory that the engine reads is also appended to FOLDER/<pid>.csv: Unix seconds, rank,
bytes, and who asked.
"""

import functools
import importlib.util
import os
import sys
import time
from pathlib import Path

SHARE = 35_942 * 2**20  # of an H200's 143,771 MiB
PARTS = 4


def used(card, pid):
    """Bytes of the card that count as this process's."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(card)
    sizes = {}
    # Clients of MPS are in a list of their own.
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        try:
            sizes.update({process.pid: process.usedGpuMemory or 0 for process in getattr(pynvml, name)(handle)})
        except (AttributeError, pynvml.NVMLError):
            continue
    of_nobody = pynvml.nvmlDeviceGetMemoryInfo(handle).used - sum(sizes.values())
    return sizes.get(pid, 0) + max(0, of_nobody) // PARTS


def share_the_card(module):
    """sglang.srt.managers.scheduler: the process of a rank."""
    own = module.run_scheduler_process

    @functools.wraps(own)
    def run_scheduler_process(server_args, port_args, gpu_id, *more, **named):
        import torch

        card = gpu_id % torch.cuda.device_count()

        def mem_get_info(device=None):
            free = max(0, SHARE - used(card, os.getpid()))
            _note(gpu_id, free)
            return free, SHARE

        torch.cuda.mem_get_info = torch.cuda.memory.mem_get_info = mem_get_info
        return own(server_args, port_args, card, *more, **named)

    module.run_scheduler_process = run_scheduler_process


def size_of_a_card(module):
    """sglang.srt.utils.common: defaults go by the size of the card, which it asks nvidia-smi for."""
    module.get_nvgpu_memory_capacity = lambda: float(SHARE // 2**20)


def _note(rank, free):
    if folder := os.environ.get("READS"):
        names, frame = [], sys._getframe(2)
        while frame is not None and len(names) < 8:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        with (Path(folder) / f"{os.getpid()}.csv").open("a") as out:
            out.write(f"{time.time():.4f},{rank},{free},{' < '.join(names)}\n")


CHANGED = {"sglang.srt.managers.scheduler": share_the_card, "sglang.srt.utils.common": size_of_a_card}


class Finder:
    """Changes a module right after it ran."""

    def find_spec(self, name, path=None, target=None):
        if name not in CHANGED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            CHANGED[name](module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("RANKS_SHARE_GPUS"):
    sys.meta_path.insert(0, Finder())
