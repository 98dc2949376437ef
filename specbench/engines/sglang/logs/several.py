"""The logs of one server's ranks or nodes as one timeline.

In: what the pass over each file found. Out: a `Found`: the messages of all, in the order of their times, numbered
through, with the file and physical line of each number. A message without a time has that of the one before it in its
file, so that a traceback stays together. The order in which files are given does not matter.

The non-obvious thing: a process started by hand prints no rank, and two files with the same one would be read as one
rank that sized its pools twice. Where two files tell of the same rank's pools, the files name the ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .batches import Batches
from .formats import VersionRange
from .message import Message, message_of
from .reading import Raw
from .scan import Hit, rank_and_time
from .server_args import arguments_of

#: Messages of a process that sizes pools: one process of a server prints them, in one file.
_SIZING = (b"Load weight", b"Mamba Cache is", b"KV Cache is", b"Memory pool end", b"max_total_num_tokens=")
_READY = b"The server is fired up"
_RANK_IN_NAME = re.compile(r"(?:rank|tp|worker|gpu|device)[-_.]?(\d{1,5})(?!\d)", re.IGNORECASE)
#: Arguments in which the nodes of one server differ.
OWN_ARGUMENTS = frozenset(
    ("node_rank", "host", "port", "nccl_port", "base_gpu_id", "random_seed", "dist_init_addr", "log_requests")
)
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is to be understood: of one file, or of several put together."""

    messages: Iterable[Message]
    arguments: Hit | None
    batches: Batches
    starts: int
    lines: int
    version: str | None
    beginning: bytes
    places: Mapping[int, tuple[str | None, int]] = field(default_factory=dict)  # see `contract.ServerLog`
    assumptions: tuple[str, ...] = ()
    two_servers: str = ""  # see `contract.ServerLog`


def alone(raw: Raw, places: Mapping[int, tuple[str | None, int]] | None = None) -> Found:
    """One file: its physical lines are its numbers, where `places` does not tell others."""
    return Found(
        messages=map(message_of, raw.start.hits),
        arguments=raw.start.arguments,
        batches=raw.start.batches.result(),
        starts=raw.starts,
        lines=raw.lines,
        version=raw.version,
        beginning=raw.beginning,
        places=places or {},
        assumptions=tuple(_of_starts(raw, places or {})),
    )


def together(raws: Mapping[str, Raw]) -> Found:
    """Files of one server, by name."""
    if len(raws) == 1:
        return alone(next(iter(raws.values())))
    files = sorted((_File(name, raw) for name, raw in raws.items()), key=_File.order)
    starts = (f"{file.name}: {said}" for file in files for said in _of_starts(file.raw))
    said = [*_name_ranks(files), *_doubts(files), *starts]
    timeline = sorted(
        (time, index, line) for index, file in enumerate(files) for line, time in file.times()
    )  # a file's times never go back, so its lines keep their order
    numbers = {(index, line): number for number, (_, index, line) in enumerate(timeline, start=1)}
    for index, file in enumerate(files):
        file.numbers = {line: numbers[index, line] for line, _ in file.times()}
    first = next((file for file in files if file.arguments is not None), files[0])
    arguments = first.arguments
    return Found(
        messages=sorted((message for file in files for message in file.messages()), key=lambda message: message.line),
        arguments=None if arguments is None else arguments._replace(line=first.numbers[arguments.line]),
        batches=_batches(files),
        starts=max(file.raw.starts for file in files),
        lines=sum(file.raw.lines for file in files),
        version=next((file.raw.version for file in files if file.raw.version), None),
        beginning=b"\n".join(file.raw.beginning for file in files),
        places={number: (files[index].name, line) for (index, line), number in numbers.items()},
        assumptions=tuple(said),
        two_servers=_two_servers(files),
    )


def _of_starts(raw: Raw, places: Mapping[int, tuple[str | None, int]] = MappingProxyType({})) -> Iterator[str]:
    """Which start of a file counts, when it holds several; sentences."""

    def line(hit: Hit) -> str:
        return f"line {places.get(hit.line, (None, hit.line))[1]:,}"

    chosen, earlier = raw.start.arguments, raw.start.earlier
    begins = "the first line" if chosen is None else line(chosen)
    if raw.several:
        left = "" if raw.later is None else f"; the last, from {line(raw.later)}, led to nothing and is left out"
        yield f"the log has {raw.starts:,} server_args lines, of several starts: the one from {begins} counts{left}"
    if chosen is None or earlier is None:
        return
    if names := _differing(arguments_of(earlier) or {}, arguments_of(chosen) or {}, OWN_ARGUMENTS - {"port"}):
        yield (
            f"{line(earlier)} has other server arguments than {line(chosen)} ({names}): the latter count; "
            "if two servers wrote this log, give the lines of one alone"
        )


