"""Answers to requests that were none: what a client was told, pasted or logged, and the status lines of uvicorn.

In: a message. Out: a notice of the same kind that the engine's own line of that refusal gives, or of the status.
Texts of SGLang 0.5.6.post2 to 0.5.23: managers/tokenizer_manager.py, managers/utils.py, managers/scheduler.py. The
streamed abort of a full queue is no line of the server's log: only the client sees its text.
"""

from __future__ import annotations

import re
from typing import Any

from ...contract import Notice
from .message import Message
from .scan import ACCESS, TOLD

#: kind -> the text with its figures.
REFUSALS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "input_above_context",
        re.compile(
            r"The input \((?P<input_tokens>\d{1,15}) tokens\) is longer than the model's context length "
            r"\((?P<context_len>\d{1,15}) tokens\)\.(?! Truncating)"
        ),
    ),
    (
        "request_above_context",
        re.compile(
            r"Requested token count exceeds the model's maximum context length of (?P<context_len>\d{1,15}) tokens\. "
            r"You requested a total of (?P<total_tokens>\d{1,15}) tokens: (?P<input_tokens>\d{1,15}) tokens from the "
            r"input messages and (?P<output_tokens>\d{1,15}) tokens for the completion"
        ),
    ),
    (
        "input_above_pool",
        re.compile(
            r"Input length \((?P<input_tokens>\d{1,15}) tokens\) exceeds the maximum allowed length "
            r"\((?P<max_input_tokens>\d{1,15}) tokens\)"
        ),
    ),
    ("queue_full", re.compile(r"The request queue is full\.|The request is aborted by a higher priority request\.")),
)
_CLIENT_RAISED = re.compile(r"openai\.\w{1,60}Error: ")
_LONGEST = 4096

_ACCESS = re.compile(ACCESS.decode())
_STATUS = re.compile(r"\" (?P<status>[45]\d\d)\b")


def request_notice(message: Message) -> Notice | None:
    """A refusal as a client was told it (kinds of `REFUSALS`), or one answered with an error status ("answered")."""
    text = message.text.lstrip(" \t>")
    if text.startswith("INFO:") and (found := _ACCESS.match(text)):
        status = _STATUS.search(text, found.end() - 6)
        values = {"status": int(status["status"])} if status else {}
        return Notice(kind="answered", values=values, rank=message.rank, line=message.line, text=message.shown(text))
    if message.bracketed or not (text.startswith(TOLD) or _CLIENT_RAISED.match(text)):
        return None
    said = refusal(text[:_LONGEST])
    if said is None:
        return None
    kind, values = said
    return Notice(kind=kind, values=values, rank=message.rank, line=message.line, text=message.shown(text))


def refusal(text: str) -> tuple[str, dict[str, Any]] | None:
    """The kind of a refusal and its figures, wherever in the text it stands; None: no refusal of the engine."""
    for kind, pattern in REFUSALS:
        found = pattern.search(text)
        if found is not None:
            return kind, {name: int(value) for name, value in found.groupdict().items() if value is not None}
    return None
