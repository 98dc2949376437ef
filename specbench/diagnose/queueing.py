"""Decode lines with a queue, requests that run, and room in the KV pool; and words for what rules say of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..engines.contract import Line
from .case import Case

#: A pool has room below this usage; a queue is no accident from this share of the decode lines on.
ROOM, OFTEN = 0.5, 0.2


def waiting(case: Case) -> list[int]:
    """The rows of the decode table in which requests wait beside a KV pool with room."""
    columns = (case.column(name) for name in ("queued_requests", "token_usage", "running_requests"))
    return [
        row
        for row, (queued, usage, running) in enumerate(zip(*columns, strict=True))
        if queued and running and usage is not None and usage < ROOM
    ]


def share(usage: float) -> str:
    """'1%'; the log has two decimals, and its 0.00 is not nothing."""
    return f"{usage:.0%}" if usage >= 0.005 else "under 1%"


def verb(plural: str, count: int) -> str:
    """'waits' of one, 'wait' of several."""
    return f"{plural}s" if count == 1 else plural


def rows_as_lines(case: Case, rows: Sequence[int]) -> tuple[Line, ...]:
    """The lines of some rows of the decode table, each once."""
    numbers = case.column("line")
    return tuple(line for row in dict.fromkeys(rows) for line in case.line(numbers[row]))
