"""An HTTP request as it came -> what is asked: lengths, streaming, and what specbench's client says in its headers.

A prompt of token ids has its length. The length of a text is not knowable without the tokenizer: one token per
character is assumed (true of the synthetic tokenizer of the shipped records), plus the template of a chat.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .answers import CHAT_TEMPLATE_TOKENS, Route
from .plan import Ask

#: Headers by which specbench's client says which request of which step this is. An engine ignores them.
STEP, INDEX, CONCURRENCY, RATE = (
    "X-Specbench-Step",
    "X-Specbench-Index",
    "X-Specbench-Concurrency",
    "X-Specbench-Rate",
)
#: "warmup" for requests that are in no figure.
PHASE = "X-Specbench-Phase"
#: Unix seconds at which the client began to send. Recorded times count from that moment, not from the arrival here,
#: which comes later when many requests are sent at once.
SENT = "X-Specbench-Sent"
#: A client's clock that is further away is not this machine's.
_SENT_AT_MOST_S = 5.0
#: SGLang's own default of max_new_tokens, and the OpenAI completion default of max_tokens.
_DEFAULT_NEW_TOKENS = {"generate": 128, "completions": 16, "chat": 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    ask: Ask
    stream: bool
    include_usage: bool
    text_counted: bool  # the prompt was text: its length is an assumption
    on_the_way_s: float  # since the client began to send; 0: it did not say


class BadRequestError(ValueError):
    """A body that this replay cannot answer; the text says why."""


def read_request(route: Route, body: Any, headers: Mapping[str, str]) -> Asked:
    """BadRequestError when the body is no single request."""
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    tokens, counted = _prompt_tokens(route, body)
    asked_new = _asked_tokens(route, body)
    options = body.get("stream_options")
    ask = Ask(
        input_tokens=tokens,
        max_new_tokens=asked_new if asked_new is not None else _DEFAULT_NEW_TOKENS[route],
        concurrency=_number(headers.get(CONCURRENCY), int),
        request_rate=_number(headers.get(RATE), float),
        step=headers.get(STEP),
        index=_number(headers.get(INDEX), int),
        warmup=headers.get(PHASE) == "warmup",
    )
    return Asked(
        ask=ask,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        text_counted=counted,
        on_the_way_s=_on_the_way_s(headers),
    )


def _on_the_way_s(headers: Mapping[str, str]) -> float:
    sent = _number(headers.get(SENT), float)
    passed = 0.0 if sent is None else time.time() - sent
    return passed if 0.0 <= passed <= _SENT_AT_MOST_S else 0.0


def _prompt_tokens(route: Route, body: Mapping[str, Any]) -> tuple[int, bool]:
    if route == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise BadRequestError("messages: a list of messages is needed")
        return sum(len(str(message.get("content") or "")) for message in messages) + CHAT_TEMPLATE_TOKENS, True
    prompt = body.get("prompt") if route == "completions" else body.get("input_ids", body.get("text"))
    if isinstance(prompt, str):
        return len(prompt), True
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return len(prompt), False
    raise BadRequestError("one prompt is needed, as a text or a list of token ids; batches were not recorded")


def _asked_tokens(route: Route, body: Mapping[str, Any]) -> int | None:
    if route == "generate":
        parameters = body.get("sampling_params")
        asked = parameters.get("max_new_tokens") if isinstance(parameters, dict) else None
    else:
        asked = body.get("max_completion_tokens", body.get("max_tokens"))
    return asked if isinstance(asked, int) and asked > 0 else None


def _number(text: str | None, kind: type[Any]) -> Any:
    try:
        return None if text is None else kind(text)
    except ValueError:
        return None
