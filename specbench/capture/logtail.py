"""When each line of a log was written, seen from outside: a thread that looks at the growing file.

In: a file that may not exist yet. Out: a `LogArrival` per line, and every new line to whoever asked, as it comes. An
engine's own stamps have a resolution of one second; these have that of the looks, stated with every line. While the
server starts, the thread looks every 2 to 10 ms, later ten times a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..records.types import LogArrival
from .background import Background
from .runclock import RunClock

#: Seconds between two looks while starting: at rest, and for `_STIR_S` after a line came. Later: `_SLOW_S`.
_REST_S, _QUICK_S, _STIR_S, _SLOW_S = 0.01, 0.002, 1.0, 0.1
#: Some 200 kB compressed. What is beyond has the engine's own stamps.
_MOST_LINES = 30_000
_PIECE_BYTES = 1 << 20
#: Of a line without end, such as a progress bar, this much is passed on.
_LONGEST = 1 << 16


class LogTail(Background):
    """Watches while its `with` block runs. `on_line` is called in the thread, with whole lines, and must not block."""

    def __init__(self, path: Path, clock: RunClock, on_line: Callable[[bytes, float], None] | None = None) -> None:
        """`on_line` gets a line (its newline included) and when it was seen."""
        super().__init__("log-tail")
        self._path, self._clock, self._on_line = path, clock, on_line
        self._arrivals: list[LogArrival] = []
        self._slow = False
        self._offset = 0  # of the first byte that is not part of a finished line
        self._rest = b""
        self._skipped = 0  # bytes of the unfinished line that are not kept in it
        self._number = 0
        self._stirred = 0.0
        self._replaced: str | None = None  # how the log stopped to be the file that was begun

    @property
    def arrivals(self) -> tuple[LogArrival, ...]:
        """In the order of the lines. Ask after the `with` block."""
        return tuple(self._arrivals)

    @property
    def words(self) -> str:
        """For the record: how it was looked at."""
        cut = "" if len(self._arrivals) < _MOST_LINES else f"; the first {_MOST_LINES:,} lines only"
        return f"looked at every 2 to 10 ms while starting, then every {1000 * _SLOW_S:.0f} ms{cut}"

    @property
    def replaced(self) -> str | None:
        """A sentence when the log did not stay whole, so that lines of it are missing; None: it did."""
        return self._replaced

    def started(self) -> None:
        """The server is ready: from now on a look now and then is enough."""
        self._slow = True

    def _run(self) -> None:
        file: BinaryIO | None = None
        looked_s = self._clock.seconds()
        try:
            while True:
                ending = self._stop.wait(self._pause_s())
                began_s = self._clock.seconds()
                file = file or self._open()
                if file is not None:
                    while piece := file.read(_PIECE_BYTES):
                        self._take(piece, looked_s)
                    self._check(file)
                looked_s = began_s
                if ending:
                    return
        except OSError:  # the record says how many lines were seen; the log itself is not touched by this
            return
        finally:
            if file is not None:
                file.close()

    def _pause_s(self) -> float:
        if self._slow:
            return _SLOW_S
        return _QUICK_S if time.monotonic() < self._stirred else _REST_S

    def _open(self) -> BinaryIO | None:
        try:
            return self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return None

    def _check(self, file: BinaryIO) -> None:
        """An engine only adds to its log; somebody else (logrotate, a `>`) may cut it or put another in its place."""
        if self._replaced is not None:
            return
        kept = os.fstat(file.fileno())
        if kept.st_size < file.tell():
            self._replaced = f"the engine's log was cut to {kept.st_size:,} bytes while it ran: lines of it are missing"
        elif not self._is_there(kept):
            self._replaced = "the engine's log was moved or replaced while it ran: lines of it are missing"

    def _is_there(self, kept: os.stat_result) -> bool:
        try:
            return os.path.samestat(kept, self._path.stat())
        except FileNotFoundError:
            return False

    def _take(self, piece: bytes, looked_s: float) -> None:
        """`looked_s`: when the look before this one began; nothing of `piece` was there then."""
        t_s = self._clock.seconds()
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole, self._rest = self._rest + line, b""
            self._number += 1
            if len(self._arrivals) < _MOST_LINES:
                within_s = round(t_s - looked_s, 4)
                self._arrivals.append(LogArrival(line=self._number, offset=self._offset, t_s=t_s, within_s=within_s))
            self._offset += self._skipped + len(whole) + 1
            self._skipped = 0
            if self._on_line is not None:
                self._on_line(whole + b"\n", t_s)
        self._rest += rest
        if len(self._rest) > _LONGEST:
            self._skipped += len(self._rest) - _LONGEST
            self._rest = self._rest[:_LONGEST]
        if lines:
            self._stirred = time.monotonic() + _STIR_S
