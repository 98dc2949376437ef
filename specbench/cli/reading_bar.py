"""A bar on the terminal while long logs are read: how far, how fast, how long still. Goes when they are read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..logtext import watched
from ..paths import exists

if TYPE_CHECKING:
    from rich.console import Console

#: Bytes. Less is read in about the time in which a bar is drawn.
LONG = 64 << 20


def wanted(sources: Sequence[Path], *, json_output: bool) -> bool:
    """Whether there is somebody to see it: a terminal, into which nobody pastes, and no program reads the answer."""
    seen = sys.stderr.isatty() and (sys.stdout.isatty() or not json_output) and not pasted(sources)
    total = _total(sources)
    return seen and (total is None or total >= LONG)


def pasted(sources: Sequence[Path]) -> bool:
    """Whether somebody types or pastes the log."""
    return Path("-") in sources and sys.stdin.isatty()


@contextlib.contextmanager
def reading_bar(sources: Sequence[Path], console: Console | None = None) -> Iterator[None]:
    """While this lasts what is read of logs moves the bar. Of standard input the end is not known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=_total(sources))
        with watched(lambda size: bar.advance(task, size)):
            yield


def _total(sources: Sequence[Path]) -> int | None:
    """Bytes of all files, packed ones as they are; None: a stream. A record is short."""
    if Path("-") in sources:
        return None
    return sum(path.stat().st_size for path in sources if exists(path) and path.is_file())
