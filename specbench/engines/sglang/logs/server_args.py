"""`server_args=ServerArgs(model_path='…', …)`, and the dict that 0.5.23 prints, as a mapping. Nothing is evaluated.

The text is split at the commas of its outermost level; each value is read as a Python literal, and what is none (an
enum, a nested object) stays text. A line that was cut off gives the fields before the cut.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....logclean import without_controls
from ....logtext import as_text
from .scan import Hit

_BEGIN = re.compile(r"server_args=(?:(?P<object>[A-Za-z_]\w*)\(|(?P<dict>\{))")
_TOKEN = re.compile(r"""['"\\,()\[\]{}]""")
_NAME = re.compile(r"\s*(?:'(?P<key>\w+)': |\"(?P<key2>\w+)\": |(?P<name>[A-Za-z_]\w*)=)")
_PLAIN = re.compile(r"-?[0-9]{1,18}|'[^'\\]*'")
_CONSTANTS = {"None": None, "True": True, "False": False}


class ServerArgs(Mapping[str, Any]):
    """The arguments by name. They are taken apart when first asked for: a log has hundreds, a reader needs ten."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._values: dict[str, Any] | None = None

    def _read(self) -> dict[str, Any]:
        if self._values is None:
            self._values = parse(self._text)
        return self._values

    @property
    def whole(self) -> bool:
        """Whether the closing bracket came: nothing was cut off."""
        return self._text.rstrip().endswith((")", "}"))

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"ServerArgs({len(self)} fields)"


def arguments_of(hit: Hit | None) -> ServerArgs | None:
    """The arguments that a hit holds."""
    if hit is None:
        return None
    own, *following = hit.raw.split(b"\n", 4)
    text = as_text(own)
    if not text.rstrip().endswith((")", "}")):  # container runtimes cut lines of more than 16 KiB
        text += "".join(as_text(line) for line in following[:3])
    return ServerArgs(text)


def is_dict(text: str) -> bool:
    """Whether the arguments are printed as 0.5.23 does."""
    found = _BEGIN.match(text)
    return found is not None and found["dict"] is not None


def parse(text: str) -> dict[str, Any]:
    """The fields of a line that begins with `server_args=`. Empty when it holds none."""
    begin = _BEGIN.match(text)
    if begin is None:
        return {}
    values: dict[str, Any] = {}
    for field in _fields(text, begin.end()):
        found = _NAME.match(field)
        if found:
            name = found["key"] or found["key2"] or found["name"]
            values[name] = _value(field[found.end() :])
    return values


def _fields(text: str, at: int) -> Iterator[str]:
    """The pieces between the outermost commas. The last one counts only when the closing bracket came."""
    depth, start, quote, skip = 0, at, "", -1
    for token in _TOKEN.finditer(text, at):
        here, mark = token.start(), token.group()
        if here == skip:
            continue
        if quote:
            if mark == "\\":
                skip = here + 1
            elif mark == quote:
                quote = ""
        elif mark in "'\"":
            quote = mark
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth < 0:
                yield text[start:here]
                return
        elif mark == "," and depth == 0:
            yield text[start:here]
            start = here + 1


def _value(text: str) -> Any:
    text = text.strip()
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _PLAIN.fullmatch(text):
        return text[1:-1] if text.startswith("'") else int(text)
    if len(text) > 20_000:
        return text
    try:
        return _harmless(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _harmless(value: Any) -> Any:
    """A literal can spell control characters that its line did not hold, and a float that no document can."""
    if isinstance(value, str):
        return without_controls(value).encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_harmless(key): _harmless(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_harmless, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
