"""Bytes of a log without what terminals and Windows put into them, and as text for people."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_a-z])")
_CRLF = re.compile(rb"\r(?:\r{0,2}\n)")  # one literal first: searching for it is a memchr
#: Also what turns the direction of writing, and what has no width: a line must not look like another.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


def clean(text: bytes) -> bytes:
    """Without NUL bytes, terminal escape sequences and the carriage returns of CRLF line ends. Keeps all newlines."""
    if b"\0" in text:
        text = text.replace(b"\0", b"")
    if b"\x1b" in text:
        text = _ESCAPE.sub(b"", text)
    if b"\r" in text:
        text = _CRLF.sub(b"\n", text)
    return text


def needs_cleaning(text: bytes) -> bool:
    return b"\0" in text or b"\x1b" in text or b"\r" in text


def as_text(line: bytes) -> str:
    """A cleaned line as text for people: invalid UTF-8 replaced, other control characters dropped."""
    return without_controls(line.decode("utf-8", "replace"))


def on_one_line(text: str) -> str:
    """A name for people: a file's name may hold newlines and escapes, too."""
    return without_controls(text.encode("utf-8", "replace").decode()).replace("\n", " ").replace("\t", " ")


def without_controls(text: str) -> str:
    """Without control characters (but tab and newline), what makes text run the other way, and what cannot be seen."""
    if text.isascii() and text.isprintable():  # nearly all
        return text
    return _CONTROL.sub("", text)
