"""Decode and prefill lines as tables over time: they are nearly all of a long log, so this is the reader's fast path.

In: cleaned blocks. Out: columns (see `contract.ServerLog`), and the lines that look like batch lines and are none.
A table holds at most `LIMIT` rows: then every other row is dropped, later every fourth, … The number of lines stays
exact, and the rows with the highest running_requests, queued_requests and usages are always kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from ....logtext import Block
from .formats import VersionRange
from .scan import rank_and_time
from .shapes import Shape, shape_of

LIMIT = 1 << 14
UNREAD_LIMIT = 200
_MOST_SHAPES = 16
_MOST_ABRIDGED = 80  # shapes of a table, those of abridged lines included

#: What stands where a batch line begins; other lines speak of batches, too.
_LOOKALIKE = re.compile(rb"(?:\] |\A[ \t>]{0,40})(?:Decode|Prefill) batch[,. ]")

_DECODE_COLUMNS = (
    "line", "time", "rank", "running_requests", "tokens", "token_usage", "state_slots_used", "state_usage",
    "accept_length", "accept_rate", "throughput", "queued_requests", "graph",
    "retracted_requests",
)  # fmt: skip
_PREFILL_COLUMNS = (
    "line", "time", "rank", "new_requests", "new_tokens", "cached_tokens", "token_usage", "state_usage",
    "running_requests", "queued_requests", "throughput",
)  # fmt: skip
_COUNTS = frozenset(
    (
        *("running_requests", "tokens", "state_slots_used", "queued_requests", "new_requests", "new_tokens"),
        *("cached_tokens", "retracted_requests"),
    )
)
_BEYOND_SENSE = 1e15
_PEAKS = ("running_requests", "queued_requests", "token_usage", "state_usage")

_Match = re.Match[bytes]


class _Known(dict[bytes | None, Any]):
    """Text -> value. Equal values are shared (a long log repeats few); text that is no figure is None."""

    def __init__(self, convert: Callable[[bytes], Any]) -> None:
        super().__init__({None: None})
        self._convert = convert

    def __missing__(self, text: bytes) -> Any:
        try:
            value = self._convert(text)
        except ValueError:
            value = None
        if len(self) < 50_000:
            self[text] = value
        return value


class _KnownOf(dict[str, _Known]):
    """Column -> its values. Most starts of a long log serve nothing."""

    def __missing__(self, column: str) -> _Known:
        self[column] = known = _Known(_converter(column))
        return known


def _converter(column: str) -> Callable[[bytes], Any]:
    if column in _COUNTS:
        return lambda text: int(text[:18])
    return (lambda text: text == b"True") if column == "graph" else _finite


def _finite(text: bytes) -> float:
    """ValueError for nan and inf, which a server prints when it divides by no time, and for what no server reaches."""
    value = float(text)
    if not abs(value) < _BEYOND_SENSE:
        raise ValueError(text)
    return value


@dataclass(slots=True)
class _Part:
    """The rows of one shape."""

    shape: Shape
    seen: int = 0
    numbers: list[int] = field(default_factory=list)
    matches: list[_Match] = field(default_factory=list)

    def cells(self, column: str) -> list[bytes | None]:
        if column not in self.shape.columns:
            return [None] * len(self.matches)
        group = self.shape.columns.index(column) + 1
        return [match[group] for match in self.matches]


class Table:
    """Rows of one kind of line, thinned when there are many."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.seen = 0  # lines, dropped ones included
        self.first_line: int | None = None
        self.last_line: int | None = None
        self.shapes = 0
        self._columns = columns
        self._stride = 1
        self._parts: dict[int, _Part] = {}  # by the shape's id
        self._peaks: dict[str, tuple[float, int, _Match, Shape]] = {}
        self._known = _KnownOf()

    def add(self, shape: Shape, numbers: list[int], matches: list[_Match]) -> None:
        """Rows of a block, all of one shape: line numbers, and the matches of its pattern."""
        part = self._parts.setdefault(id(shape), _Part(shape))
        self.shapes = len(self._parts)
        if self._stride > 1:
            self._note_peaks(_Part(shape, 0, numbers, matches))
        self.first_line = min(numbers[0], self.first_line or numbers[0])
        self.last_line = max(numbers[-1], self.last_line or 0)
        first = -part.seen % self._stride  # a shape's rows are counted; multiples of the stride are kept
        part.seen += len(numbers)
        self.seen += len(numbers)
        part.numbers.extend(numbers[first :: self._stride])
        part.matches.extend(matches[first :: self._stride])
        while sum(len(part.numbers) for part in self._parts.values()) > LIMIT:
            for part in self._parts.values():
                if self._stride == 1:
                    self._note_peaks(part)
                part.numbers, part.matches = part.numbers[::2], part.matches[::2]
            self._stride *= 2

    def _note_peaks(self, part: _Part) -> None:
        """Remember the row with the highest value of each figure whose peaks matter."""
        names = [name for name in _PEAKS if name in part.shape.columns]
        groups = [part.shape.columns.index(name) + 1 for name in names]
        if not groups:
            return
        first = groups[0]  # asked for twice, so that one group gives a tuple, too
        different = {match.group(first, *groups) for match in part.matches}
        for place, (name, group) in enumerate(zip(names, groups, strict=True), start=1):
            known = self._known[name]
            highest = max(-1.0 if (value := known[cells[place]]) is None else value for cells in different)
            if highest > self._peaks.get(name, (-1.0,))[0]:
                at = next(at for at, match in enumerate(part.matches) if known[match[group]] == highest)
                self._peaks[name] = (highest, part.numbers[at], part.matches[at], part.shape)

    def _shown(self) -> list[_Part]:
        """What the table shows: the kept rows, and those with a peak."""
        shown = [part for part in self._parts.values() if part.numbers]
        have = {number for part in shown for number in part.numbers} if self._peaks else set()
        for _, number, match, shape in self._peaks.values():
            if number not in have:
                have.add(number)
                shown.append(_Part(shape, 1, [number], [match]))
        return shown

    def columns(self) -> dict[str, list[Any]]:
        """Equally long lists by column name, in the log's order."""
        parts = self._shown()
        numbers = [number for part in parts for number in part.numbers]
        table: dict[str, list[Any]] = {"line": numbers}
        brackets = [cell or b"" for part in parts for cell in part.cells("bracket")]
        places = [rank_and_time(bracket.decode("utf-8", "replace")) for bracket in brackets]
        shared: dict[str, str] = {}
        table["time"] = [time for _, time in places]
        table["rank"] = [shared.setdefault(rank, rank) for rank, _ in places]
        for name in self._columns[3:]:
            known = self._known[name]
            table[name] = [value for part in parts for value in map(known.__getitem__, part.cells(name))]
        if len(parts) < 2:
            return table
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        return {name: [column[at] for at in order] for name, column in table.items()}

    def raw_lines(self) -> dict[int, bytes]:
        """Line number -> line, of the rows that the table shows."""
        return {
            number: match.string
            for part in self._shown()
            for number, match in zip(part.numbers, part.matches, strict=True)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What the batch lines of one start say."""

    decode: dict[str, list[Any]]
    prefill: dict[str, list[Any]]
    lines: Mapping[int, bytes]  # number -> line, of all rows
    unread: Sequence[tuple[int, bytes]]
    first_line: int | None  # from there on the server serves
    last_line: int | None
    versions: Sequence[VersionRange]
    counts: Mapping[str, int]  # exact: decode, prefill, unread


class BatchReader:
    """Both tables, filled block by block."""

    def __init__(self) -> None:
        self.decode = Table(_DECODE_COLUMNS)
        self.prefill = Table(_PREFILL_COLUMNS)
        self.unread: list[tuple[int, bytes]] = []  # line number, raw line
        self.unread_seen = 0
        self.versions: list[VersionRange] = []
        self._shapes: list[Shape] = []
        self._usual: Shape | None = None  # of most lines in the block before

    def result(self) -> Batches:
        tables = (self.decode, self.prefill)
        return Batches(
            decode=self.decode.columns(),
            prefill=self.prefill.columns(),
            lines=self.prefill.raw_lines() | self.decode.raw_lines(),
            unread=self.unread,
            first_line=min((table.first_line for table in tables if table.first_line), default=None),
            last_line=max((table.last_line for table in tables if table.last_line), default=None),
            versions=self.versions,
            counts={"decode": self.decode.seen, "prefill": self.prefill.seen, "unread": self.unread_seen},
        )

    def read(self, block: Block) -> Block:
        """Take the batch lines that begin before the limit of a cleaned block; return it with those lines emptied."""
        text = block.text
        lines = text[: block.limit].split(b"\n")
        rows: dict[int, tuple[Shape, list[int], list[_Match]]] = {}
        if self._usual is not None:  # nearly all lines, without a step of Python for each
            usual = list(map(self._usual.pattern.search, lines))
            numbers = list(compress(range(block.lines_before, block.lines_before + len(lines)), usual))
            rows[id(self._usual)] = (self._usual, numbers, [match for match in usual if match])
            lines = [b"" if match else line for match, line in zip(usual, lines, strict=True)]
        for index, line in enumerate(lines):
            if b" batch" not in line:
                continue
            found = self._other(line, block.lines_before + index)
            if found is not None:
                match, shape = found
                _, numbers, matches = rows.setdefault(id(shape), (shape, [], []))
                numbers.append(block.lines_before + index)
                matches.append(match)
                lines[index] = b""
        for shape, numbers, matches in rows.values():
            if numbers:
                (self.decode if shape.is_decode else self.prefill).add(shape, numbers, matches)
        self._usual = max(rows.values(), key=lambda row: len(row[1]), default=(self._usual,))[0]
        emptied = b"\n".join(lines)
        return Block(emptied + text[block.limit :], block.lines_before, len(emptied))

    def _other(self, line: bytes, number: int) -> tuple[_Match, Shape] | None:
        """A batch line of another shape than the one before it: a known one, or a new one to learn."""
        for shape in self._shapes:
            if match := shape.pattern.search(line):
                return match, shape
        found = shape_of(line)
        table = self.decode if found is None or found.is_decode else self.prefill
        match = found.pattern.search(line) if found else None
        if found and found.whole and match and len(self._shapes) < _MOST_SHAPES:
            if not any(shape.is_decode == found.is_decode for shape in self._shapes):
                self.versions.append(_version_of(line))
            self._shapes.append(found)
        elif not _LOOKALIKE.search(line[:65536]):
            return None
        else:
            self.unread_seen += 1
            if len(self.unread) < UNREAD_LIMIT:
                self.unread.append((number, line))
            if not found or not match or table.shapes >= _MOST_ABRIDGED:
                return None
        return match, found


_THROUGHPUT = re.compile(
    rb"input throughput \(token/s\): [^,\n]{1,24}(?P<graph>, \w{1,8} graph: )?(?P<end>, ?(?:\r|\Z))?"
)


def _version_of(line: bytes) -> VersionRange:
    """What a batch line's wording says about the version: punctuation, and fields that came later."""
    if b" batch. #" in line:
        return None, "0.5.5"  # older than every version that was examined
    if b"#replay-token" in line:
        return "0.5.21", None
    if b"cap len: " in line or b"#optimistic-req" in line:
        return "0.5.16", None
    if b"#pending-token" in line:
        return "0.5.11", None
    if (found := _THROUGHPUT.search(line)) is not None:
        if found["graph"] is not None:  # 0.5.9 has the graph after it, 0.5.10 before it
            return "0.5.9", "0.5.9"
        return (None, "0.5.8") if found["end"] is not None else ("0.5.10", "0.5.10")
    if re.search(rb"#queue-req: \d{1,9}, ?\Z", line):
        return None, "0.5.8"
    return ("0.5.10", None) if re.search(rb"#queue-req: \d{1,9}\Z", line) else (None, None)
