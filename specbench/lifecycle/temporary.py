"""A temporary folder for each engine that is started, which goes when the engine does.

In: the variables that the engine is given. Out: the folder, which its supervisor makes and removes, and the variables
by which the engine uses it. SGLang leaves the files and sockets that it names by `tempfile` (server_args.py, PortArgs)
after a normal end, too. The non-obvious things: a socket's path must be short, and compiled kernels that would lie in
the temporary directory are to outlive the engine, so their caches stay where they would have been.

Who owns a folder is told by the lock on it, which its supervisor holds, and by the processes whose mark is in it. On
another host neither can be seen, where several share the temporary directory and each has locks of its own.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..host import processes, shared_memory
from ..records.folder_lock import folders_of_this_user, hold, is_held

#: By which Python finds its temporary directory, in its order (tempfile.py); compilers look at the first alone.
_NAMING = ("TMPDIR", "TEMP", "TMP")
_NAME = re.compile(r"sb-[0-9a-f]{8}")
_MARK_FILE = ".specbench-mark"  # the mark that the processes of its server carry, and their host; none: not ours
_SHARED_FILE = ".specbench-shared-memory"  # what they have in shared memory, as `shared_memory` notes it
#: The longest path of a socket: sun_path of Linux has 108 bytes, the last of them zero.
_SOCKET_BYTES = 107
#: What an engine may put behind the folder: `/tmp` and 8 characters; `/pymp-…/listener-…` of multiprocessing, 31;
#: what plug-ins put there is not known.
_BEHIND_BYTES = 70
_SHORT = "/tmp"  # where the usual place is too deep for a socket
_TRIES, _WAIT_S = 3, 0.05
_MOST_NAMED = 8
_MOST_BYTES = 1 << 22  # of a note; a name in shared memory has at most 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporary:
    """What an engine is given as its temporary folder."""

    folder: Path | None = None  # to be made by the supervisor; None: the engine has that of this machine, or as stated
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment, beside those that it has
    note: str | None = None  # what a reader of the record must know


def of_an_engine(stated: Mapping[str, str]) -> Temporary:
    """A folder that does not exist yet, unless the variables that are `stated` for the engine choose one."""
    if any(name in stated for name in _NAMING):
        return Temporary()
    try:
        usual = tempfile.gettempdir()
    except OSError as error:
        return Temporary(note=f"the engine has no temporary folder of its own: {error}")
    name = f"sb-{secrets.token_hex(4)}"
    for root in dict.fromkeys((usual, _SHORT)):
        folder = Path(root, name)
        if len(os.fsencode(folder)) + _BEHIND_BYTES <= _SOCKET_BYTES and os.access(root, os.W_OK | os.X_OK):
            return Temporary(folder=folder, variables={_NAMING[0]: str(folder), **_shared(usual, stated)})
    return Temporary(
        note=f"the engine has no temporary folder of its own: paths of sockets in {usual} would be too long, and "
        f"{_SHORT} cannot be written to; what it left in {usual} is still there"
    )


def _shared(usual: str, stated: Mapping[str, str]) -> dict[str, str]:
    """Variable -> where what starts share would lie with `usual` as temporary directory, unless it is set.

    Sources: torch/_inductor/runtime/cache_dir_utils.py (Triton's kernels of torch.compile are within it), CuTe DSL's
    cutlass/base_dsl/cache_helpers.py, flash_attn/cute/cache_utils.py. Triton alone, FlashInfer, DeepGEMM and SGLang
    have theirs in the home folder. Ray looks there for a cluster that runs (_common/utils.py).
    """
    environ = {**os.environ, **stated}
    user = _user(environ)
    own = Path(usual) if user is None else Path(usual, user)
    torch = "uid_" + str(os.getuid()) if user is None else re.sub(r'[\\/:*?"<>|]', "_", user)
    every = {
        "TORCHINDUCTOR_CACHE_DIR": Path(usual, f"torchinductor_{torch}"),
        "CUTE_DSL_CACHE_DIR": own / "cutlass_python_cache",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": own / "flash_attention_cute_dsl_cache",
        "RAY_TMPDIR": Path(usual),
    }
    return {name: str(path) for name, path in every.items() if name not in environ}


def _user(environ: Mapping[str, str]) -> str | None:
    """As `getpass.getuser` in the engine will say; None: it has no name."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if environ.get(name):
            return environ[name]
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return None


@contextmanager
def made(folder: str | None, mark: str) -> Iterator[None]:
    """The folder for the time of the block, held by this process; None: none. OSError: it cannot be made.

    It stays where a process of the server does, for the next start to remove: what that process uses is in it, and the
    note of what it has in shared memory.
    """
    if folder is None:
        yield
        return
    path = Path(folder)
    path.mkdir(mode=0o700)
    lock = hold(path)
    try:
        (path / _MARK_FILE).write_text(f"{mark}\n{os.uname().nodename}\n", "utf-8")
        yield
    finally:
        if not _used(mark):
            remove(path)
        os.close(lock)


def note(folder: Path, shared: str) -> None:
    """Keeps in it what its server has in shared memory."""
    with suppress(OSError):
        (folder / f"{_SHARED_FILE}.new").write_text(shared, "utf-8")
        (folder / f"{_SHARED_FILE}.new").replace(folder / _SHARED_FILE)


def remove(folder: Path) -> str | None:
    """Removes it with all that is in it, and what its server left in shared memory; why it is still there, or None.

    To be called when no process of the server is left. Links in it are not followed.
    """
    with suppress(OSError, ValueError):
        shared_memory.remove(_read(folder / _SHARED_FILE))
    why: list[str] = []
    for _ in range(_TRIES):
        why.clear()
        try:
            shutil.rmtree(folder, onerror=lambda function, path, found: why.append(f"{found[1]}"))
        except RecursionError:
            why.append("folders in it lie too deep in one another; rm -r removes them")
        if not os.path.lexists(folder):
            return None
        time.sleep(_WAIT_S)  # a process that ends may still have written
    return f"{folder}: {why[0] if why else 'it came back'}"


def remove_unused(folder: Path) -> None:
    """Removes that of a server whose supervisor was killed; while a process of it goes on, the next start is to."""
    mark, _ = _marked(folder)
    if not (mark and _used(mark)):
        remove(folder)


def left_over() -> tuple[Path, ...]:
    """Folders of servers whose supervisor and processes are gone, in the places where this user's would be."""
    return tuple(folder for root in _roots() for folder, _ in folders_of_this_user(root, _NAME) if _is_left(folder))


def sweep() -> tuple[Path, ...]:
    """Removes what is left over, with what those servers left in shared memory. Returns what could not be removed."""
    return tuple(folder for folder in left_over() if remove(folder) is not None)


def in_words(folders: tuple[Path, ...]) -> str:
    """One sentence."""
    whose = "folders of servers" if len(folders) > 1 else "folder of a server"
    named = ", ".join(map(str, folders[:_MOST_NAMED]))
    more = f" and {len(folders) - _MOST_NAMED} more" if len(folders) > _MOST_NAMED else ""
    return (
        f"temporary {whose} whose run was killed: {named}{more}; the next start removes what is left there "
        "and in shared memory, or: specbench doctor --clean"
    )


def _roots() -> Iterator[Path]:
    with suppress(OSError):
        yield from dict.fromkeys((Path(tempfile.gettempdir()), Path(_SHORT)))


def _is_left(folder: Path) -> bool:
    """Where there are no locks, or no processes to be seen, or on another host, nobody can say: it is let alone."""
    if is_held(folder) is not False:
        return False
    mark, host = _marked(folder)
    return bool(mark and processes.table()) and host == os.uname().nodename and not _used(mark)


def _marked(folder: Path) -> tuple[str, str]:
    """The mark of its server and the host; empty: not written, or not whole."""
    with suppress(OSError, ValueError):
        mark, host = _read(folder / _MARK_FILE).splitlines()
        return mark, host
    return "", ""


def _used(mark: str) -> bool:
    """Whether a process of that server can be seen."""
    return any(processes.carries(pid, mark) for pid in processes.table())


def _read(file: Path) -> str:
    """A file of ours in a folder that an engine writes to: what is none is not waited for. OSError, ValueError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{file}: no file")
        return os.read(descriptor, _MOST_BYTES).decode("utf-8")
    finally:
        os.close(descriptor)
