"""The one pass over a log: what concerns us is found and set aside as raw text, to be understood afterwards.

A log can hold several starts of the server (a container that restarts, a file that is appended to). The last start
that led to anything counts, the others are counted only. A start begins at a line `server_args=…` when the start
before it had got as far as loading: several nodes print their arguments before any of them loads.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from ....logtext import Block, Source, blocks
from .batches import BatchReader
from .scan import SERVER_ARGS, Hit, Places, hits, places

#: Hits that are kept per beginning; of more only the number is known (think of a log of nothing but pool lines).
MOST_ALIKE = 4096
_ALIKE_BYTES = 10

_ARGUMENTS_NAME = SERVER_ARGS.encode()
_ARGUMENTS = b"] " + _ARGUMENTS_NAME
_BEGIN = re.compile(rb"[A-Za-z{]")
#: A block of more parts has many starts: all but the last two are superseded unread. So are those two, once more
#: blocks with many starts follow.
_FEW_PARTS = 3
_MOST_WAITING = 8
#: Begins with what is looked for, which is quick; what stands before it is looked at afterwards.
_NODE = re.compile(rb"node_rank(?<!\wnode_rank)['\"]?[=:] ?(\d{1,6})\b")
#: Beginnings of messages: a start that got beyond its arguments; one that became ready or failed.
_LOADED = (b"Load weight", b"Mamba Cache", b"KV Cache", b"Memory pool", b"max_total_num_tokens=", b"Capture ")
_OUTCOME = re.compile(rb"The server is fired up|\w{1,40} hit an exception|Traceback|[\w.]{1,100}(?:Error|Exception)\b")
#: Printed while arguments are checked, that is before the line with the arguments.
_BEFORE_ARGUMENTS = (b"Overlap scheduler", b"Disabling overlap", b"Max running requests", b"Mamba extra_buffer")

#: An exact version, when somebody wrote it down: pip's line, an image tag, a metadata folder.
_VERSION = re.compile(rb"(?:sglang|SGLang)(?:==|:v|[ -]v?| version:? ?v?)(\d+\.\d+\.\d+(?:\.post\d+)?)(?![\w.]*\d)")
_VERSION_WITHIN = 1 << 16
_BEGINNING = 1 << 16


@dataclass(slots=True)
class Start:
    """One start of the server, raw."""

    hits: list[Hit] = field(default_factory=list)
    batches: BatchReader = field(default_factory=BatchReader)
    seen: Counter[bytes] = field(default_factory=Counter)  # by the first bytes of the message
    arguments: Hit | None = None
    earlier: Hit | None = None  # arguments of the same node before them: an attempt that led to nothing, or two servers
    has_loaded: bool = False  # it got beyond its arguments
    has_outcome: bool = False  # ready, failed, or serving
    news: int = 0  # index of the first hit after the last sign of loading or of an outcome

    def take(self, part: Block, known: Places | None = None) -> None:
        """Everything of a cleaned block that concerns us. `known`: its places, where they were looked for already."""
        found = places(part, batches=True) if known is None else known
        if found is None:
            part = self.batches.read(part)
            found = places(part, batches=False) or {}
        for hit in hits(part, found):
            raw = hit.raw
            if raw.startswith(_ARGUMENTS_NAME):
                self._take_arguments(hit)
                continue
            beginning = raw[:_ALIKE_BYTES]
            self.seen[beginning] += 1
            if self.seen[beginning] > MOST_ALIKE:
                continue
            self.hits.append(hit)
            if raw.startswith(_LOADED):
                self.has_loaded, self.news = True, len(self.hits)
            elif _OUTCOME.match(raw):
                self.has_loaded = self.has_outcome = True
                self.news = len(self.hits)
        self.has_outcome = self.has_outcome or self.batches.decode.seen > 0 or self.batches.prefill.seen > 0

    def _take_arguments(self, hit: Hit) -> None:
        """Of several nodes those of the first; of one node the last."""
        if self.arguments is None:
            self.arguments = hit
        elif _node(self.arguments) == _node(hit):
            self.arguments, self.earlier = hit, self.arguments

    def successor(self) -> Start:
        """The start after this one, with what it said before its arguments."""
        early = [hit for hit in self.hits[self.news :] if hit.raw.startswith(_BEFORE_ARGUMENTS)]
        return Start(hits=early)


def _node(arguments: Hit) -> bytes:
    found = _NODE.search(arguments.raw)
    return found[1] if found else b"0"


@dataclass(frozen=True, slots=True)
class Raw:
    """What the pass found: the start that counts, how many there were, the lines of the source."""

    start: Start
    starts: int
    lines: int
    version: str | None
    beginning: bytes  # at most 64 KiB
    several: bool  # one start at least came after another that had got as far as loading
    later: Hit | None  # arguments of the last start, when it led to nothing and one before it counts
    previous: Start | None = None  # the start before it, as far as it got beyond its arguments


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a block, from one line with the server's arguments to the next."""

    block: Block
    start: int
    stop: int
    begins: bool  # with such a line


