"""One request to /generate, streamed, as raw observations: when each chunk came and how many tokens it held.

SGLang streams cumulatively: a chunk's tokens are the difference of `meta_info.completion_tokens`. With speculation a
chunk holds several. Nothing is computed here; failures keep their text (see `RequestTrace`). What comes is checked: an
answer of a wrong shape is a failed request, never the end of the run.
"""

from __future__ import annotations

import errno
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from .record_types import ERROR_EVENT
from .replay.asking import SENT

_PREFIX = b"data: "
#: An event repeats the whole text so far: 100 kB for a long answer.
_MAX_EVENT_BYTES = 8 * 2**20
_MAX_ERROR_BYTES = 2**20
_MAX_MESSAGE = 10_000  # characters of an engine's own error text
_MAX_TOKENS = 2**31 - 1
_MAX_DEPTH = 32
#: One wording for refused, reset and closed: which of them it is when an engine dies is a matter of microseconds.
_CLOSED_ERRNOS = frozenset({None, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
CLOSED = "the server closed or refused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What goes out."""

    input_ids: list[int]
    max_new_tokens: int
    headers: Mapping[str, str]
    timeout_s: float


@dataclass(slots=True, kw_only=True)
class Received:
    """What came back. Seconds since sending, by this machine's monotonic clock."""

    sent_unix_s: float
    http_status: int | None = None
    chunks: list[tuple[float, int]] = field(default_factory=list)
    end_s: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    meta_info: dict[str, Any] = field(default_factory=dict)
    marks: list[float] = field(default_factory=list)  # of a replay: the recorded second of each chunk

    @property
    def output_tokens(self) -> int:
        return sum(tokens for _, tokens in self.chunks)


class _NoAnswerError(Exception):
    """What came in a stream that began with HTTP 200 is no answer; the text says what it is."""


async def generate(session: aiohttp.ClientSession, url: str, sent: Sent) -> Received:
    """Sends one request and waits for its end. Failures are values, only cancellation is raised."""
    body = {
        "input_ids": sent.input_ids,
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": sent.max_new_tokens, "ignore_eos": True},
    }
    payload = json.dumps(body, separators=(",", ":")).encode()
    timeout = aiohttp.ClientTimeout(total=sent.timeout_s)
    got = Received(sent_unix_s=time.time())
    began = time.perf_counter()
    headers = {"Content-Type": "application/json", SENT: f"{got.sent_unix_s:.6f}", **sent.headers}
    try:
        async with session.post(f"{url}/generate", data=payload, headers=headers, timeout=timeout) as response:
            got.http_status = response.status
            if response.status == 200:
                await _read_stream(response.content, got, began)
            else:
                text = (await up_to(response.content, _MAX_ERROR_BYTES)).decode("utf-8", "replace")
                got.error = f"HTTP {response.status}: {_error_text(text)}"
    except _NoAnswerError as error:
        got.error = str(error)
    except TimeoutError:
        got.error = f"no end within {sent.timeout_s:g} s, {got.output_tokens} tokens came"
    except (aiohttp.ClientError, OSError) as error:
        got.error = f"the connection broke after {got.output_tokens} tokens: {why_broken(error)}"
    got.end_s = time.perf_counter() - began
    if got.error is None:
        got.error = _what_is_missing(got)
    got.error = None if got.error is None else _storable(got.error)
    return got


async def up_to(content: aiohttp.StreamReader, size: int) -> bytes:
    """The beginning of a body that may have no end."""
    body = b""
    while len(body) < size and (piece := await content.read(size - len(body))):
        body += piece
    return body


def why_broken(error: Exception) -> str:
    """Without address and port, which differ from run to run."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno not in _CLOSED_ERRNOS:
        return cause.strerror or type(cause).__name__  # of this side, such as too many open files
    if isinstance(cause, (OSError, aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        return CLOSED
    if isinstance(error, aiohttp.ClientResponseError):
        return f"its answer is no HTTP ({error.message or type(error).__name__})"
    return type(error).__name__


async def _read_stream(content: aiohttp.StreamReader, got: Received, began: float) -> None:
    """Takes the time of every piece as it arrives from the network; events may be split over pieces, or joined."""
    rest = b""
    async for piece in content.iter_any():
        now = time.perf_counter() - began
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            if event.startswith(_PREFIX) and event != b"data: [DONE]":
                _take(_json(event[len(_PREFIX) :]), now, got)
        if len(rest) > _MAX_EVENT_BYTES:
            raise _NoAnswerError(f"the stream held an event of more than {_MAX_EVENT_BYTES:,} bytes: {rest[:200]!r}")


def _json(text: bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        raise _NoAnswerError(f"the stream held an event that is no JSON: {text[:200]!r}") from None


def _no_number(text: str) -> None:
    """NaN and Infinity are no JSON, though Python writes them: a figure that is not known."""


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _take(data: Any, now: float, got: Received) -> None:
    if not isinstance(data, dict):
        raise _NoAnswerError(f"the stream held an event that is no object: {str(data)[:200]}")
    if "error" in data:
        raise _NoAnswerError(f"{ERROR_EVENT}{_message(data)}")
    meta_info = _checked("meta_info", data.get("meta_info"), (dict,), "an object") or {}
    total = _checked("completion_tokens", meta_info.get("completion_tokens"), (int,), "a count") or 0
    if not 0 <= total <= _MAX_TOKENS:
        raise _wrong("completion_tokens", total, "a count")
    reason = _checked("finish_reason", meta_info.get("finish_reason"), (dict, str), "an object or text")
    if isinstance(reason, dict):
        reason = _checked("finish_reason.type", reason.get("type"), (str,), "text")
    tokens = total - got.output_tokens
    if tokens > 0:
        mark = meta_info.get("specbench_replay")
        if isinstance(mark, dict) and "t_s" in mark:
            got.marks.append(float(_checked("specbench_replay.t_s", mark["t_s"], (int, float), "seconds") or 0.0))
        got.chunks.append((now, tokens))
    got.meta_info = _storable(meta_info)
    got.finish_reason = _storable(reason)


def _checked(name: str, value: Any, kinds: tuple[type, ...], expected: str) -> Any:
    """`value` when it is None or of one of `kinds`; true and false are no numbers."""
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool)):
        return value
    raise _wrong(name, value, expected)


def _wrong(name: str, value: Any, expected: str) -> _NoAnswerError:
    shown = json.dumps(value)[:200]
    return _NoAnswerError(f"the stream held an event whose {name} is {shown}, expected {expected}")


def _storable(value: Any, depth: int = 0) -> Any:
    """What a record can hold: no half of a surrogate pair, numbers within 64 bits (else None), no endless nesting."""
    if depth > _MAX_DEPTH:
        raise _NoAnswerError(f"the stream held an event that is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def _what_is_missing(got: Received) -> str | None:
    """The error of a stream that came to its end but is no answer; None: it is complete."""
    if got.finish_reason == "abort":
        reason = got.meta_info.get("finish_reason")
        told = reason.get("message") if isinstance(reason, dict) else None
        return f"aborted by the engine: {told or 'no reason given'}"
    if not got.chunks:
        return "the stream ended without a token"
    if got.finish_reason is None:
        return f"the stream ended after {got.output_tokens} tokens without a finish reason"
    return None


def _error_text(body: str) -> str:
    try:
        return _message(json.loads(body))
    except (ValueError, AttributeError, RecursionError):
        return body.strip()[:2000] or "no text"


def _message(data: Mapping[str, Any]) -> str:
    error = data.get("error", data)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:_MAX_MESSAGE]
