"""Text of a log as blocks of clean bytes: opening, decompressing, decoding, cleaning. No engine's wording here.

In: a path (plain, gzip or zstd; UTF-8, or UTF-16 as a Windows shell writes it), an open binary stream, or lines in
memory; what a container or a journal put around the lines is taken off (see `logwraps`).
Out: blocks of whole lines, and on demand the same without NUL bytes, colours and carriage returns before newlines.
Consecutive blocks overlap by some lines, so that whoever finds something near a block's end can look at what follows.
Memory stays flat: one block at a time, and a line longer than `LONGEST_LINE` is cut.
"""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from .logclean import as_text, clean, needs_cleaning
from .logwraps import SAMPLE_BYTES, Wrap, unwrapped, wraps_of

__all__ = [
    "CHUNK_BYTES",
    "LONGEST_LINE",
    "Block",
    "Pieces",
    "Source",
    "as_text",
    "blocks",
    "clean",
    "watched",
    "wrapped",
]

Source = Path | str | BinaryIO | Iterable[bytes | str]

CHUNK_BYTES = 1 << 18
LONGEST_LINE = 1 << 20
LOOKAHEAD_LINES = 48
_LOOKAHEAD_BYTES = 1 << 18
_AHEAD_BYTES = 1 << 14  # what is looked at beyond a part of a block: a message with the lines that it wraps to

_GZIP = b"\x1f\x8b\x08"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or one that is to be skipped (pzstd)


_SEEN: ContextVar[Callable[[int], None] | None] = ContextVar("_SEEN", default=None)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(slots=True)
class Block:
    """Some whole lines. `text` begins with the newline that ends the line before (at the file's start: one of ours)."""

    text: bytes
    lines_before: int  # newlines in the file before `text`
    limit: int  # what begins at or after this offset belongs to the next block
    _counted: tuple[int, int] = (0, 0)  # up to this offset, so many newlines: no byte is counted twice
    _clean: bool | None = None  # whether it needs no cleaning; None: not looked at
    _whole: tuple[Block, int] | None = None  # of a part as it stands there: the block, and where the part begins in it

    def line_of(self, offset: int) -> int:
        """The 1-based physical line on which the character at `offset` stands. Cheap when asked from left to right."""
        if self._whole is not None:
            block, start = self._whole
            return block.line_of(start + offset)
        start, newlines = self._counted if self._counted[0] <= offset else (0, 0)
        newlines += self.text.count(b"\n", start, offset)
        self._counted = (offset, newlines)
        return self.lines_before + newlines

    @property
    def may_return(self) -> bool:
        """Whether there is a carriage return in it."""
        return not self._clean and b"\r" in self.text

    def cleaned(self, start: int, stop: int) -> Block:
        """The part whose lines begin in [start, stop), cleaned, with some text after it to look ahead.

        `start` is 0 or the offset of a newline. Cleaning takes time, and much of a long log need not be looked at.
        """
        if self._clean is None:
            self._clean = not needs_cleaning(self.text)
        if self._clean and start == 0 and stop == self.limit:
            return self
        ahead = len(self.text) if stop == self.limit else stop + _AHEAD_BYTES
        before = self.line_of(start)
        if self._clean:
            return Block(self.text[start:ahead], before, stop - start, _whole=(self, start))
        part, rest = clean(self.text[start:stop]), clean(self.text[stop:ahead])
        return Block(part + rest, before, len(part))


def blocks(source: Source) -> Iterator[Block]:
    """The whole source, block by block. The last block's `limit` is its length. An empty source gives no block."""
    kept, lines_before = b"\n", 0
    for chunk in _bare(_decoded(_chunks(source, _SEEN.get()))):
        text = kept + chunk
        limit = _lookahead_start(text)
        if limit == 0:
            kept = text
            continue
        block = Block(text, lines_before, limit)
        yield block
        lines_before = block.line_of(limit)
        kept = text[limit:]
    if kept not in (b"\n", b""):
        yield Block(kept, lines_before, len(kept))


def wrapped(source: Source) -> tuple[tuple[Wrap, ...], Iterator[bytes]]:
    """What stands around every line of a source, and its clean, whole lines, chunk by chunk, still within it. Who
    watches is not told: it is read as blocks, too."""
    wraps, chunks = _layers(_decoded(_chunks(source, None)))
    return wraps, _whole_lines(chunks)


