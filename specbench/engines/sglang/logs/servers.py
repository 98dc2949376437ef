"""Which servers wrote a log whose wrapping names its sources. In: such a log. Out: the sources of each server.

A source with its own server arguments is a server, or a node of one: nodes of one server have arguments that differ
only in what is a node's own, and a `node_rank` each. A source without them (its log begins later, or it is a worker of
Ray) belongs to the server in which nobody else speaks for its ranks; where there is no such server, or several, it is
one of its own. What only failed is a server when its traceback is of the engine's code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ....logsources import Again, Sources, has_several_sources, lines_by_source
from ....logtext import Pieces
from . import read, recognised
from .scan import Hit, rank_and_time
from .server_args import arguments_of
from .several import OWN_ARGUMENTS

#: More sources than this are workers of a cluster: the log is read as it is.
MOST_SOURCES = 64

_MARK = re.compile(
    rb"\[(?P<bracket>[^\]\[\n]{0,100})\] (?P<said>server_args=|Load weight (?:begin|end)|Mamba Cache is allocated|"
    rb"KV Cache is allocated|Memory pool end|max_total_num_tokens=|Decode batch|Prefill batch)|"
    rb"(?P<failed>Traceback \(most recent|\A[\w./-]{1,200}: error: )"
)
_ARGUMENTS_BYTES = 1 << 18
_MOST_WRAPS = 3  # lines that a container's runtime makes of a long one, beyond the first


@dataclass(slots=True)
class _Writer:
    """What one source says of itself."""

    name: str
    ranks: set[str] = field(default_factory=set)  # for which it speaks
    arguments: bytes = b""
    open_lines: int = 0  # that may still belong to the arguments
    failed: bool = False
    parsed: Mapping[str, Any] | None = None  # the arguments, once they were asked for

    def take(self, line: bytes) -> None:
        found = _MARK.search(line)
        if found is None:
            if self.open_lines:
                self.arguments += line[:_ARGUMENTS_BYTES]
                self.open_lines -= 1
            return
        self.open_lines = 0
        said = found["said"]
        if said == b"server_args=":
            self.arguments = line[found.start("said") :][:_ARGUMENTS_BYTES]
            self.open_lines = 0 if line.rstrip().endswith((b")", b"}")) else _MOST_WRAPS
        elif found["failed"]:
            self.failed = True
        else:
            self.ranks.add(rank_and_time(found["bracket"].decode("utf-8", "replace"))[0])

    @property
    def told(self) -> Mapping[str, Any]:
        """Its arguments, when all its lines were taken. Parsed once: every server is compared with every other."""
        if self.parsed is None:
            self.parsed = arguments_of(Hit(0, None, self.arguments)) or {}
        return self.parsed


@dataclass(slots=True)
class _Server:
    writers: list[_Writer]

    @property
    def told(self) -> Mapping[str, Any]:
        return self.writers[0].told

    @property
    def nodes(self) -> set[int | None]:
        return {_number(writer.told, "node_rank") for writer in self.writers}

    @property
    def size(self) -> int:
        """Nodes of which it consists."""
        return _number(self.told, "nnodes") or 1

    @property
    def is_whole(self) -> bool:
        return len(self.writers) >= self.size

    def speaks_beside(self, writer: _Writer) -> bool:
        """Whether the writer speaks for other ranks. Without a name a rank is all of a server."""
        mine = {rank for one in self.writers for rank in one.ranks}
        return not mine & writer.ranks and "" not in mine | writer.ranks

    def may_be_one_with(self, other: _Server, *, address: bool) -> bool:
        """Whether the other has nodes that are missing in this. `address`: and the same one at which they meet."""
        mine, its = self.told, other.told
        own = OWN_ARGUMENTS - {"dist_init_addr"} if address else OWN_ARGUMENTS
        shared = (mine.keys() | its.keys()) - own
        return (
            not (self.is_whole or other.is_whole or self.nodes & other.nodes)
            and len(self.writers) + len(other.writers) <= self.size
            and all(mine.get(name) == its.get(name) for name in shared)
        )


def _number(arguments: Mapping[str, Any], name: str) -> int | None:
    """None: it is not there, or no number; a log may say anything."""
    value = arguments.get(name)
    return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A log by the servers that wrote it."""

    servers: tuple[tuple[str, ...], ...] = ()  # the sources of each; empty: one server, or it does not name them
    sources: Sources | None = None  # their lines; None: no servers are told apart
    too_many: bool = False  # more sources than are told apart


@contextmanager
def told_apart(log: Again | Pieces) -> Iterator[Apart]:
    """Reads the log once, to its end where it names several sources. What can be read only once names none."""
    if isinstance(log, Pieces) or not has_several_sources(log):
        yield Apart()
        return
    with Sources() as sources:
        writers: dict[str, _Writer] = {}
        for number, (name, line) in enumerate(lines_by_source(log), start=1):
            if name is None:
                continue
            writer = writers.get(name)
            if writer is None:
                if len(writers) == MOST_SOURCES:
                    break
                writer = writers[name] = _Writer(name)
            writer.take(line)
            sources.take(name, number, line)
        else:
            yield Apart(servers=_by_server(writers, sources), sources=sources)
            return
    yield Apart(too_many=True)


def servers_in(log: Again) -> tuple[tuple[str, ...], ...]:
    """The sources of each server, in the order in which they begin. Empty: the log does not name its sources, or it has
    one server, whose log is the whole."""
    with told_apart(log) as found:
        return found.servers


def _by_server(writers: Mapping[str, _Writer], sources: Sources) -> tuple[tuple[str, ...], ...]:
    servers = _servers(list(writers.values()))
    servers += [_Server([writer]) for writer in _only_failed(sources, writers.values())]
    order = {name: place for place, name in enumerate(writers)}
    found = sorted(sorted(order[one.name] for one in server.writers) for server in servers)
    names = list(writers)
    return tuple(tuple(names[place] for place in one) for one in found) if len(found) > 1 else ()


def _servers(writers: Sequence[_Writer]) -> list[_Server]:
    found = [_Server([writer]) for writer in writers if writer.arguments]
    for address in (True, False):  # a node may call the first one by another name
        found = _put_together(found, address=address)
    for writer in writers:
        if writer.arguments or not writer.ranks:
            continue
        fitting = [server for server in found if server.speaks_beside(writer)]
        if len(fitting) == 1:
            fitting[0].writers.append(writer)
        else:
            found.append(_Server([writer]))
    return found


def _put_together(servers: Sequence[_Server], *, address: bool) -> list[_Server]:
    """Those that are nodes of one server as one."""
    found: list[_Server] = []
    for server in servers:
        one = next((one for one in found if one.may_be_one_with(server, address=address)), None)
        if one is None:
            found.append(server)
        else:
            one.writers += server.writers
    return found


def _only_failed(sources: Sources, writers: Iterable[_Writer]) -> Iterator[_Writer]:
    for writer in writers:
        silent = not writer.arguments and not writer.ranks
        if writer.failed and silent and recognised(read(sources.share({writer.name}))):
            yield writer
