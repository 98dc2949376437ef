"""Where in a block the lines stand that concern us. One pass in C per kind of line beginning, no Python per line.

A message begins after its `[time ranks] ` bracket, wherever that stands in the physical line (progress bars and
launcher prefixes come before it), or at the beginning of a line when the log has no brackets (print statements,
tracebacks, excerpts pasted without prefix). Out: hits, with the raw text from the message on and some lines after it,
for wrapped lines and for exceptions of several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ....logtext import Block, as_text
from . import formats
from .partial import FRAGMENTS

#: Beginnings of lines that look like ours: what begins so and fits no form is reported as unread.
LOOKALIKES = ("KV Cache ", "Mamba Cache ", "Load weight ", "Memory pool ", "max_total_num_tokens=", "Capture ")

SERVER_ARGS = "server_args="
TRACEBACK = "Traceback (most recent call last):"
CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
FRAME = 'File "'
BENCHMARK_HEAD = "============ Serving Benchmark Result"
BENCHMARK_JSON = '{"task": '

#: How a client prints the error it was told: the JSON itself, an event of a stream, or its text alone.
TOLD = (
    *('{"error"', '{"object":"error"', '{"object": "error"', 'data: {"error"', 'data: {"object":"error"'),
    *("The input (", "Requested token count exceeds", "Input length (", "The request queue is full."),
)
#: A request that was turned away: uvicorn's own line, which SGLang gives its time stamp.
ACCESS = rb"INFO:     [\w.:\[\]-]{1,60} - \"POST [^\"\n]{1,200} HTTP/[\d.]{1,4}\" [45]\d\d\b"

_BATCHES = ("Decode batch", "Prefill batch")
_BATCH_BYTES = (b"Decode batch", b"Prefill batch")

#: Beginnings that are no form: they open something that is read over several lines.
_OPENINGS = (SERVER_ARGS, TRACEBACK, BENCHMARK_HEAD, *CHAINED, *TOLD)
_HIT_AN_EXCEPTION = (
    "Scheduler hit an exception",
    "DataParallelController hit an exception",
    "DetokenizerManager hit an exception",
    "TokenizerManager hit an exception",
    "MultiTokenizerRouter hit an exception",
    "MultiDetokenizerRouter hit an exception",
    "GrpcRequestManager hit an exception",  # 0.5.8 and earlier
    "TpModelWorkerClient hit an exception",  # before 0.5.6, whose worker was a thread of its own
)

_FAILS = tuple(words.encode() for words in (TRACEBACK, *_HIT_AN_EXCEPTION))

#: What launchers, containers and log shippers put before a line.
_PREFIX = (
    rb"(?:"
    rb"\([A-Za-z_][\w.:-]{0,80} pid=\d{1,10}(?:, ip=[\w.:]{1,60})?\) |"  # Ray
    rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?|"  # Kubernetes (CRI), docker -t
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./-]{1,64}(?:\[\d{1,10}\])?: |"  # journald
    rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]{1,120}:|"  # Python's logging without configuration
    rb"\[(?:rank|default)?\d{1,5}\]: ?|"  # torchrun, torch's exception hook
    rb"\[pod/[^\]\n]{1,200}\] |"  # kubectl logs --prefix
    rb"\{\"log\":\"|"  # docker's json-file
    rb"\d{1,5}: |"  # srun --label
    rb"[A-Za-z0-9][\w.-]{0,80} *\| "  # docker compose
    rb"){0,3}"
)

_ERROR_NAME = (
    rb"(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt)|Exception)(?::|\r?\n|\Z)"
)
#: The interpreter's own words when it cannot begin with SGLang: `python -m` for a module that is not there.
PYTHON_M = r"(?:Error while finding module specification for|No module named) '?sglang\b"
_PROGRAM_SAYS = rb"[\w./-]{1,200}: (?:error: |" + PYTHON_M.encode() + rb")"

_BRACKET = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)?(?P<rank>(?: ?[A-Z][A-Z_]{0,15}\d{1,5}){0,8})\Z"
)

#: Requests that were logged with their prompt: whatever follows on the line is somebody's text.
_QUOTED = re.compile(rb"Receive: |Finish: |obj=|text=|'text'|\"text\"|prompt")

_NCCL_WARNS = b" NCCL WARN "

_NEWLINE = ord("\n")

#: Bytes kept from a message on: a bracketed line with what it wraps to, an exception with its text, the arguments.

_AFTER_BRACKET, _AFTER_FRAME, _AFTER_BARE, _AFTER_ARGS = 1024, 512, 8192, 1 << 18


class Hit(NamedTuple):
    """A place of the log where a message that concerns us begins."""

    line: int
    within: bytes | None  # what stands between the brackets; None: the line has none
    raw: bytes  # from the message on, with the lines that follow

    @property
    def bracket(self) -> str | None:
        """`within` as text: of a long log few are read."""
        return None if self.within is None else as_text(self.within)


#: Offset of a message -> whether it stands behind a bracket (else at the beginning of a line).
Places = dict[int, bool]


def places(block: Block, *, batches: bool) -> Places | None:
    """Where messages that concern us begin in a cleaned block.

    `batches`: None as soon as there is a line about a batch: those are `batches.py`'s, which must have them first.
    """
    text, stop = block.text, block.limit
    bracketed, bare, after_return = _patterns(batches)
    found: Places = {}
    for match in bracketed.finditer(text, 0, stop):
        offset = match.start() + 2
        if batches and text.startswith(_BATCH_BYTES, offset):
            return None
        found[offset] = True
    for pattern in (bare, after_return) if block.may_return else (bare,):
        for match in pattern.finditer(text, 0, stop):
            offset = match.end()
            if batches and text.startswith(_BATCH_BYTES, offset):
                return None
            found.setdefault(offset, False)
    # A search through all of a long log for what stands beside an error, or in a start, would be felt.
    if not block.lines_before or any(text.startswith(_FAILS, offset) for offset in found):
        for offset in _nccl_warnings(text, stop):
            found.setdefault(offset, False)
    return found


def _nccl_warnings(text: bytes, stop: int) -> Iterator[int]:
    """In `host:pid:thread [device] file:line NCCL WARN …`: NCCL has a prefix of its own."""
    at = text.find(_NCCL_WARNS, 0, stop)
    while at >= 0:
        yield at + 1
        at = text.find(_NCCL_WARNS, at + 1, stop)


def hits(block: Block, found: Places) -> Iterator[Hit]:
    """The messages that begin at the places found in a cleaned block, in order."""
    text = block.text
    has_arguments = False
    quotes = _Quotes(text)
    for offset in sorted(found):
        within: bytes | None = None
        if found[offset]:
            opening = text.rfind(b"[", max(0, offset - 98), offset - 2)
            if opening < 0 or (text[opening - 1] != _NEWLINE and quotes.hold(opening)):
                continue
            within = text[opening + 1 : offset - 2]
        keep = _AFTER_BRACKET
        if within is None:
            keep = _AFTER_FRAME if text.startswith(b"File ", offset) else _AFTER_BARE
        elif not has_arguments and text.startswith(b"server_args=", offset):  # a block has one that counts
            keep, has_arguments = _AFTER_ARGS, True
        yield Hit(block.line_of(offset), within, text[offset : offset + keep])


class _Quotes:
    """Whether a bracket within a line stands in somebody's prompt. Asked from left to right, looks at no byte twice."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._looked_to = 0
        self._quoting = False

    def hold(self, opening: int) -> bool:
        line_start = self._text.rfind(b"\n", self._looked_to, opening) + 1
        if line_start:
            self._looked_to, self._quoting = line_start, False
        if not self._quoting and self._looked_to < opening:
            self._quoting = _QUOTED.search(self._text, self._looked_to, opening) is not None
        self._looked_to = max(self._looked_to, opening)
        return self._quoting


