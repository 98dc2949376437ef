"""The events of one stream as they arrive -> chunks (when, how many tokens) and what the last event says.

SGLang streams cumulatively: every event repeats the whole text and all token ids so far, and a chunk's tokens are the
difference of `meta_info.completion_tokens`. Reading all of it costs more with every token, and it costs it while other
streams wait; so of an event in the middle only its count is looked up, and the last one is read whole. An event in
which the look-up finds anything unusual is read whole too, and checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..records.foreign_json import decode, storable
from ..records.types import ERROR_EVENT

_PREFIX = b"data: "
_DONE = b"data: [DONE]"
#: An event repeats the whole text so far: 100 kB for a long answer.
_MAX_EVENT_BYTES = 8 * 2**20
_MAX_MESSAGE = 10_000  # characters of an engine's own error text
_MAX_TOKENS = 2**31 - 1
#: A quote inside a JSON text has a backslash before it, so none of these can stand in the generated text.
_META, _UNFINISHED, _ERROR, _MARK = b'"meta_info":{', b'"finish_reason":null', b'"error":', b'"specbench_replay":{'
_COUNT = re.compile(rb'"completion_tokens":(\d{1,9})[,}]')
_MARK_TIME = re.compile(rb'"t_s":(\d{1,9}(?:\.\d{1,20})?)[,}]')


class NoAnswerError(Exception):
    """What came in a stream that began with HTTP 200 is no answer; the text says what it is."""


@dataclass(slots=True, kw_only=True)
class Events:
    """One stream. `feed` it what the network gives, `finish` when nothing more comes, also after an error."""

    most_tokens: int = _MAX_TOKENS  # that were asked for: with more the stream is no answer
    chunks: list[tuple[float, int]] = field(default_factory=list)  # (seconds as fed, tokens)
    marks: list[float] = field(default_factory=list)  # of a replay: the recorded second of each chunk
    tokens: int = 0  # received so far
    finish_reason: str | None = None
    meta_info: dict[str, Any] = field(default_factory=dict)
    _rest: bytes = b""
    _skimmed: bytes | None = None  # the newest event, while it was not read whole

    def feed(self, piece: bytes, at_s: float) -> None:
        """Events may be split over pieces, or joined. NoAnswerError: one of them is no part of an answer."""
        came = self._rest + piece if self._rest else piece
        if b"\r" in came:  # some servers end lines so; inside JSON it is written as an escape
            came = came.replace(b"\r\n", b"\n")
        *events, self._rest = came.split(b"\n\n")
        for event in events:
            if event.startswith(_PREFIX) and event != _DONE:
                if self._skim(event, at_s):
                    self._skimmed = event
                else:
                    self._read(_json(event[len(_PREFIX) :]), at_s)
                    self._skimmed = None
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise NoAnswerError(
                f"the stream held an event of more than {_MAX_EVENT_BYTES:,} bytes: {self._rest[:200]!r}"
            )

    def finish(self) -> None:
        """Reads the last event whole if that is still to be done. NoAnswerError as for `feed`."""
        if self._skimmed is not None:
            event, self._skimmed = self._skimmed, None
            counted = self.tokens
            self._read(_json(event[len(_PREFIX) :]), 0.0)
            if self.tokens != counted:
                raise NoAnswerError(f"the stream's last event counts {self.tokens} tokens where it seemed {counted}")

    def _skim(self, event: bytes, at_s: float) -> bool:
        """Takes an ordinary event from the middle of a stream by its count alone; False: read it whole."""
        start = event.rfind(_META)
        if start < 0 or _ERROR in event or event.find(_UNFINISHED, start) < 0:
            return False
        count = _COUNT.search(event, start)
        if count is None:
            return False
        total = int(count[1])
        if not self.tokens <= total <= self.most_tokens:
            return False
        if total > self.tokens:
            if (mark := event.find(_MARK, start)) >= 0:
                recorded = _MARK_TIME.search(event, mark)
                if recorded is None:
                    return False
                self.marks.append(float(recorded[1]))
            self.chunks.append((at_s, total - self.tokens))
            self.tokens = total
        return True

    def _read(self, data: Any, at_s: float) -> None:
        if not isinstance(data, dict):
            raise NoAnswerError(f"the stream held an event that is no object: {str(data)[:200]}")
        if "error" in data:
            raise NoAnswerError(f"{ERROR_EVENT}{error_message(data)}")
        meta_info = _checked("meta_info", data.get("meta_info"), (dict,), "an object") or {}
        total = _checked("completion_tokens", meta_info.get("completion_tokens"), (int,), "a count") or 0
        if not 0 <= total <= _MAX_TOKENS:
            raise _wrong("completion_tokens", total, "a count")
        if total > self.most_tokens:
            raise NoAnswerError(f"the stream counts {total} tokens where {self.most_tokens} were asked for")
        reason = _checked("finish_reason", meta_info.get("finish_reason"), (dict, str), "an object or text")
        if isinstance(reason, dict):
            reason = _checked("finish_reason.type", reason.get("type"), (str,), "text")
        if total < self.tokens and "completion_tokens" in meta_info and reason != "abort":
            raise NoAnswerError(f"the stream's count of tokens fell from {self.tokens} to {total}")
        if total > self.tokens:
            mark = meta_info.get("specbench_replay")
            if isinstance(mark, dict) and "t_s" in mark:
                recorded_s = _checked("specbench_replay.t_s", mark["t_s"], (int, float), "seconds")
                self.marks.append(float(recorded_s or 0.0))
            self.chunks.append((at_s, total - self.tokens))
            self.tokens = total
        self.meta_info, self.finish_reason = _storable(meta_info), _storable(reason)


def _json(text: bytes) -> Any:
    try:
        return decode(text)
    except ValueError:
        raise NoAnswerError(f"the stream held an event that is no JSON: {text[:200]!r}") from None


def _storable(value: Any) -> Any:
    try:
        return storable(value)
    except ValueError as error:
        raise NoAnswerError(f"the stream held an event that is {error}") from None


def _checked(name: str, value: Any, kinds: tuple[type, ...], expected: str) -> Any:
    """`value` when it is None or of one of `kinds`; true and false are no numbers."""
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
        return value
    raise _wrong(name, value, expected)


def _wrong(name: str, value: Any, expected: str) -> NoAnswerError:
    shown = json.dumps(value)[:200]
    return NoAnswerError(f"the stream held an event whose {name} is {shown}, expected {expected}")


def error_message(data: Mapping[str, Any]) -> str:
    """The engine's own text, of both forms of an error."""
    error = data.get("error", data)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:_MAX_MESSAGE]
