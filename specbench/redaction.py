"""What must never be in a record: keys. In: text that an engine gave, or bytes of its log. Out: the same without them.

The non-obvious thing: a server tells its own key, in /server_info and where its log prints its arguments. Values under
such names are removed whatever they are; the key that was sent is removed wherever it stands, as long as it is too long
to be an ordinary word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

REMOVED = "[removed by specbench]"
#: A shorter key may be a word of every log; it goes only where a name says that it is one.
_SHORTEST = 8
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
        if self._key is None or len(self._key) < _SHORTEST:
            return text
        for written in {self._key, json.dumps(self._key)[1:-1]}:
            text = text.replace(written, REMOVED)
        return text

    def data(self, data: bytes) -> bytes:
        """Of a log, whose bytes need not be UTF-8."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