def _lookahead_start(text: bytes) -> int:
    """Offset of the newline before the lines that stay for the next block; 0 when all of them stay.

    Of a line without end everything is given, and the next block goes on in the middle of it.
    """
    start = text.rfind(b"\n")
    for _ in range(LOOKAHEAD_LINES):
        if len(text) - start > _LOOKAHEAD_BYTES:
            break
        before = text.rfind(b"\n", 0, start)
        if before <= 0:
            break
        start = before
    if start <= 0:
        return len(text) if len(text) > LONGEST_LINE else 0
    return start


def _chunks(source: Source, seen: Callable[[int], None] | None) -> Iterator[bytes]:
    if isinstance(source, (str, Path)):
        with Path(source).open("rb") as stream:
            yield from _unpacked(_read(stream, seen))
    elif hasattr(source, "read"):
        yield from _unpacked(_read(cast(_Readable, source), seen))
    else:
        yield from _joined(source)


@contextmanager
def watched(seen: Callable[[int], None]) -> Iterator[None]:
    """While this lasts `seen` is told of the bytes of each piece that is read of a file or a stream, still packed."""
    token = _SEEN.set(seen)
    try:
        yield
    finally:
        _SEEN.reset(token)


def _read(stream: _Readable, seen: Callable[[int], None] | None) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        if seen is not None:
            seen(len(chunk))
        yield chunk if isinstance(chunk, bytes) else str(chunk).encode("utf-8", "surrogatepass")


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """gzip and zstd (told by their first bytes) unpacked, piece by piece; everything else as it is.

    Of a file that was cut off or damaged everything up to there counts, which is why this is not `gzip.open`.
    """
    first = next(chunks, b"")
    while 0 < len(first) < 4 and (more := next(chunks, b"")):
        first += more
    if _ZSTD.match(first):
        yield from _unpacked_zstd(chain((first,), chunks))
    elif first[: len(_GZIP)] == _GZIP:
        yield from _unpacked_gzip(chain((first,), chunks))
    else:
        yield from chain((first,) if first else (), chunks)


def _unpacked_gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        packed = chunk
        while packed:
            try:
                text = unpack.decompress(packed, CHUNK_BYTES)
            except zlib.error:
                return
            if text:
                yield text
            packed = unpack.unconsumed_tail
            if unpack.eof:  # several members in a row: rotated logs put together
                packed, unpack = unpack.unused_data, zlib.decompressobj(wbits=31)
    if text := unpack.flush():
        yield text


def _unpacked_zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard  # most logs are not packed so

    reader = zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, Pieces(chunks)), read_across_frames=True)
    while True:
        try:
            text = reader.read1(CHUNK_BYTES)
        except zstandard.ZstdError:
            return
        if not text:
            return
        yield text


class Pieces(io.RawIOBase):
    """Chunks as something to read from."""

    def __init__(self, chunks: Iterator[bytes], first: bytes = b"") -> None:
        self._chunks = chunks
        self._left = first

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._left = next(self._chunks, b"")
        size = len(self._left) if size < 0 else size
        piece, self._left = self._left[:size], self._left[size:]
        return piece


def _bare(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Without what stands around every line, as the first lines tell; a log without such is given as it is."""
    wraps, chunks = _layers(chunks)
    if not wraps:
        yield from chunks
        return
    for lines in _whole_lines(chunks):
        yield unwrapped(lines, wraps)


def _layers(chunks: Iterator[bytes]) -> tuple[tuple[Wrap, ...], Iterator[bytes]]:
    """What stands around every line, as the first lines tell, and the chunks, none of which is used up."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= SAMPLE_BYTES:
            break
    sample = first[:SAMPLE_BYTES]
    wraps = wraps_of(clean(sample[: sample.rfind(b"\n") + 1] or sample))
    return wraps, chain((first,) if first else (), chunks)


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Clean, and cut at line ends but in a line that is too long."""
    kept = b""
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end and len(kept) < LONGEST_LINE:
            kept += chunk
            continue
        yield clean(kept + chunk[:end])
        kept = chunk[end:]
    if kept:
        yield clean(kept)


def _joined(lines: Iterable[bytes | str]) -> Iterator[bytes]:
    """Lines, with or without their newline, as chunks of a useful size."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else bytes(line)
        held.append(data if data.endswith(b"\n") else data + b"\n")
        size += len(held[-1])
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _decoded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 (told by its byte order mark) as UTF-8; everything else as it is, without the mark of UTF-8."""
    first = next(chunks, None)
    if first is None:
        return
    if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        yield decoder.decode(first).encode("utf-8", "surrogatepass")
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        return
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from chunks