@dataclass(slots=True)
class _Starts:
    """The starts so far, as far as they matter."""

    current: Start = field(default_factory=Start)
    told: Start | None = None  # the last start before it that had an outcome
    before: Start | None = None  # the last start before it that had got as far as loading
    before_told: Start | None = None  # the same, of `told`
    number: int = 0
    several: bool = False

    def pass_over(self, part: _Part) -> None:
        """Of a start that is superseded only its beginning counts."""
        if part.begins and self.current.has_loaded:
            if self.current.has_outcome:
                self.told, self.before_told = self.current, self.before
            self.before, self.current, self.several = self.current, self.current.successor(), True
        self.number += part.begins

    def read(self, part: _Part) -> None:
        self.pass_over(part)
        self.current.take(part.block.cleaned(part.start, part.stop))


def collect(source: Source) -> Raw:
    """Read the whole source once, in flat memory."""
    starts = _Starts()
    waiting: list[_Part] = []  # of blocks with many starts, in a row: the last ones, until it is known that they count
    looks_first = False  # for starts: the block before had one
    last, is_first = Block(b"", 0, 0), True
    version: str | None = None
    beginning = b""
    for block in blocks(source):
        if is_first:
            found = _VERSION.search(block.text, 0, _VERSION_WITHIN)
            version = found[1].decode() if found else None
            beginning = block.text[1 : 1 + _BEGINNING]
        last, is_first = block, False
        if not looks_first:
            whole = block.cleaned(0, block.limit)
            known = _places_without_start(whole)
            if known is not None:
                starts.current.take(whole, known)
                continue
        parts = _parts(block)
        looks_first = len(parts) > 1
        if len(parts) > _FEW_PARTS:
            late = (*waiting, *parts[-2:])
            for part in (*late[:-_MOST_WAITING], *parts[:-2]):
                starts.pass_over(part)
            waiting = list(late[-_MOST_WAITING:])
        else:
            for part in (*waiting, *parts):
                starts.read(part)
            waiting = []
    for part in waiting:
        starts.read(part)
    lines = last.line_of(len(last.text)) - last.text.endswith(b"\n")
    current, told = starts.current, starts.told
    chosen = current if told is None or current.has_outcome else told
    previous = starts.before if chosen is current else starts.before_told
    later = None if chosen is current else current.arguments
    return Raw(chosen, max(starts.number, 1), lines, version, beginning, starts.several, later, previous)


def _places_without_start(block: Block) -> Places | None:
    """The places of a cleaned block in which no start begins; None: one may. To look for starts beforehand, as `_parts`
    does, is worth while only where there are some: of many, most are not read."""
    found = places(block, batches=True)
    if found is None or any(block.text.startswith(_ARGUMENTS_NAME, offset) for offset in found):
        return None
    return found


def _parts(block: Block) -> list[_Part]:
    """The block cut before the lines with the server's arguments."""
    cuts = [0]
    looked_to = 0
    while (found := block.text.find(_ARGUMENTS, looked_to, block.limit)) >= 0:  # a pattern would stop at every bracket
        newline = block.text.rfind(b"\n", looked_to, found)
        looked_to = found + len(_ARGUMENTS)
        if not _BEGIN.match(block.text, looked_to):
            continue
        if newline > cuts[-1] or (newline == 0 and len(cuts) == 1):
            cuts.append(newline)
    ends = (*cuts[1:], block.limit)
    return [_Part(block, cut, end, begins=number > 0) for number, (cut, end) in enumerate(zip(cuts, ends, strict=True))]
