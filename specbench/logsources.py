"""A log that several sources wrote: the services of docker compose, pods of Kubernetes, processes of Ray, hosts.

In: a log whose wrapping names them (see `logwraps`). Out: its lines with who wrote each; those of some sources alone,
as a log of their own whose lines know their numbers in the whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from .logtext import wrapped
from .logwraps import named

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


class Share:
    """The lines of some sources of a log, in order. To be iterated over once; `places` is whole after that."""

    def __init__(self, log: Again, names: Collection[str]) -> None:
        self._log, self._names = log, frozenset(names)
        self._numbers = array("Q")

    def __iter__(self) -> Iterator[bytes]:
        for number, (name, line) in enumerate(lines_by_source(self._log), start=1):
            if name in self._names:
                self._numbers.append(number)
                yield line

    @property
    def places(self) -> Mapping[int, tuple[str | None, int]]:
        """Number of a line of the share -> (no file of its own, number in the whole log)."""
        return _Places(self._numbers)


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