class _File:
    def __init__(self, name: str, raw: Raw) -> None:
        self.name = name
        self.raw = raw
        self.arguments = raw.start.arguments
        self.told = dict(arguments_of(raw.start.arguments) or {})
        self.batches = raw.start.batches.result()
        self.renamed: dict[str, str] = {}  # rank as printed -> rank
        self.numbers: dict[int, int] = {}  # physical line -> number
        self._times = _never_back(self._said_times())

    def order(self) -> tuple[int, list[tuple[int, str]]]:
        """Node 0 first, then by name, 2 before 10."""
        node = self.told.get("node_rank")
        parts = [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d{1,9})", self.name)]
        return node if isinstance(node, int) else 0, parts

    def ranks(self) -> set[str]:
        """Whose pools the file tells of."""
        return {rank_and_time(hit.bracket)[0] for hit in self.raw.start.hits if hit.raw.startswith(_SIZING)}

    def times(self) -> Sequence[tuple[int, str]]:
        """(physical line, time) of everything that was kept."""
        return self._times

    def messages(self) -> Iterator[Message]:
        for message in map(message_of, self.raw.start.hits):
            rank = self.renamed.get(message.rank, message.rank)
            yield replace(message, line=self.numbers[message.line], rank=rank)

    def table(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """A table of batch lines under the numbers and ranks of the whole."""
        return {
            **columns,
            "line": [self.numbers[line] for line in columns["line"]],
            "rank": [self.renamed.get(rank, rank) for rank in columns["rank"]],
        }

    def _said_times(self) -> dict[int, str | None]:
        said: dict[int, str | None] = {line: None for line, _ in self.batches.unread}
        said |= {hit.line: rank_and_time(hit.bracket)[1] for hit in self.raw.start.hits}
        if self.arguments is not None:
            said[self.arguments.line] = rank_and_time(self.arguments.bracket)[1]
        for table in (self.batches.decode, self.batches.prefill):
            said |= dict(zip(table["line"], table["time"], strict=True))
        for line in (self.batches.first_line, self.batches.last_line):
            if line is not None:
                said.setdefault(line, None)
        return said


def _never_back(said: Mapping[int, str | None]) -> list[tuple[int, str]]:
    now = next((time for _, time in sorted(said.items()) if time), None) or ""
    times = []
    for line in sorted(said):
        now = max(now, (said[line] or "").replace("T", " "))
        times.append((line, now))
    return times


def _name_ranks(files: Sequence[_File]) -> list[str]:
    """Give names to ranks that several files tell of. Out: what was assumed."""
    tellers: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        for rank in file.ranks():
            tellers[rank].append(file)
    said = []
    for rank, several in sorted(tellers.items()):
        if len(several) < 2:
            continue
        names = [_RANK_IN_NAME.search(file.name) for file in several]
        numbers = [int(found[1]) for found in names if found]
        by_number = not rank and len(set(numbers)) == len(several) and not {f"TP{n}" for n in numbers} & tellers.keys()
        for place, file in enumerate(several):
            file.renamed[rank] = f"TP{numbers[place]}" if by_number else " ".join(filter(None, (file.name, rank)))
        listed = ", ".join(file.name for file in several)
        which = f"rank {rank!r}" if rank else "lines without a rank"
        said.append(
            f"{listed}: each has pools of {which}, taken as "
            + (f"ranks {', '.join(f'TP{n}' for n in numbers)} (by the names)" if by_number else "one rank per file")
        )
    return said


def _doubts(files: Sequence[_File]) -> Iterator[str]:
    """What speaks against one server."""
    ready = [file.name for file in files if any(hit.raw.startswith(_READY) for hit in file.raw.start.hits)]
    if len(ready) > 1:
        yield f"{', '.join(ready)}: each became ready; read as one server (give one alone if they are several)"
    first = next((file for file in files if file.told), None)
    for file in files:
        if first is None or file is first or not file.told:
            continue
        if names := _differing(first.told, file.told):
            yield f"{file.name}: other server arguments than {first.name} ({names}); those of {first.name} count"


def _two_servers(files: Sequence[_File]) -> str:
    """What shows that two files are of two servers, or of two starts of one: two nodes of one have two numbers."""
    nodes: dict[object, _File] = {}
    for file in files:
        if not file.told:
            continue
        other = nodes.setdefault(file.told.get("node_rank") or 0, file)
        if names := _differing(other.told, file.told):
            return f"{other.name}, {file.name}: of two servers, or of two starts: their arguments differ ({names})"
    return ""


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], own: frozenset[str] = OWN_ARGUMENTS) -> str:
    """Names of arguments that both have and in which they differ; some of them."""
    names = sorted({name for name in one.keys() & other.keys() if one[name] != other[name]} - own)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _batches(files: Sequence[_File]) -> Batches:
    versions: list[VersionRange] = [version for file in files for version in file.batches.versions]
    firsts = [file.numbers[line] for file in files if (line := file.batches.first_line) is not None]
    lasts = [file.numbers[line] for file in files if (line := file.batches.last_line) is not None]
    return Batches(
        decode=_rows(file.table(file.batches.decode) for file in files),
        prefill=_rows(file.table(file.batches.prefill) for file in files),
        lines={file.numbers[line]: text for file in files for line, text in file.batches.lines.items()},
        unread=sorted((file.numbers[line], text) for file in files for line, text in file.batches.unread),
        first_line=min(firsts, default=None),
        last_line=max(lasts, default=None),
        versions=versions,
        counts={kind: sum(file.batches.counts[kind] for file in files) for kind in ("decode", "prefill", "unread")},
    )


def _rows(tables: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Tables one under the other, in the order of their numbers."""
    joined: dict[str, list[Any]] = defaultdict(list)
    for table in tables:
        for name, column in table.items():
            joined[name].extend(column)
    order = sorted(range(len(joined["line"])), key=joined["line"].__getitem__)
    return {name: [column[at] for at in order] for name, column in joined.items()}
