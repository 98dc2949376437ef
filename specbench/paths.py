"""Where things are, whatever the working directory is.

papermill runs a notebook in the caller's directory, JupyterLab and nbval in the notebook's own: relative paths are
therefore tried against the working directory first and against the workbook's root second.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import ConfigError
from .logclean import on_one_line

PACKAGE = Path(__file__).resolve().parent
DATA = PACKAGE / "data"
TEMPLATES = PACKAGE / "templates"
#: Environment variable: the folder for runs that name none, instead of `runs/` of the workbook. Checks set it, so that
#: executing the notebooks leaves nothing in the workbook.
RUNS = "SPECBENCH_RUNS"


def workbook_root(start: Path | None = None) -> Path:
    """The folder that holds `notebooks/` and `params/`: the nearest one above `start`, else the source checkout.

    Falls back to the working directory when specbench is installed away from any workbook.
    """
    origin = (start or Path.cwd()).resolve()
    for folder in (origin, *origin.parents, PACKAGE.parent):
        if (folder / "notebooks").is_dir() and (folder / "params").is_dir():
            return folder
    return origin


def runs_root() -> Path:
    """Where runs go that name no folder: what SPECBENCH_RUNS says, else `runs/` of the workbook."""
    asked = os.environ.get(RUNS)
    return expanded(Path(asked)).resolve() if asked else workbook_root() / "runs"


def resolve(path: str | Path, *, kind: str = "path") -> Path:
    """The existing file or folder that a user means by `path`. ConfigError (two lines) when there is none."""
    if not isinstance(path, (str, os.PathLike)):  # a notebook's parameter, from a file or a command line
        raise ConfigError(f"{kind}: got {reprlib.repr(path)}.\nExpected a path, as text.")
    asked = expanded(Path(path))
    candidates = [asked] if asked.is_absolute() else [Path.cwd() / asked, workbook_root() / asked]
    for candidate in candidates:
        if exists(candidate):
            # What /dev/stdin leads to has no path of its own when it is a pipe.
            found = candidate.resolve()
            found = found if exists(found) else candidate.absolute()
            _refuse_device(found, kind)
            return found
    tried = " and ".join(shortened(candidate.parent) for candidate in dict.fromkeys(candidates))
    raise ConfigError(f"{kind}: {shortened(path)!r} does not exist.\nLooked in {tried}.")


def write_whole(target: Path, data: bytes) -> None:
    """The file appears whole or not at all; what stood there stays when it cannot be written (OSError). What is there
    and is no file, and a link (/dev/stdout is one), is written into, not replaced."""
    if target.is_symlink() or (exists(target) and not target.is_file()):
        target.write_bytes(data)
        return
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_bytes(data)
        partial.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _refuse_device(found: Path, kind: str) -> None:
    """Also what cannot be opened at all: a socket, a terminal of nobody."""
    mode = found.stat().st_mode
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)):
        return
    try:
        with found.open("rb", buffering=0) as opened:
            if not without_end(opened.fileno()):
                return
    except OSError:
        pass
    raise ConfigError(f"{kind}: {shortened(found)!r} is a device or a socket.\nGive a file, or a pipe.")


def without_end(descriptor: int) -> bool:
    """Whether it is a device such as /dev/zero. A terminal and a pipe have an end; /dev/null is empty."""
    status = os.fstat(descriptor)
    device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    return device and not os.isatty(descriptor) and not os.path.samestat(status, Path(os.devnull).stat())


def short_names(files: Sequence[Path]) -> dict[Path, str]:
    """Each file by as little of its path's end as tells it from the others: rank0.log, or node0/server.log."""
    names = {}
    for file in files:
        others = [other for other in files if other != file]
        lengths = range(1, len(file.parts) + 1)
        own = (n for n in lengths if all(other.parts[-n:] != file.parts[-n:] for other in others))
        names[file] = on_one_line("/".join(file.parts[-next(own, len(file.parts)) :]))
    return names


def interpreter(python: str | None) -> str:
    """The interpreter that `engine.python` means: a name for PATH as it is, a path made absolute; None: this one.

    Links stay unread: the interpreter of a virtual environment is one, and is another where it leads to.
    """
    if python is None:
        return sys.executable
    asked = expanded(Path(python))
    if len(asked.parts) < 2 or asked.is_absolute():
        return str(asked)
    candidates = [Path.cwd() / asked, workbook_root() / asked]
    return str(next((path for path in candidates if exists(path)), candidates[0]))


def folder_or_name(model: str) -> str:
    """What a server is given for a model: a folder as an absolute path, a published name as it is."""
    asked = expanded(Path(model))
    folder = next((path for path in (asked, workbook_root() / asked) if exists(path) and path.is_dir()), None)
    return model if folder is None else str(folder.resolve())


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; False for a path that cannot be one (too long, a zero byte in it)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def shortened(path: str | Path, most: int = 200) -> str:
    """The path for a message: of one that is absurdly long, its beginning."""
    text = str(path)
    return text if len(text) <= most else f"{text[:most]}…"


def expanded(path: Path) -> Path:
    """The path with ~ and ~user written out, where there is such a user."""
    try:
        return path.expanduser()
    except RuntimeError:  # no such user: a folder may be called so
        return path
