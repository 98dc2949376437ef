"""Where runs and their records lie: folders that are finished, unfinished, or new."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from ..errors import RecordError
from ..host import processes
from .files import one_line
from .folder_lock import is_held

RECORD = "record"
PARTIAL = ".partial-"
_SHOWN = 300  # characters of a path in a message


def has_record(folder: Path) -> bool:
    """Whether a folder is a finished record, or that of a run which left one."""
    return any((place / "status.json").is_file() for place in (folder, folder / RECORD))


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was killed before its record was complete."""

    folder: Path  # the partial folder
    pid: int  # of the process that wrote it
    alive: bool  # that process still runs: the run may still finish


def unfinished(run_folder: str | Path) -> tuple[Unfinished, ...]:
    """The partial records in a run folder."""
    found = []
    for folder in sorted(Path(run_folder).glob(f"{RECORD}{PARTIAL}*")):
        text = folder.name.rpartition("-")[2]
        if text.isdecimal():
            held = is_held(folder)
            found.append(Unfinished(folder, int(text), processes.exists(int(text)) if held is None else held))
    return tuple(found)


def new_run_folder(root: str | Path, name: str) -> Path:
    """Creates and returns `<root>/<name>`, or `<name>.2`, … when it exists. Two processes never get the same.

    RecordError when nothing can be written there.
    """
    parent = Path(root)
    make_folder(parent)
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}.{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_write(folder, error) from None
        return folder
    raise AssertionError("unreachable")


def make_folder(folder: Path) -> None:
    """Creates a folder for runs, and those above it. RecordError (two lines) when that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a character that no path can have
        raise _cannot_write(folder, error) from None


def _cannot_write(folder: Path, error: Exception) -> RecordError:
    path = str(folder).encode("utf-8", "backslashreplace").decode()
    shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
    reason = (error.strerror if isinstance(error, OSError) else None) or one_line(error)
    return RecordError(
        f"{shown}: runs cannot be written there: {reason}.\n"
        "Name another folder (--out, or SPECBENCH_RUNS for all runs)."
    )


def why_no_record(asked: Path) -> str:
    """Two lines for a place without a finished record."""
    if not asked.exists():
        return f"record: {str(asked)!r} does not exist.\nGive a run folder (runs/…), or a folder with a status.json."
    leftovers = unfinished(asked)
    if leftovers:
        state = "is still being written" if leftovers[0].alive else "is unfinished: its process was killed"
        return f"{leftovers[0].folder}: this record {state}.\nThere is no status.json; run the configuration again."
    return f"{asked}: no record here (no status.json).\nGive a run folder (runs/…), or a record folder."
