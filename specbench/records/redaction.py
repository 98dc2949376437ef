"""What must never be in a record: keys. In: what a server told, as text or as values of its JSON. Out: that without.

The non-obvious thing: a server tells its own key, in /server_info and where its log prints its arguments. Values under
such names are removed whatever they are; the key that was sent is removed wherever it stands, as long as it is too long
to be an ordinary word. Of JSON the texts are changed and never its form, so that it can be read afterwards whatever
the key is: one that is a plain word ("requests") stays where it is a name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

REMOVED = "[removed by specbench]"
#: A shorter key may be a word of every log; it goes where a name says that it is one, and where it stands alone.
SHORTEST = 8
#: A key of this form may be a name in every answer: nobody learns it there.
_WORD = re.compile(r"[a-z_]+")
_NAMES = r"(?:(?:admin_)?api_key|ssl_keyfile_password)"
_FLAGS = r"--(?:(?:admin-)?api-key|ssl-keyfile-password)"
#: "api_key": "…" in JSON; api_key='…' in a printed ServerArgs, which newer versions print as a dict: 'api_key': '…'.
_JSON = re.compile(rf'("{_NAMES}"\s*:\s*)"(?:[^"\\]|\\.)*"')
_PRINTED = re.compile(rf"""(\b{_NAMES}(?:=|'\s*:\s*))(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
#: --api-key … in a command line, and "--api-key", "…" in a list of arguments. The text may be within a string of JSON
#: (`launch_command` of /server_info), which must stay JSON: no match goes over the end of that string.
_FLAG = re.compile(
    rf"""({_FLAGS}[ =])(?!-|\[removed by)(?:'[^'"]*'|"[^"\\,:]*"|\\"(?:[^"\\]|\\\\)*\\"|(?:[^\s"'\\]|\\\\)+)"""
)
_NAME = re.compile(_NAMES)
_FLAG_ALONE = re.compile(_FLAGS)
_LISTED = re.compile(rf"""({_FLAGS}(\\?["']),\s*\2)(?!-)(?:[^"'\\]|\\\\)*(?=\2(?!\s*:))""")


@dataclass(frozen=True, slots=True)
class Redaction:
    """Takes one key out of texts. Its repr does not show the key."""

    _key: str | None = None

    def __repr__(self) -> str:
        return f"Redaction({'a key' if self._key else None})"

    def text(self, text: str) -> str:
        text = _JSON.sub(rf'\1"{REMOVED}"', text)
        text = _PRINTED.sub(rf"\1'{REMOVED}'", text)
        text = _LISTED.sub(rf"\1{REMOVED}", _FLAG.sub(rf"\1{REMOVED}", text))
        return self._without(text)

    @property
    def is_short(self) -> bool:
        """The key may stay within longer texts."""
        return self._key is not None and len(self._key) < SHORTEST

    def holds(self, value: Any) -> bool:
        """Whether `values` would take the key out of these. Of a short one it is not known."""
        if isinstance(value, dict):
            return any(self._name(name) != name or self.holds(item) for name, item in value.items())
        if isinstance(value, (list, tuple)):
            return any(map(self.holds, value))
        return isinstance(value, str) and self._without(value) != value

    def values(self, value: Any) -> Any:
        """Of JSON: texts without keys, in the same form."""
        if isinstance(value, str):
            return (
                REMOVED if self._key is not None and value in (self._key, f"Bearer {self._key}") else self.text(value)
            )
        if isinstance(value, dict):
            return {self._name(name): self._under(name, item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [
                REMOVED
                if _is_flag(before) and isinstance(item, str) and not item.startswith("-")
                else self.values(item)
                for before, item in zip((None, *value), value, strict=False)
            ]
        return value

    def _under(self, name: Any, value: Any) -> Any:
        secret = isinstance(name, str) and _NAME.fullmatch(name) and value is not None and not isinstance(value, bool)
        return REMOVED if secret else self.values(value)

    def _name(self, name: Any) -> Any:
        keeps = not isinstance(name, str) or self._key is None or _WORD.fullmatch(self._key)
        return name if keeps else self._without(name)

    def _without(self, text: str) -> str:
        if self._key is None or self.is_short:
            return text
        for written in _forms(self._key):
            text = text.replace(written, REMOVED)
        return text

    def data(self, data: bytes) -> bytes:
        """Of a log, whose bytes need not be UTF-8."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _forms(key: str) -> list[str]:
    """As a text may have it, the longest first: plain, within JSON, printed by Python, within an address."""
    forms = {key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe="")}
    return sorted(forms, key=len, reverse=True)


def _is_flag(value: Any) -> bool:
    return isinstance(value, str) and _FLAG_ALONE.fullmatch(value) is not None
