"""Processes that an earlier specbench left on this machine: of servers whose supervisor and client were both killed.

In: /proc. Out: them by pid, and how to end them. The non-obvious thing: what carries the mark of a supervisor belongs
to a run that goes on as long as a supervisor is among its ancestors, since orphans of a tree become children of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..host import processes
from ..host.processes import MARK

#: Whoever started a server whose supervisor was killed ends it by itself, at once.
_SETTLE_S = 1.0
_MOST_NAMED = 8


def left_over() -> dict[int, str]:
    """pid -> name of those that are still there a moment after they were first seen. Empty without /proc."""
    first = _unsupervised()
    if not first:
        return {}
    time.sleep(_SETTLE_S)
    again = _unsupervised()
    return {
        pid: processes.name_of(pid) or "no name" for pid, started in again.items() if first.get(pid, started) == started
    }


def warnings() -> tuple[str, ...]:
    """What is to be said of them before a start; empty: there are none."""
    found = left_over()
    return (in_words(found),) if found else ()


def in_words(found: Mapping[int, str]) -> str:
    """One sentence, with the command that ends them."""
    named = ", ".join(f"pid {pid} ({name})" for pid, name in list(found.items())[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return (
        f"LEFT BY AN EARLIER RUN of specbench, whose supervisor was killed: {named}{more}; "
        f"end them with: kill {' '.join(map(str, found))} (kill -9 when that does not end them)"
    )


def _unsupervised() -> dict[int, int]:
    """pid -> when it started, of every marked process without a supervisor above it."""
    every = processes.table()
    return {
        pid: process.started
        for pid, process in every.items()
        if pid != os.getpid() and _is_marked(pid) and not _has_supervisor(pid, every)
    }


def _is_marked(pid: int) -> bool:
    with suppress(OSError):
        return any(
            one.startswith(f"{MARK}=".encode()) for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        )
    return False


def _has_supervisor(pid: int, every: Mapping[int, processes.Process]) -> bool:
    seen: set[int] = set()
    while pid in every and pid not in seen:
        seen.add(pid)
        with suppress(OSError):
            if b"specbench.lifecycle.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return True
        pid = every[pid].parent
    return False
