"""Whether the process that works in a folder still lives: it holds a lock on it, which ends with it in any way.

A pid in a name does not tell: it may be a zombie's, a later process's, or of another container or machine. The lock is
the kernel's own (flock), leaves nothing on disk, and is not there on some network file systems: then it cannot be told.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def hold(folder: Path) -> int:
    """Take the lock for as long as the returned descriptor is open; where there are no locks, nothing happens."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_held(folder: Path) -> bool | None:
    """Whether a living process holds it; None: cannot be told here."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
