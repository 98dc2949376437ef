"""Tracebacks of a log put together: one failure per chain of exceptions, with its cause, phase and rank.

Python prints the cause first and what was raised because of it later; the first exception that we know is the cause.
A traceback that somebody caught and logged, with an error we do not know, is a notice: the server goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...contract import Failure, Notice
from .failure_texts import BAD_ENVIRONMENT, OFTEN_CAUGHT
from .failures import UNCAUGHT, classify, phase_of, where
from .message import Message
from .scan import CHAINED, FRAME, PYTHON_M, TRACEBACK

_EXCEPTION = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Za-z_]\w{0,80}?)?(?:Error|Exception|Exit|Interrupt))(?::\s?|\Z)"
)
_ARGPARSE = re.compile(r"\S{1,200}: error: (?P<text>.+)")
_NO_ENGINE = re.compile(rf"\S{{1,200}}: (?P<text>{PYTHON_M}.*)")
_MODULE = re.compile(r"No module named '?(?P<name>[\w.]{1,120})")
#: What an incomplete or mixed-up installation raises.
_IMPORTS = ("ModuleNotFoundError", "ImportError")
_MOST_EXCEPTIONS = 20
#: Lines kept of a traceback; and of how many.
_MOST_LINES, _MOST_TRACEBACKS = 400, 20
_MOST_FRAMES = 200  # of one traceback, that are looked at
#: A line of code below its frame, with what is marked under it.
_CODE_LINES = 6
_ORDERLY = ("SystemExit", "KeyboardInterrupt", "CancelledError")


@dataclass(slots=True)
class _Chain:
    rank: str
    line: int
    text: str  # the line it begins with
    fatal: bool  # the process said that it ends because of it
    frames: list[str] = field(default_factory=list)
    outer: list[str] = field(default_factory=list)  # of the tracebacks that follow in its chain
    exceptions: list[tuple[int, str, str]] = field(default_factory=list)  # line, class, message
    chained: bool = False  # the next traceback belongs to it
    lines: list[str] = field(default_factory=list)  # as printed

    def keep(self, text: str) -> None:
        self.lines.extend(text.split("\n")[: _MOST_LINES - len(self.lines)])


class Tracebacks:
    """Fed with messages in order; `failures` and `notices` hold what came of them."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.survivable: set[int] = set()  # lines of failures that did not have to end the process
        self.notices: list[Notice] = []
        self.evidence: dict[int, str] = {}
        self._chain: _Chain | None = None

    def take(self, message: Message, progress: str) -> bool:
        """Whether the message is part of a traceback. `progress` is the phase that the log has reached."""
        text = message.text.lstrip(" \t>")
        if " hit an exception" in text[:60]:
            self._hit(text, message, progress)
        elif text.startswith(TRACEBACK):
            self._traceback(message, progress)
        elif text.startswith(CHAINED):
            if self._chain is not None:
                self._chain.chained = True
                self._chain.keep(text)
        elif text.startswith(FRAME):
            self._frame(text, message)
        elif found := _ARGPARSE.match(text):
            self._last_words(message, progress, "bad_arguments", "arguments", found["text"], {})
        elif found := _NO_ENGINE.match(text):
            said = found["text"]
            self._last_words(message, progress, BAD_ENVIRONMENT, progress, said, _module_of(said))
        elif not message.bracketed and _EXCEPTION.match(text):
            self._exception(text, message, progress)
        else:
            if message.bracketed:
                self.end(progress)
            return False
        return True

    def _hit(self, text: str, message: Message, progress: str) -> None:
        """ "Scheduler hit an exception: …": the process ends, and its traceback follows on this line or the next."""
        self.end(progress)
        self._chain = _Chain(message.rank, message.line, message.text, fatal=True)
        self.evidence[message.line] = message.shown(message.text)
        tail = text.partition(" hit an exception: ")[2]
        if tail.startswith(TRACEBACK):
            self._chain.keep(TRACEBACK)
        if tail and not tail.startswith("Traceback"):
            self._exception(tail, message, progress)

    def _traceback(self, message: Message, progress: str) -> None:
        if self._chain is None or not self._chain.chained:
            if self._chain is not None and not self._chain.exceptions and not self._chain.frames:
                return  # "… hit an exception:" and its traceback on the next line
            self.end(progress)
            self._chain = _Chain(message.rank, message.line, message.text, fatal=False)
        self._chain.chained = False
        self._chain.keep(TRACEBACK)

    def _frame(self, text: str, message: Message) -> None:
        if self._chain is None:
            return
        self._chain.keep("\n".join((f"  {text}", *_code(message))))
        frames = self._chain.outer if self._chain.exceptions else self._chain.frames
        if len(frames) < _MOST_FRAMES:
            frames.append(text)

    def _last_words(
        self, message: Message, progress: str, kind: str, phase: str, said: str, values: dict[str, Any]
    ) -> None:
        """A program that says in one line why it does not even begin."""
        self.end(progress)
        chain = _Chain(message.rank, message.line, message.text, fatal=True)
        self._fail(chain, kind, phase, None, said, message.line, values)

    def _exception(self, text: str, message: Message, progress: str) -> None:
        """A line with an exception: of the open chain, or alone (pasted or printed without its traceback)."""
        found = _EXCEPTION.match(text)
        whole = message.paragraph()
        said = whole[max(0, whole.find(text[:40])) :]
        alone = self._chain is None
        chain = self._chain = self._chain or _Chain(message.rank, message.line, message.text, fatal=False)
        if len(chain.exceptions) < _MOST_EXCEPTIONS:
            name = found["name"] if found else ""
            chain.exceptions.append((message.line, name, said[found.end() :] if found else said))
            self.evidence.setdefault(message.line, message.shown(message.text))
            chain.keep(said)
        if alone:
            self.end(progress, alone=True)

    def end(self, progress: str, *, alone: bool = False) -> None:
        """The chain is complete: make it a failure, or a notice, or nothing."""
        chain, self._chain = self._chain, None
        if chain is None:
            return
        if not chain.exceptions:
            if chain.fatal:  # the log ends, or was cut, inside the traceback
                self._fail(chain, "cut_off", phase_of(chain.frames) or progress, None, chain.text, chain.line, {})
            return
        known = [(line, name, text, classify(name, text)) for line, name, text in chain.exceptions]
        line, name, text, found = next((entry for entry in known if entry[3]), known[-1])
        values: dict[str, Any] = dict(found.values) if found else {}
        if (place := where(chain.frames) or where(chain.outer)) is not None:
            values["where"] = place
        if name.rpartition(".")[2] in _ORDERLY:
            return
        uncaught = any(UNCAUGHT.search(frame) for frame in (*chain.frames[:1], *chain.outer))
        if found is not None and found.kind in OFTEN_CAUGHT and not (chain.fatal or uncaught or alone):
            found = None
        if found is None and not chain.fatal and not uncaught:
            if not alone:
                said = f"{name}: {text}"
                self.notices.append(Notice(kind="logged_error", values=values, rank=chain.rank, line=line, text=said))
            return
        phase = phase_of(chain.frames) or (found.phase if found else None) or progress
        if found and found.phase == "graphs":
            phase = "graphs"
        kind = found.kind if found else ("bad_arguments" if phase == "arguments" else "runtime_error")
        if found is None and name.rpartition(".")[2] in _IMPORTS:
            # Importing the module of the arguments is not yet checking them.
            kind, values = BAD_ENVIRONMENT, values | _module_of(text)
            phase = progress if phase == "arguments" else phase
        if not (chain.fatal or uncaught):
            self.survivable.add(line)
        ends = chain.fatal or (uncaught and place is not None)
        self._fail(chain, kind, phase, name.rpartition(".")[2] or None, text.strip(), line, values, ends=ends)

    def _fail(
        self,
        chain: _Chain,
        kind: str,
        phase: str,
        exception: str | None,
        text: str,
        line: int,
        values: dict[str, Any],
        *,
        ends: bool = True,
    ) -> None:
        self.failures.append(
            Failure(
                kind=kind,
                phase=phase,
                exception=exception,
                text=text,
                rank=chain.rank,
                line=line,
                values=values,
                ends=ends,
                traceback=tuple(chain.lines) if len(self.failures) < _MOST_TRACEBACKS else (),
            )
        )
        self.evidence.setdefault(line, text)


def _code(message: Message) -> Iterator[str]:
    """The lines of code below a frame: deeper than the frame is."""
    for line in message.following()[:_CODE_LINES]:
        if not line.startswith("    ") or line.lstrip().startswith(FRAME):
            return
        yield line


def _module_of(text: str) -> dict[str, Any]:
    found = _MODULE.search(text)
    return {} if found is None else {"module": found["name"].rstrip(".")}
