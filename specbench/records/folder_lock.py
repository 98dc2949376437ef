"""Whether the process that works in a folder still lives: it holds a lock on it, which ends with it in any way.

A pid in a name does not tell: it may be a zombie's, a later process's, or of another container or machine. The lock is
the kernel's own (flock), leaves nothing on disk, and is not there on some network file systems: then it cannot be told.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ConfigError


def hold(folder: Path) -> int:
    """Take the lock for as long as the returned descriptor is open; where there are no locks, nothing happens."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_held(folder: Path) -> bool | None:
    """Whether a living process holds it; None: cannot be told here."""
    try:
        descriptor, taken = _try(folder, fcntl.LOCK_EX)
    except OSError:
        return None
    os.close(descriptor)
    return None if taken is None else not taken


@contextmanager
def alone(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """While a block that is `exclusive` lasts, no other works in this folder. ConfigError: one does.

    Where there are no locks, everyone is let in. A copy of the folder has none.
    """
    descriptor, taken = _try(folder, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
    try:
        if taken is False:
            raise ConfigError(
                f"{folder}: another specbench run is at work there.\nWait until it has ended, or name another folder "
                "(--out)."
            )
        yield
    finally:
        os.close(descriptor)


def folders_of_this_user(root: Path, name: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
    """The folders in `root` that have such a name and belong to this user. Links are none; a root that is not there has
    none."""
    with suppress(OSError):
        for entry in os.scandir(root):
            named = name.fullmatch(entry.name)
            with suppress(OSError):
                if named and entry.is_dir(follow_symlinks=False) and _is_ours(entry):
                    yield Path(entry.path), named


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()


def _try(folder: Path, kind: int) -> tuple[int, bool | None]:
    """A descriptor, and whether it has the lock now; None: there are no locks here. OSError: no such folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return descriptor, False
    except OSError:
        return descriptor, None
    return descriptor, True
