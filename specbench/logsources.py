"""A log that several sources wrote: the services of docker compose, pods of Kubernetes, processes of Ray, hosts.

In: a log whose wrapping names them (see `logwraps`). Out: its lines with who wrote each; those of some sources alone,
as a log of their own whose lines know their numbers in the whole.
"""

from __future__ import annotations

import heapq
import tempfile
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import ConfigError
from .logtext import wrapped
from .logwraps import named

#: Of each source so much is kept in memory.
_KEPT_BYTES = 1 << 20

#: What can be read more than once.
Again = Path | BinaryIO


def from_the_beginning(log: Again) -> Again:
    if not isinstance(log, Path):
        log.seek(0)
    return log


def tells_sources(log: Again) -> bool:
    """Whether anything around the first lines names who wrote them. Reads no further."""
    return any(wrap.name is not None for wrap in wrapped(from_the_beginning(log))[0])


def has_several_sources(log: Again) -> bool:
    """Whether what is around the lines names two who wrote them. Reads on until it does."""
    wraps, chunks = wrapped(from_the_beginning(log))
    tell = [place for place, wrap in enumerate(wraps) if wrap.names is not None]
    if not tell:
        return False
    found: list[set[str]] = [set() for _ in wraps]
    for chunk in chunks:
        for place, wrap in enumerate(wraps[: tell[-1] + 1]):
            if wrap.names is not None:
                found[place].update(wrap.names(chunk))
                if len(found[place]) > 1:
                    return True
            chunk = chunk if place == tell[-1] else wrap.take_off(chunk)
    return False


def lines_by_source(log: Again) -> Iterator[tuple[str | None, bytes]]:
    """Every line, bare and clean, with who wrote it; None: it does not tell.

    Of a line longer than `logtext.LONGEST_LINE` the beginning.
    """
    wraps, chunks = wrapped(from_the_beginning(log))
    cut = False
    for chunk in chunks:
        lines = named(chunk, wraps)
        if cut:
            next(lines, None)
        cut = not chunk.endswith(b"\n")
        yield from lines


@contextmanager
def kept_aside() -> Iterator[None]:
    """ConfigError, in two lines, where a block cannot write to the temporary directory."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"TMPDIR: lines of a log that names its sources cannot be kept in {_directory()}: {error.strerror or error}"
            ".\nMake room for as much as the unpacked log, or set TMPDIR to a directory that has it."
        ) from None


def _directory() -> str:
    with suppress(OSError):
        return tempfile.gettempdir()
    return "the temporary directory"


class Sources:
    """The lines of a log by who wrote them, taken in one pass over it and read again without what stands around them.

    What is long waits in files without a name, together as large as the unpacked log, which are gone once it is closed.
    """

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        for written in self._written.values():
            written.close()

    def take(self, name: str, number: int, line: bytes) -> None:
        """The next line of a source, without its newline; `number`: in the whole log."""
        written = self._written.get(name)
        if written is None:
            written = self._written[name] = _Written()
        written.add(number, line)

    def share(self, names: Collection[str]) -> Share:
        return Share([written for name, written in self._written.items() if name in names])


class _Written:
    """What one source wrote."""

    def __init__(self) -> None:
        self.numbers = array("Q")
        self._file = tempfile.SpooledTemporaryFile(max_size=_KEPT_BYTES, prefix="specbench-")  # noqa: SIM115

    def add(self, number: int, line: bytes) -> None:
        self.numbers.append(number)
        with kept_aside():
            self._file.write(line + b"\n")

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        with kept_aside():
            self._file.seek(0)  # writes what is still in the buffer
        return zip(self.numbers, self._file, strict=True)

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is not needed any more
            self._file.close()


class Share:
    """The lines of some sources of a log, in the order of the whole."""

    def __init__(self, written: Sequence[_Written]) -> None:
        self._written = written

    def __iter__(self) -> Iterator[bytes]:
        every = heapq.merge(*(written.numbered() for written in self._written))  # no number is there twice
        return (line for _, line in every)

    @property
    def places(self) -> Mapping[int, tuple[str | None, int]]:
        """Number of a line of the share -> (no file of its own, number in the whole log)."""
        return _Places(array("Q", heapq.merge(*(written.numbers for written in self._written))))


class _Places(Mapping[int, tuple[str | None, int]]):
    def __init__(self, numbers: array[int]) -> None:
        self._numbers = numbers

    def __getitem__(self, number: int) -> tuple[str | None, int]:
        if not 1 <= number <= len(self._numbers):
            raise KeyError(number)
        return None, self._numbers[number - 1]

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, len(self._numbers) + 1))

    def __len__(self) -> int:
        return len(self._numbers)
