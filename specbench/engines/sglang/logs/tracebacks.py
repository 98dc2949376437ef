"""Tracebacks of a log put together: one failure per chain of exceptions, with its cause, phase and rank.

Python prints the cause first and what was raised because of it later; the first exception that we know is the cause.
A traceback that somebody caught and logged, with an error we do not know, is a notice: the server goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ...contract import Failure, Notice
from .failures import UNCAUGHT, classify, phase_of, where
from .message import Message
from .scan import CHAINED, FRAME, TRACEBACK

_EXCEPTION = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Za-z_]\w{0,80}?)?(?:Error|Exception|Exit|Interrupt))(?::\s?|\Z)"
)
_ARGPARSE = re.compile(r"\S{1,200}: error: (?P<text>.+)")
_ORDERLY = ("SystemExit", "KeyboardInterrupt", "CancelledError")


@dataclass(slots=True)
class _Chain:
    rank: str
    line: int
    text: str  # the line it begins with
    fatal: bool  # the process said that it ends because of it
    frames: list[str] = field(default_factory=list)
    exceptions: list[tuple[int, str, str]] = field(default_factory=list)  # line, class, message
    chained: bool = False  # the next traceback belongs to it


class Tracebacks:
    """Fed with messages in order; `failures` and `notices` hold what came of them."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.notices: list[Notice] = []
        self.evidence: dict[int, str] = {}
        self._chain: _Chain | None = None

    def take(self, message: Message, progress: str) -> bool:
        """Whether the message is part of a traceback. `progress` is the phase that the log has reached."""
        text = message.text.lstrip(" \t>")
        if " hit an exception" in text[:60]:
            self.end(progress)
            self._chain = _Chain(message.rank, message.line, message.text, fatal=True)
            self.evidence[message.line] = message.shown(message.text)
            tail = text.partition(" hit an exception: ")[2]
            if tail and not tail.startswith("Traceback"):
                self._exception(message.line, tail, message)
            return True
        if text.startswith(TRACEBACK):
            if self._chain is None or not self._chain.chained:
                if self._chain is not None and not self._chain.exceptions and not self._chain.frames:
                    return True  # "… hit an exception:" and its traceback on the next line
                self.end(progress)
                self._chain = _Chain(message.rank, message.line, message.text, fatal=False)
            self._chain.chained = False
            return True
        if text.startswith(CHAINED):
            if self._chain is not None:
                self._chain.chained = True
            return True
        if text.startswith(FRAME):
            if self._chain is not None and not self._chain.exceptions and len(self._chain.frames) < 200:
                self._chain.frames.append(text)
            return True
        if found := _ARGPARSE.match(text):
            self.end(progress)
            self._add(Failure(kind="bad_arguments", phase="arguments", exception=None, text=found["text"],
                              rank=message.rank, line=message.line), message.text)  # fmt: skip
            return True
        if not message.bracketed and _EXCEPTION.match(text):
            self._exception(message.line, text, message)
            return True
        if message.bracketed:
            self.end(progress)
        return False

    def _exception(self, line: int, text: str, message: Message) -> None:
        found = _EXCEPTION.match(text)
        whole = message.paragraph().lstrip(" \t>")
        said = whole[whole.find(text[:40]) :] if text[:40] in whole else text
        name = found["name"] if found else ""
        if self._chain is None:
            self._chain = _Chain(message.rank, line, message.text, fatal=False)
            alone = True
        else:
            alone = False
        if len(self._chain.exceptions) < 20:
            self._chain.exceptions.append((line, name, said[found.end() :] if found else said))
            self.evidence.setdefault(line, message.shown(message.text))
        if alone:
            self.end("unknown", alone=True)

    def end(self, progress: str, *, alone: bool = False) -> None:
        """The chain is complete. `alone`: an exception's line without a traceback, pasted or printed."""
        chain, self._chain = self._chain, None
        if chain is None or not chain.exceptions:
            return
        known = [(line, name, text, classify(name, text)) for line, name, text in chain.exceptions]
        line, name, text, found = next((entry for entry in known if entry[3]), known[-1])
        last = name.rpartition(".")[2]
        uncaught = bool(chain.frames) and UNCAUGHT.search(chain.frames[0]) is not None
        values: dict[str, Any] = dict(found.values) if found else {}
        if (place := where(chain.frames)) is not None:
            values["where"] = place
        if last in _ORDERLY:
            return
        if not (found or chain.fatal or uncaught):
            if not alone:
                notice = Notice(kind="logged_error", values=values, rank=chain.rank, line=line, text=f"{name}: {text}")
                self.notices.append(notice)
                self.evidence[line] = notice.text
            return
        phase = phase_of(chain.frames) or (found.phase if found else None)
        if found and found.phase == "graphs":
            phase = "graphs"
        if phase is None:
            phase = progress if progress != "unknown" or not uncaught else "unknown"
        kind = found.kind if found else ("bad_arguments" if phase == "arguments" else "runtime_error")
        failure = Failure(
            kind=kind, phase=phase, exception=last or None, text=text.strip(), rank=chain.rank, line=line, values=values
        )
        self._add(failure, self.evidence.get(line, text))

    def _add(self, failure: Failure, text: str) -> None:
        self.failures.append(failure)
        self.evidence[failure.line] = text
