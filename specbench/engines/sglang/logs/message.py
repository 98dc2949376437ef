"""A hit as text: rank, time, the message, and the lines that may belong to it (wrapped by hand or by a terminal)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ....logtext import as_text
from .scan import Hit, rank_and_time

MOST_WRAPS = 5
_FOLLOWING = 48

#: A second message on the same physical line: two processes wrote at once.
_NEXT_MESSAGE = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
_DOCKER_TAIL = re.compile(r"\\n\",\"(?:stream|time)\".*\Z")
_STARTS_ANEW = re.compile(
    r"\s*(?:\Z|.{0,120}?\[(?:\d{4}-\d\d-\d\d|[A-Z_]+\d+[ \]])|KV Cache|Mamba Cache|Load weight|Memory pool|Capture |"
    r"max_total_num_tokens=|max_running_requests (?:is|was)|(?:Decode|Prefill) batch|Traceback|File \"|Capturing |"
    r"(?!nccl)[\w.]*(?:Error|Exception)(?::|\s*\Z)|Tree cache|Allocating )"
)


@dataclass(frozen=True, slots=True)
class Message:
    line: int
    rank: str
    time: str | None
    bracket: str | None  # what stands between the brackets before it; None: there are none
    text: str  # the message's own physical line
    rest: bytes  # the physical lines after it, as far as they were kept
    is_ended: bool  # by a newline; otherwise the log may have been cut amid a figure

    @property
    def bracketed(self) -> bool:
        return self.bracket is not None

    def shown(self, text: str) -> str:
        """A text of this message (itself, or read over several lines) with what the log has in front of it."""
        return f"[{self.bracket}] {text}" if self.bracket else text

    def following(self) -> tuple[str, ...]:
        """The lines after it, at most 48."""
        lines = self.rest.split(b"\n", _FOLLOWING)
        return tuple(as_text(line) for line in lines[:_FOLLOWING])

    def readings(self) -> Iterator[str]:
        """The message as one line; then with the next line joined to it, with the next two, …"""
        yield self.text
        parts = [self.text.rstrip()]
        for line in self.following()[:MOST_WRAPS]:
            if _STARTS_ANEW.match(line):
                return
            parts.append(line.strip())
            yield " ".join(parts)

    def paragraph(self) -> str:
        """The message with all lines up to an empty one or the next log line: an exception's whole text."""
        lines = [self.text]
        for line in self.following():
            if not line.strip() or line.startswith("[") or _NEXT_MESSAGE.search(line) or _STARTS_ANEW.match(line):
                break
            lines.append(line)
        return "\n".join(lines).strip()


def message_of(hit: Hit) -> Message:
    rank, time = rank_and_time(hit.bracket)
    own, newline, rest = hit.raw.partition(b"\n")
    text = as_text(own.partition(b"\r")[0])
    second = _NEXT_MESSAGE.search(text)
    if second:
        text = text[: second.start()]
    return Message(
        line=hit.line,
        rank=rank,
        time=time,
        bracket=hit.bracket,
        text=_DOCKER_TAIL.sub("", text),
        rest=rest,
        is_ended=bool(newline),
    )
