"""How many things run at once: configurations, and pages."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..configuration.config import RunConfig

_MAX_JOBS = 4
#: Pages need a core and 400 MB each, and a GPU waits for them while its machine is held: those of a campaign of 14 runs
#: are made in one round where there are cores for it, and half of the memory.
_MAX_PAGE_JOBS = 16
_PAGE_BYTES = 400 * 10**6


def run_jobs(configs: Sequence[RunConfig]) -> int:
    """How many run at once. A real engine needs its GPUs for itself."""
    if any(config.engine.replay is None for config in configs):
        return 1
    return max(1, min(_MAX_JOBS, os.cpu_count() or 1, len(configs)))


def page_jobs() -> int:
    """Pages that are written at once: one a core, as far as memory goes (twice `_PAGE_BYTES` each)."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(_MAX_PAGE_JOBS, os.cpu_count() or 1, memory_bytes // (2 * _PAGE_BYTES)))
