"""Processes of this machine as /proc tells them: who belongs to an engine's tree, and whose a listening port is.

An engine's workers re-parent to PID 1 or start sessions of their own, so a process group is not the tree: the
supervisor leaves a mark in the environment of everything that it starts. Standard library only (the supervisor uses
it). Where there is no /proc, nothing is found, and questions are answered by None.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "SPECBENCH_SUPERVISED"
_POLL_S = 0.05
_LISTEN = "0A"  # state of a socket in /proc/net/tcp
_NAME_CHARS = 60
_THREADS, _STARTED = 17, 19  # places of these in /proc/<pid>/stat, counted from the state


@dataclass(frozen=True, slots=True)
class Process:
    """What is known of a process that was seen."""

    parent: int
    session: int
    started: int  # in clock ticks since boot: tells a process from a later one with the same pid


def table() -> dict[int, Process]:
    """Every living process by its pid. Empty without /proc.

    A zombie is not living, unless it has more threads than the first: these still run, or close what they had open. A
    killed scheduler is such a one for as long as the driver frees the memory of its GPU (seen: 11 s).
    """
    found: dict[int, Process] = {}
    with suppress(OSError):
        for entry in os.listdir("/proc"):  # noqa: PTH208  (called ten times a second; no Path objects)
            if not entry.isdigit():
                continue
            with suppress(OSError, ValueError, IndexError):
                fields = _stat(entry)
                if fields[0] not in (b"Z", b"X") or (fields[0] == b"Z" and int(fields[_THREADS]) > 1):
                    found[int(entry)] = Process(int(fields[1]), int(fields[3]), int(fields[_STARTED]))
    return found


def session_of(pid: int) -> int | None:
    """Its session, also of a process that has ended and was not collected yet. None: there is no such process here."""
    with suppress(OSError, ValueError, IndexError):
        return int(_stat(str(pid))[3])
    return None


def tree(mark: str, session: int, *, known: Iterable[int] = (), parent: int | None = None) -> dict[int, Process]:
    """What carries `mark` or belongs to `session`, what is `known`, children of `parent`, and all descendants."""
    every = table()
    members = {pid for pid, process in every.items() if process.session == session or carries(pid, mark)}
    members |= {pid for pid in known if pid in every}
    grew = True
    while grew:
        children = {pid for pid, process in every.items() if process.parent in members or process.parent == parent}
        grew = not children <= members
        members |= children
    return {pid: every[pid] for pid in members - {os.getpid()}}


def carries(pid: int, mark: str) -> bool:
    """Whether a process was started with this mark in its environment."""
    with suppress(OSError):
        return f"{MARK}={mark}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")
    return False


def sweep(mark: str, session: int, known: dict[int, Process], timeout_s: float) -> int:
    """SIGKILL for what is left of a tree whose supervisor is gone. Returns how many processes were ended."""
    ended: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while True:
        now = table()
        same = [pid for pid, process in known.items() if pid in now and now[pid].started == process.started]
        left = tree(mark, session, known=same)
        if not left or time.monotonic() >= deadline:
            return len(ended)
        for pid in left:
            send(pid, signal.SIGKILL)
        ended |= set(left)
        time.sleep(_POLL_S)


def exists(pid: int) -> bool:
    """Whether there is such a process here, living or not yet collected; of whichever user."""
    try:
        with suppress(PermissionError):  # somebody else's
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter: no pid at all
        return False
    return True


def name_of(pid: int) -> str | None:
    """What a process calls itself, in its own words, so without control characters. None: it is not here.

    Of a Python program also its module or script; no other argument, since these may hold what is secret.
    """
    with suppress(OSError):
        words = [word.decode("utf-8", "replace") for word in _read(f"/proc/{pid}/cmdline").split(b"\0")]
        name = _base(words[0] or _read(f"/proc/{pid}/comm").decode("utf-8", "replace"))
        if name.startswith("python"):
            if len(words) > 2 and words[1] == "-m":
                name = f"{name} -m {words[2]}"
            elif len(words) > 1 and words[1] and not words[1].startswith("-"):
                name = f"{name} {_base(words[1])}"
        return "".join(char if char.isprintable() else "?" for char in name)[:_NAME_CHARS] or None
    return None


def _base(path: str) -> str:
    return path.strip().rpartition("/")[2]


def send(pid: int, number: signal.Signals) -> None:
    """A signal; nothing where the process is gone or is not ours."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def listens(pids: Iterable[int], port: int) -> bool | None:
    """Whether one of `pids` holds a listening TCP socket on `port`. None: cannot be told here."""
    inodes = _listening(port)
    if not inodes:
        return None
    unreadable = False
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  (as above)
        except PermissionError:
            unreadable = True
            continue
        except OSError:
            continue
        for descriptor in descriptors:
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:  # noqa: PTH115  (as above)
                    return True
    return None if unreadable else False


def why_not_bindable(host: str, port: int) -> str | None:
    """Why a server cannot listen at this address; None: it can. `port` 0 asks about the host alone."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # As servers do: connections of an earlier server that linger are no hindrance, a listening one is.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return "in use by another process"
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return None


def _listening(port: int) -> set[str]:
    """The sockets that listen on a port, as the links in /proc/<pid>/fd name them."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text("ascii", "replace").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def _stat(pid: str) -> list[bytes]:
    """The fields from the state on. The command's name may hold spaces and brackets: counted from the last bracket."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123  (as above)
        return file.read()
