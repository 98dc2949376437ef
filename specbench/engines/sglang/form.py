"""Form: one wording of one kind of log line, written as the engine's own template.

`KV Cache is allocated. #tokens: {tokens:int}, K size: {k:gib} GB` reads like the line it matches. `{name:type}` is a
figure, `[[…]]` an optional part, `{*}` any text, `{$}` the line's end. A form matches from the message's beginning;
text after it is ignored (launchers append to lines). Patterns are compiled when first used: a log needs few of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...units import gib_text_to_quantity, mib_text_to_quantity

#: Bounded: a figure of a thousand digits is no figure, and text that is not ours may hold one. Python prints a float
#: whole, with up to 17 digits: local_gpu_memory=138.212646484375.
_NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,20})?"

#: type of a figure -> (what it looks like, how it becomes a value)
_TYPES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int": (r"-?[0-9]{1,18}", int),
    "gib": (_NUMBER, gib_text_to_quantity),
    "mib": (_NUMBER, mib_text_to_quantity),
    "float": (rf"(?:{_NUMBER}(?:e[+-]?[0-9]{{1,3}})?|nan|-?inf)", float),
    "word": (r"[^\s,]{1,200}", str),
    "text": (r".{1,200}?", str),
    "ints": (r"\[[0-9, ]*\]", lambda text: tuple(int(number[:18]) for number in re.findall("[0-9]+", text))),
    "role": ("target|draft", str),
    "draft": ("draft", str),
    "what": ("decode|verify|prefill|extend|piecewise", str),
    "prefill": ("prefill", str),
    "bool": (r"True|False", lambda text: text == "True"),
}

_PUNCTUATION = {"{*}": ".{0,200}?", "{$}": r"\s*\Z", "[[": "(?:", "]]": ")?"}
_PIECE = re.compile(r"\{(?P<name>\w+):(?P<type>\w+)\}|(?P<any>\{\*\})|(?P<end>\{\$\})|(?P<open>\[\[)|(?P<close>\]\])")


@dataclass(frozen=True, slots=True)
class Form:
    """One wording of a line: a template with typed places, `{*}` for anything, `[[…]]` for what may be absent."""

    kind: str  # what the line tells: weights_end, kv_pool, notice:requests_reduced, …
    template: str
    begins: tuple[str, ...] = ()  # how its lines can begin, for a template that begins with a figure

    @property
    def heads(self) -> tuple[str, ...]:
        """The literal texts by which a line of this form is found."""
        return self.begins or (re.split(r"\{|\[\[", self.template, maxsplit=1)[0],)

    def read(self, text: str, *, squeezed: bool = False) -> dict[str, Any] | None:
        """The figures of `text` (None for those of absent optional parts), or None when it has another form.

        `squeezed`: the text has lost all its spaces (see `squeeze`); the form is compared without its own.
        """
        pattern, converters = _compiled(self.template, squeezed)
        found = pattern.match(text)
        if found is None:
            return None
        return {name: None if value is None else converters[name](value) for name, value in found.groupdict().items()}

    def can_begin(self, text: str, *, squeezed: bool = False) -> bool:
        return text.startswith(tuple(map(squeeze, self.heads)) if squeezed else self.heads)


def squeeze(text: str) -> str:
    """Without spaces: of a line that a terminal broke nobody knows where it had one."""
    return text.replace(" ", "")


@cache
def _compiled(template: str, squeezed: bool) -> tuple[re.Pattern[str], dict[str, Callable[[str], Any]]]:
    if squeezed:
        template = squeeze(template)
    pattern: list[str] = []
    converters: dict[str, Callable[[str], Any]] = {}
    at = 0
    for piece in _PIECE.finditer(template):
        pattern.append(re.escape(template[at : piece.start()]))
        at = piece.end()
        if piece["name"]:
            looks, convert = _TYPES[piece["type"]]
            pattern.append(f"(?P<{piece['name']}>{looks})")
            converters[piece["name"]] = convert
        else:
            pattern.append(_PUNCTUATION[piece.group()])
    pattern.append(re.escape(template[at:]))
    return re.compile("".join(pattern) + ("" if squeezed else r"(?!\w)")), converters
