"""Folders for what lives as long as a process: sockets and settings of kernels. None of them stays.

A process that is killed cannot remove its own; so its pid is in the name, and whoever makes the next one removes those
whose process is gone. A pid alone does not tell, where containers share the directory: the process also holds a lock.
They lie in the temporary directory, since a socket's path must be short.
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
from ..records.folder_lock import hold, is_held

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
    with suppress(OSError):
        for entry in os.scandir(root):
            named = _NAME.fullmatch(entry.name)
            with suppress(OSError):
                if (
                    named
                    and entry.is_dir(follow_symlinks=False)
                    and _is_ours(entry)
                    and _is_left(Path(entry.path), int(named[1]))
                ):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()


def _is_left(folder: Path, pid: int) -> bool:
    return not is_held(folder) and not processes.exists(
        pid
    )  # before the lock is taken, and without locks, the pid has to do
