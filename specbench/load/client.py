"""One request to /generate, streamed, as raw observations: when each chunk came and how many tokens it held.

With speculation a chunk holds several. Nothing is computed here; failures keep their text (see `RequestTrace`). What
comes is checked (`events`): an answer of a wrong shape is a failed request, never the end of the run.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from ..records.foreign_json import storable
from ..replay.asking import SENT
from .events import Events, NoAnswerError, error_message

_MAX_ERROR_BYTES = 2**20
#: One wording for refused, reset and closed: which of them it is when an engine dies is a matter of microseconds.
_CLOSED_ERRNOS = frozenset({None, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
CLOSED = "the server closed or refused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What goes out. Its body is written when this is made, ahead of sending: not while other requests are timed."""

    input_ids: list[int]
    max_new_tokens: int
    headers: Mapping[str, str]
    timeout_s: float
    payload: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        body = {
            "input_ids": self.input_ids,
            "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": self.max_new_tokens, "ignore_eos": True},
        }
        object.__setattr__(self, "payload", json.dumps(body, separators=(",", ":")).encode())


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
    output_tokens: int = 0


async def generate(session: aiohttp.ClientSession, url: str, sent: Sent) -> Received:
    """Sends one request and waits for its end. Failures are values, only cancellation is raised."""
    timeout = aiohttp.ClientTimeout(total=sent.timeout_s)
    got, events = Received(sent_unix_s=time.time()), Events(most_tokens=sent.max_new_tokens)
    began = time.perf_counter()
    headers = {"Content-Type": "application/json", SENT: f"{got.sent_unix_s:.6f}", **sent.headers}
    try:
        async with session.post(
            f"{url}/generate", data=sent.payload, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            got.http_status = response.status
            if response.status == 200:
                await _read_stream(response.content, events, began)
            elif 300 <= response.status < 400:
                got.error = f"HTTP {response.status}: {redirect(response.headers)}"
            else:
                text = (await up_to(response.content, _MAX_ERROR_BYTES)).decode("utf-8", "replace")
                got.error = f"HTTP {response.status}: {_error_text(text)}"
    except NoAnswerError as error:
        got.error = str(error)
    except TimeoutError:
        got.error = f"no end within {sent.timeout_s:g} s, {events.tokens} tokens came"
    except (aiohttp.ClientError, OSError) as error:
        got.error = f"the connection broke after {events.tokens} tokens: {why_broken(error)}"
    got.end_s = time.perf_counter() - began
    _take(events, got)
    if got.error is None:
        got.error = _what_is_missing(got)
    got.error = None if got.error is None else storable(got.error)
    return got


def _take(events: Events, got: Received) -> None:
    """What the stream held until it ended, however it did."""
    try:
        events.finish()
    except NoAnswerError as error:
        got.error = got.error or str(error)
    got.chunks, got.marks, got.output_tokens = events.chunks, events.marks, events.tokens
    got.meta_info, got.finish_reason = events.meta_info, events.finish_reason


async def up_to(content: aiohttp.StreamReader, size: int) -> bytes:
    """The beginning of a body that may have no end."""
    body = b""
    while len(body) < size and (piece := await content.read(size - len(body))):
        body += piece
    return body


def redirect(headers: Mapping[str, str]) -> str:
    """What a server answers that sends elsewhere: whoever is measured there is another one."""
    to = headers.get("Location", "")[:200]
    return f"a redirect{f' to {to}' if to else ''}, which is not followed"


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


async def _read_stream(content: aiohttp.StreamReader, events: Events, began: float) -> None:
    """Takes the time of every piece as it arrives from the network."""
    while piece := await content.readany():
        events.feed(piece, time.perf_counter() - began)


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
        return error_message(json.loads(body))
    except (ValueError, AttributeError, RecursionError):
        return body.strip()[:2000] or "no text"
