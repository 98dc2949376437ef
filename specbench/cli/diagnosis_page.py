"""`specbench diagnose --html`: the page beside the answer in the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..errors import ConfigError
from ..paths import without_end
from ..workbook.scratch import scratch
from .output import make_room


@contextmanager
def kept(sources: Sequence[Path], *, until_written: Path | None) -> Iterator[list[Path]]:
    """The sources. A page reads them again: until it is written, what came from standard input is a file.

    ConfigError: there can be no such page, or standard input has no end.
    """
    if until_written is not None:
        make_room("--html", until_written)
    given = any(str(path) == "-" for path in sources)
    if given and _is_endless(sys.stdin):
        raise ConfigError("standard input: a device.\nGive a file, or a pipe.")
    if until_written is None or not given:
        yield list(sources)
        return
    with scratch() as folder:
        file = folder / "standard input"
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [file if str(path) == "-" else path for path in sources]


def _is_endless(stream: TextIO) -> bool:
    try:
        return without_end(stream.fileno())
    except (OSError, ValueError):  # of memory
        return False
