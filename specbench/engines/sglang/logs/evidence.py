"""Lines of evidence by their number. A log's batch lines are many and few of them are ever shown: text on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....logtext import as_text

_LONGEST = 2000


class Evidence(Mapping[int, str]):
    """Line number -> cleaned text, in the log's order. A line of thousands of characters is shortened."""

    def __init__(self, lines: Mapping[int, bytes | str]) -> None:
        self._lines = {number: lines[number] for number in sorted(lines)}

    def __getitem__(self, number: int) -> str:
        line = self._lines[number]
        text = as_text(line.rpartition(b"\r")[2]) if isinstance(line, bytes) else line
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

    def __iter__(self) -> Iterator[int]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"Evidence({len(self)} lines)"
