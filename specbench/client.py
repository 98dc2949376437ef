"""One request to /generate, streamed, as raw observations: when each chunk came and how many tokens it held.

SGLang streams cumulatively: a chunk's tokens are the difference of `meta_info.completion_tokens`. With speculation a
chunk holds several. Nothing is computed here; failures keep their text (see `RequestTrace`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from .record_types import ERROR_EVENT
from .replay.asking import SENT

_PREFIX = b"data: "


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
                text = (await response.read()).decode("utf-8", "replace")
                got.error = f"HTTP {response.status}: {_error_text(text)}"
    except _NoAnswerError as error:
        got.error = str(error)
    except TimeoutError:
        got.error = f"no end within {sent.timeout_s:g} s, {got.output_tokens} tokens came"
    except aiohttp.ClientConnectorError as error:
        got.error = f"no connection: {type(error.os_error).__name__}"
    except (aiohttp.ClientError, OSError) as error:
        got.error = f"the connection broke after {got.output_tokens} tokens: {_words(error)}"
    got.end_s = time.perf_counter() - began
    if got.error is None:
        got.error = _what_is_missing(got)
    return got


async def _read_stream(content: aiohttp.StreamReader, got: Received, began: float) -> None:
    """Takes the time of every piece as it arrives from the network; events may be split over pieces, or joined."""
    rest = b""
    async for piece in content.iter_any():
        now = time.perf_counter() - began
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            if event.startswith(_PREFIX) and event != b"data: [DONE]":
                _take(_json(event[len(_PREFIX) :]), now, got)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _NoAnswerError(f"the stream held an event that is no JSON: {text[:200]!r}") from None


def _take(data: Any, now: float, got: Received) -> None:
    if not isinstance(data, dict):
        raise _NoAnswerError(f"the stream held an event that is no object: {str(data)[:200]}")
    if "error" in data:
        raise _NoAnswerError(f"{ERROR_EVENT}{_message(data)}")
    meta_info = data.get("meta_info") or {}
    tokens = int(meta_info.get("completion_tokens") or 0) - got.output_tokens
    if tokens > 0:
        got.chunks.append((now, tokens))
        mark = meta_info.get("specbench_replay")
        if isinstance(mark, dict) and "t_s" in mark:
            got.marks.append(float(mark["t_s"]))
    got.meta_info = meta_info
    reason = meta_info.get("finish_reason")
    got.finish_reason = reason.get("type") if isinstance(reason, dict) else reason


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
    except (ValueError, AttributeError):
        return body.strip()[:2000] or "no text"


def _message(data: Mapping[str, Any]) -> str:
    error = data.get("error", data)
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the response was not completed"
    return str(error) or type(error).__name__
