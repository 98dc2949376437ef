"""Folders for what lives as long as a process: sockets and settings of kernels. None of them stays.

A process that is killed cannot remove its own; so its pid is in the name, and whoever makes the next one removes those
whose process is gone. A pid alone does not tell, where containers or hosts share the directory: the process also holds
a lock, and where there are no locks none is removed. They lie in the temporary directory, since a socket's path must be
short.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..host import processes
from ..records.folder_lock import folders_of_this_user, hold, is_held

_NAME = re.compile(r"specbench-(\d+)-\w+")


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder, removed at the end of the block; those that killed processes left are removed first."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"specbench-{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        lock = hold(Path(folder))
        try:
            yield Path(folder)
        finally:
            os.close(lock)


def sweep(root: Path) -> None:
    """Remove the folders in `root` that are of this user and whose process is gone."""
    for folder, named in folders_of_this_user(root, _NAME):
        if _is_left(folder, int(named[1])):
            with suppress(RecursionError):  # folders deep in one another
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path, pid: int) -> bool:
    # Before the lock is taken the pid has to do. Without locks nobody can say: it may be one of another host.
    return is_held(folder) is False and not processes.exists(pid)
