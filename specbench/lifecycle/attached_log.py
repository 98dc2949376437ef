"""The log of a server that runs for longer than we look: its start, and what comes while we are there.

In: `engine.attach_log`, looked at twice. Out: those two parts as a file of the record, without keys, and notes on what
was left out. ConfigError (two lines) when there is no such file. The non-obvious thing: the file may be of any size and
grow meanwhile, and its name may be a pipe's; memory and time are bounded whatever it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..engines.sglang.logs.last_start import last_start
from ..errors import ConfigError
from ..paths import resolve
from ..records.redaction import Redaction
from ..units import MIB

#: Of a longer log only so much is searched for the start: some seconds.
_SEARCHED_BYTES = 2048 * MIB
#: Of each part that is copied; a record keeps less (`records.size`).
_COPIED_BYTES = 64 * MIB
_PIECE_BYTES = MIB


class AttachedLog:
    """Opened before the workload, written into the record after it."""

    def __init__(self, given: str) -> None:
        self._file = resolve(given, kind="engine.attach_log")
        try:
            with _regular(self._file) as log:
                self._seen = os.fstat(log.fileno())
                self._start = last_start(log, min(self._seen.st_size, _SEARCHED_BYTES))
        except OSError as error:
            raise ConfigError(
                f"engine.attach_log: {given!r:.200} cannot be read: {error.strerror or error}.\n"
                "Name the file into which the attached server writes its output, or leave the key out."
            ) from None

    def write(self, target: Path, redaction: Redaction, notes: list[str]) -> None:
        """The start up to the ready line, and what was added since. What lies between is the traffic of others."""
        target.touch()
        try:
            with _regular(self._file) as log, target.open("wb") as out:
                for begin, end in self._parts(log, notes):
                    for piece in _lines(log, begin, end):
                        out.write(redaction.data(piece))
        except OSError as error:
            notes.append(f"the log of the attached server could not be read again: {error.strerror or error}")

    def _parts(self, log: BinaryIO, notes: list[str]) -> list[tuple[int, int]]:
        """(begin, end) of what is recorded."""
        now = os.fstat(log.fileno())
        size, before = now.st_size, self._seen.st_size
        if size < before or now.st_ino != self._seen.st_ino:
            notes.append("the log of the attached server was replaced meanwhile: recorded is what is in it now")
            return _bounded(0, size, notes)
        if self._start is None:
            searched = "" if before <= _SEARCHED_BYTES else f" within its first {_SEARCHED_BYTES // MIB:,} MiB"
            notes.append(f"the log of the attached server does not say that it is ready{searched}: recorded whole")
            return _bounded(0, size, notes)
        if before > _SEARCHED_BYTES:
            notes.append(
                f"only the first {_SEARCHED_BYTES // MIB:,} MiB of the attached server's log were searched for its "
                "start: of a later one nothing is known"
            )
        arguments, ready_end = self._start.arguments, self._start.ready_end
        begin = 0 if ready_end <= _COPIED_BYTES else arguments or 0
        left_out = _newlines(log, ready_end, min(before, _SEARCHED_BYTES))
        if left_out > 0:
            notes.append(f"of the attached server's log {left_out:,} lines from before this run are left out")
        return [*_bounded(begin, ready_end, notes), *_bounded(before, size, notes)]


@contextmanager
def _regular(file: Path) -> Iterator[BinaryIO]:
    """Open for reading. OSError: it is no regular file, whose reading may wait for ever or never end."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as log:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "it is no regular file")
        yield log


def _bounded(begin: int, end: int, notes: list[str]) -> list[tuple[int, int]]:
    """Of too long a part its beginning and its end."""
    if end - begin <= _COPIED_BYTES:
        return [(begin, end)]
    half = _COPIED_BYTES // 2
    notes.append(f"{(end - begin - _COPIED_BYTES) / 1e6:,.0f} MB of the attached server's log are not in the record")
    return [(begin, begin + half), (end - half, end)]


def _lines(log: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    """Whole lines in pieces, so that no key is cut in two; of an endless line the beginning."""
    log.seek(begin)
    while (left := end - log.tell()) > 0:
        piece = log.read(min(_PIECE_BYTES, left))
        if not piece:  # it shrinks just now
            return
        left = end - log.tell()
        piece += log.readline(min(_PIECE_BYTES, left)) if left > 0 and not piece.endswith(b"\n") else b""
        yield piece
        while not piece.endswith(b"\n") and (left := end - log.tell()) > 0:
            piece = log.readline(min(_PIECE_BYTES, left))
            if not piece:
                return


def _newlines(log: BinaryIO, begin: int, end: int) -> int:
    log.seek(begin)
    count = 0
    while (left := end - log.tell()) > 0 and (piece := log.read(min(_PIECE_BYTES, left))):
        count += piece.count(b"\n")
    return count
