"""Where in a long log the start of the server lies that is running: found by two markers, without reading the lines.

In: an open file and how much of it is looked at. Out: offsets, or None when nothing says that it became ready. The
non-obvious thing: what lies behind the ready line is traffic, gigabytes of it; a file that is appended to holds several
starts, and the last one that became ready is the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_PIECE_BYTES = 1 << 20
_ARGUMENTS, _READY = b"] server_args=", b"The server is fired up and ready to roll!"
#: Longer than either.
_OVERLAP_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStart:
    """Offsets in bytes."""

    arguments: int | None  # the line with the server's arguments; None: the log does not have it
    ready_end: int  # behind the line that says that it is ready


def last_start(log: BinaryIO, size: int) -> LastStart | None:
    """The last start within the first `size` bytes that became ready."""
    arguments: int | None = None
    ready: int | None = None  # of the start that is being read
    found: tuple[int | None, int] | None = None
    position, kept = 0, b""
    log.seek(0)
    while position < size and (piece := log.read(min(_PIECE_BYTES, size - position))):
        text = kept + piece
        begins = position - len(kept)
        for place, marker in sorted([*_places(text, _ARGUMENTS), *_places(text, _READY)]):
            if place + len(marker) <= len(kept):
                continue  # seen with the piece before
            at = begins + place
            if marker == _READY:
                ready, found = (at, (arguments, at)) if ready is None else (ready, found)
            elif arguments is None or ready is not None:  # several nodes print theirs at one start
                arguments, ready = at, None
        position += len(piece)
        kept = text[-_OVERLAP_BYTES:]
    if found is None:
        return None
    begin = None if found[0] is None else _line_start(log, found[0])
    return LastStart(arguments=begin, ready_end=_line_end(log, found[1], size))


def _places(text: bytes, marker: bytes) -> Iterator[tuple[int, bytes]]:
    place = text.find(marker)
    while place >= 0:
        yield place, marker
        place = text.find(marker, place + len(marker))


def _line_start(log: BinaryIO, at: int) -> int:
    """Of the line in which `at` lies; one that goes back for long begins at its marker."""
    begin = max(0, at - 4096)
    log.seek(begin)
    newline = log.read(at - begin).rfind(b"\n")
    return begin + newline + 1 if newline >= 0 else (0 if begin == 0 else at)


def _line_end(log: BinaryIO, at: int, size: int) -> int:
    log.seek(at)
    return min(size, at + len(log.readline(_PIECE_BYTES)))
