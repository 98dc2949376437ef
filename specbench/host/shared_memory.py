"""Objects in shared memory that a tree of processes leaves: they outlive every process, and hold the host's memory.

In: the pids of a tree. Out: what it maps and nobody had before, by name; and their removal, once nobody maps them.
SGLang leaves some after a normal end, too: its table of loads (managers/load_snapshot.py), the queues between ranks
(device_communicators/shm_broadcast.py), host pools (mem_cache/storage/mmap), semaphores of multiprocessing, whose own
clean-up SGLang kills with the rest; NCCL leaves segments when it is killed. Standard library only (the supervisor uses
it). The non-obvious thing: that nobody maps an object says nothing where containers share this folder, so only what the
tree itself was seen to map is ever removed.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import processes

FOLDER = "/dev/shm"
#: multiprocessing's semaphores and SharedMemory, NCCL's segments, SGLang's own. What else somebody puts there (models,
#: files) is never touched.
_NAME = re.compile(r"(?:sem\.mp-|psm_|nccl-|sgl_|sglang_)[\w.-]{1,200}")
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80  # linux/inotify.h
#: After an object has come it takes its maker a moment to map it; a neighbour who makes many must cost little.
_SETTLE_S, _BETWEEN_S = 0.05, 0.5
_LIBC = ctypes.CDLL(None, use_errno=True)

#: Name -> number of the file: tells an object from a later one of that name.
Objects = dict[str, int]


class Watched:
    """What a tree maps of this folder. `descriptor` becomes readable when something new lies in it; -1: never."""

    def __init__(self) -> None:
        self._before = there()
        self._seen: Objects = {}
        self._due: float | None = None
        self._looked = 0.0
        self.descriptor = _inotify()

    def wait_s(self, longest_s: float) -> float:
        """How long may be waited before `look` has something to do."""
        return longest_s if self._due is None else min(longest_s, max(0.0, self._due - time.monotonic()))

    def news(self) -> None:
        """The descriptor is readable."""
        with suppress(OSError):
            os.read(self.descriptor, 1 << 16)
        if self._due is None:
            self._due = max(time.monotonic() + _SETTLE_S, self._looked + _BETWEEN_S)

    def is_due(self) -> bool:
        """Whether it is time to look, since something has come."""
        return self._due is not None and time.monotonic() >= self._due

    def look(self, pids: Iterable[int]) -> bool:
        """Notes what these processes map. Whether there is something new."""
        self._due, self._looked = None, time.monotonic()
        now = there()
        new = {name: now[name] for name in now if self._before.get(name) != now[name] and name not in self._seen}
        ours = mapped(pids) if new else set()
        found = {name: number for name, number in new.items() if number in ours}
        self._seen |= found
        return bool(found)

    def noted(self) -> str:
        """What was found, to be kept until it is removed: see `remove`."""
        return json.dumps(self._seen)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def there() -> Objects:
    """The objects of this user that have such a name."""
    found: Objects = {}
    with suppress(OSError):
        for entry in os.scandir(FOLDER):
            with suppress(OSError):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    told = entry.stat(follow_symlinks=False)
                    if told.st_uid == os.getuid():
                        found[entry.name] = told.st_ino
    return found


def remove(noted: str) -> None:
    """Removes what is `noted`, still the same, and mapped by no process that can be seen. A damaged note: nothing."""
    told: Any = None
    with suppress(ValueError, RecursionError):
        told = json.loads(noted)
    if not isinstance(told, dict):
        return
    left = {name: number for name, number in there().items() if told.get(name) == number}
    used = mapped(processes.table()) if left else set()
    for name, number in left.items():
        if number not in used:
            with suppress(OSError):
                Path(FOLDER, name).unlink()


def mapped(pids: Iterable[int]) -> set[int]:
    """Numbers of the files in this folder that one of these processes maps.

    Not the names: a semaphore is mapped under a passing one before it gets its own (sem_open of glibc).
    """
    found: set[int] = set()
    start = f"{os.path.realpath(FOLDER)}/".encode()
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123  (read often)
            for line in maps:
                fields = line.split(None, 5)  # addresses, access, offset, device, number of the file, its path
                if len(fields) == 6 and fields[5].startswith(start):
                    found.add(int(fields[4]))
    return found


def _inotify() -> int:
    """A descriptor; -1: this system has none to give."""
    try:
        descriptor = int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor >= 0 and _LIBC.inotify_add_watch(descriptor, FOLDER.encode(), _IN_CREATE | _IN_MOVED_TO) < 0:
            os.close(descriptor)
            return -1
    except AttributeError:  # not Linux
        return -1
    return descriptor
