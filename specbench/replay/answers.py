"""The bodies that SGLang answers with, native and OpenAI, and the limits it checks before it serves a request.

Texts are SGLang's own (0.5.6 to 0.5.23), as recorded. The generated text is a placeholder: a record keeps when how
many tokens came, not which.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Route = Literal["generate", "completions", "chat"]

#: Token id and text that stand for a token which was not recorded.
_TOKEN_ID = 0
_TOKEN_TEXT = " t"
#: Tokens by which the recorded server's chat template lengthens one user message.
CHAT_TEMPLATE_TOKENS = 19
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the recorded server accepts, in tokens. None: not recorded."""

    context_len: int | None
    max_input_tokens: int | None  # shorter than this; SGLang: max_req_input_len

    @classmethod
    def of(cls, server_info: Mapping[str, Any] | None, context_length: int | None) -> Limits:
        """From /server_info and the configured context. max_req_input_len = min(context, pool) - 6."""
        info = server_info or {}
        longest, pool = info.get("max_req_input_len"), info.get("max_total_num_tokens")
        context = context_length or info.get("context_length")
        if context is None and longest is not None and pool is not None and pool > longest + 6:
            context = longest + 6  # the pool is not what limits, so the context does
        return cls(context_len=context, max_input_tokens=longest)

    def refusal(self, input_tokens: int, max_new_tokens: int) -> str | None:
        """SGLang's text for a request that is too long; None: it fits. In SGLang's order of checking."""
        context = self.context_len
        if context is not None and input_tokens >= context:
            return f"The input ({input_tokens} tokens) is longer than the model's context length ({context} tokens)."
        total = input_tokens + max_new_tokens
        if context is not None and total > context:
            return (
                f"Requested token count exceeds the model's maximum context length of {context} tokens. "
                f"You requested a total of {total} tokens: {input_tokens} tokens from the input messages and "
                f"{max_new_tokens} tokens for the completion. Please reduce the number of tokens in the input "
                "messages or the completion to fit within the limit."
            )
        longest = self.max_input_tokens
        if longest is not None and input_tokens >= longest:
            return (
                f"Input length ({input_tokens} tokens) exceeds the maximum allowed length ({longest} tokens). "
                "Use a shorter input or enable --allow-auto-truncate."
            )
        return None

    def clamp(self, input_tokens: int, max_new_tokens: int) -> int:
        """Output tokens that are left for a request: SGLang shortens silently to max_req_len - input - 1."""
        if self.max_input_tokens is None:
            return max_new_tokens
        return max(1, min(max_new_tokens, self.max_input_tokens + 5 - input_tokens - 1))


def error_body(route: Route, text: str, code: int) -> dict[str, Any]:
    """The body of an HTTP error: two forms, by endpoint."""
    if route == "generate":
        return {"error": {"message": text}}
    return {"object": "error", "message": text, "type": "BadRequestError", "param": None, "code": code}


def error_event(text: str) -> bytes:
    """What /generate puts into a stream that already began with HTTP 200."""
    told = {"message": text, "type": "invalid_request_error", "code": 400, "retryable": False}
    return event({"error": told})


def event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def native(tokens: int, meta_info: Mapping[str, Any]) -> dict[str, Any]:
    """A /generate chunk (or whole answer): text and ids are cumulative, as SGLang sends them by default."""
    return {"text": _TOKEN_TEXT * tokens, "output_ids": [_TOKEN_ID] * tokens, "meta_info": dict(meta_info)}


def text_of(tokens: int) -> str:
    return _TOKEN_TEXT * tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAi:
    """The OpenAI forms of one request."""

    route: Literal["completions", "chat"]
    id: str
    model: str
    prompt_tokens: int

    def chunk(self, tokens: int, finish_reason: str | None, *, first: bool = False) -> bytes:
        """One event: `tokens` new tokens. The first chat event carries the role and no text."""
        if self.route == "completions":
            choice: dict[str, Any] = {"index": 0, "text": text_of(tokens)}
        else:
            delta = {"reasoning_content": None, "content": text_of(tokens)}
            choice = {"index": 0, "delta": {"role": "assistant", **delta} if first else delta}
        choice |= {"logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
        return event({**self._head(stream=True), "choices": [choice]})

    def usage_chunk(self, tokens: int) -> bytes:
        return event({**self._head(stream=True), "choices": [], "usage": self._usage(tokens)})

    def whole(self, tokens: int, finish_reason: str | None, mark: Mapping[str, Any]) -> dict[str, Any]:
        if self.route == "completions":
            choice: dict[str, Any] = {"index": 0, "text": text_of(tokens)}
        else:
            message = {"role": "assistant", "content": text_of(tokens), "reasoning_content": None, "tool_calls": None}
            choice = {"index": 0, "message": message}
        choice |= {"logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
        usage = self._usage(tokens)
        return {**self._head(stream=False), "choices": [choice], "usage": usage, "specbench_replay": dict(mark)}

    def _head(self, *, stream: bool) -> dict[str, Any]:
        kind = "text_completion" if self.route == "completions" else "chat.completion"
        if stream and self.route == "chat":
            kind += ".chunk"
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.model}

    def _usage(self, tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }
