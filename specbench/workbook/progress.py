"""Progress across processes. A run notebook executes in a kernel; whoever started it reads how far it is from a file.

Out of the kernel: `reporter()` appends one JSON line per change to the file that SPECBENCH_PROGRESS names, or, when a
person runs the notebook by hand, keeps one line of output up to date. Into the batch: `latest(path)`, and
`notices(path)` for what is to be said once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SPECBENCH_PROGRESS"

#: phase, units done, units in all (None: not known).
Report = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str
    done: int
    total: int | None

    def __str__(self) -> str:
        return self.phase if self.total is None else f"{self.phase} {self.done}/{self.total}"


def reporter() -> Report:
    """Where a run reports its phases: the file that the batch watches, else the notebook's own output."""
    target = os.environ.get(VARIABLE)
    return to_file(Path(target)) if target else _to_display()


def to_file(path: Path) -> Report:
    """Appends to `path`. A file that cannot be written must not stop a run that took minutes to start."""

    def report(phase: str, done: int = 0, total: int | None = None) -> None:
        line = json.dumps({"phase": phase, "done": done, "total": total})
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            return

    return report


def latest(path: Path) -> Progress | None:
    """The last complete report; None when there is none yet."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            data = json.loads(line)
            return Progress(str(data["phase"]), int(data["done"]), data["total"])
        except (ValueError, KeyError, TypeError):
            continue  # being written
    return None


def notice(text: str) -> None:
    """Something to say once and to keep in sight: to whoever watches, else as output of the notebook."""
    target = os.environ.get(VARIABLE)
    if not target:
        from IPython.display import display

        display({"text/plain": f"WARNING: {text}"}, raw=True)  # type: ignore[no-untyped-call]
        return
    with suppress(OSError), Path(target).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"notice": text}) + "\n")


def notices(path: Path) -> tuple[str, ...]:
    """What was to be said so far."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # being written, or progress
            found.append(str(json.loads(line)["notice"]))
    return tuple(found)


def _to_display() -> Report:
    from IPython.display import display

    begun = time.monotonic()
    handle = display(  # type: ignore[no-untyped-call]
        {"text/plain": "starting"}, raw=True, display_id=True
    )

    def report(phase: str, done: int = 0, total: int | None = None) -> None:
        if handle is not None:
            text = f"{time.monotonic() - begun:.0f} s: {Progress(phase, done, total)}"
            handle.update({"text/plain": text}, raw=True)

    return report
