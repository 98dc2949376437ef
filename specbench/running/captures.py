"""What a server tells of itself, into its record."""

from __future__ import annotations

import time

from ..lifecycle.attach import Attached
from ..lifecycle.server import Server
from ..records import foreign_json
from ..records.writer import RecordWriter

#: For everything that is asked of one server besides requests.
_ALL_S = 60.0
_ONE_S = 20.0
#: A longer text is stored compressed.
_COMPRESS_FROM = 16_000


class Captures:
    """Asks a server and writes down its answers. All of it together has `_ALL_S` seconds."""

    def __init__(self, server: Server | Attached, writer: RecordWriter) -> None:
        self._server, self._writer, self._left_s = server, writer, _ALL_S

    def json(self, name: str, paths: tuple[str, ...]) -> bool:
        """A JSON object under the first of `paths` that has one; anything else is noted and not stored.

        True when one was stored.
        """
        for path in paths:
            text = self._get(path)
            if text is None:
                continue
            problem = _why_no_object(text)
            if problem is None:
                self._writer.text(name, text)
                return True
            self._server.notes.append(f"{path} was not recorded: {problem}")
        return False

    def text(self, name: str, path: str) -> None:
        """Whatever is under `path`."""
        text = self._get(path)
        if text is not None:
            self._writer.text(name, text, compress=len(text) >= _COMPRESS_FROM)

    def _get(self, path: str) -> str | None:
        if not self._server.alive:
            return None
        if self._left_s <= 0:
            self._server.notes.append(f"{path} was not asked: earlier answers took {_ALL_S:.0f} s")
            return None
        began = time.monotonic()
        got = self._server.get(path, min(_ONE_S, self._left_s))
        self._left_s -= time.monotonic() - began
        if got.problem is not None:
            self._server.notes.append(f"{path} was not recorded: {got.problem}")
        return None if got.body is None else got.body.decode("utf-8", "replace")


def _why_no_object(text: str) -> str | None:
    try:
        return None if isinstance(foreign_json.parse(text), dict) else "no JSON object"
    except ValueError as error:
        return "no JSON object" if str(error) == "no JSON" else str(error)