def rank_and_time(bracket: str | None) -> tuple[str, str | None]:
    """'2026-05-20 10:11:12 DP1 TP3' -> ('DP1 TP3', '2026-05-20 10:11:12'). ("", None) without a bracket."""
    found = _BRACKET.match(bracket.rpartition("[")[2]) if bracket else None
    if found is None:
        return "", None
    time = found["time"]
    return found["rank"].strip(), time.replace(",", ".") if time else None


@lru_cache(maxsize=2)
def _patterns(batches: bool) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Message after a bracket; message at a line's beginning; the same after a carriage return (progress bars)."""
    more = _BATCHES if batches else ()
    every = (
        _alternatives((*formats.heads(), *LOOKALIKES, *FRAGMENTS, *_OPENINGS, *_HIT_AN_EXCEPTION, *more))
        + rb"|"
        + ACCESS
    )
    at_line_start = (
        _PREFIX + rb"[ \t>]{0,40}(?=" + every + rb"|" + re.escape(FRAME).encode() + rb"|"
        rb"(?=[A-Za-z_])" + _ERROR_NAME + rb"|" + _PROGRAM_SAYS + rb"|" + re.escape(BENCHMARK_JSON).encode() + rb")"
    )
    return (
        re.compile(rb"\](?= (?:" + every + rb"))"),
        re.compile(rb"\n(?!\[2)(?!\n)" + at_line_start),
        re.compile(rb"\r" + at_line_start),
    )


def _alternatives(heads: Iterable[str]) -> bytes:
    """One pattern for all heads, grouped by first letter: most lines are turned down by their first letter."""
    groups: dict[str, list[str]] = {}
    every = set(heads)
    for head in sorted(every):
        if not any(other != head and head.startswith(other) for other in every):
            groups.setdefault(head[0], []).append(head[1:])
    parts = (
        re.escape(first) + "(?:" + "|".join(re.escape(rest) for rest in rests) + ")" for first, rests in groups.items()
    )
    return ("(?:" + "|".join(parts) + ")").encode()
