"""What the interval that a decode line sums up was like. In: a `ServerLog`. Out: a mark per decode line.

The engine prints a decode line every so many decode steps and divides the tokens since the last one by the wall time
since the last one (`last_decode_stats_tic`, sglang/srt/managers: scheduler_metrics_mixin.py of 0.5.6,
scheduler_components/metrics_reporter.py of 0.5.16 and 0.5.23). That time also holds prefills, and all the while in
which nobody asked for anything. The acceptance length counts rounds, so it does not suffer.

A log whose batch lines were thinned (see `engines.sglang.logs.batches`) lacks some of the prefill lines that tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..engines.contract import ServerLog

#: steady: the same requests decoded all the while. mixed: a prefill or another number of requests fell into it.
#: spans_idle: nothing ran when a prefill in it began, so it counts time in which nothing was to do.
#: unknown: the first line of a rank, of which no prefill line tells.
Interval = Literal["steady", "mixed", "spans_idle", "unknown"]


@dataclass(slots=True)
class _Rank:
    """What a rank printed since its last decode line."""

    running: int | None = None  # of the last decode line
    decoded: bool = False
    prefills: int = 0
    from_empty: bool = False


def intervals(log: ServerLog) -> tuple[Interval, ...]:
    """A mark per decode line, in the log's order."""
    seen: dict[str, _Rank] = {}
    found: list[Interval] = []
    for _, is_decode, rank, running in _in_order(log):
        so_far = seen.setdefault(rank, _Rank())
        if not is_decode:
            so_far.prefills += 1
            so_far.from_empty = so_far.from_empty or running == 0
            continue
        if so_far.from_empty:
            found.append("spans_idle")
        elif so_far.prefills or (so_far.decoded and (running is None or running != so_far.running)):
            found.append("mixed")
        else:
            found.append("steady" if so_far.decoded else "unknown")
        seen[rank] = _Rank(running=running, decoded=True)
    return tuple(found)


def _in_order(log: ServerLog) -> list[tuple[int, bool, str, int | None]]:
    """(line, whether it is a decode line, rank, running requests) of all batch lines, by line."""
    rows = [(line, True, rank, running) for line, rank, running in _rows(log.decode)]
    rows += [(line, False, rank, running) for line, rank, running in _rows(log.prefill)]
    return sorted(rows, key=lambda row: row[0])


def _rows(table: Mapping[str, Sequence[Any]]) -> list[tuple[int, str, int | None]]:
    columns = (table.get(name, ()) for name in ("line", "rank", "running_requests"))
    return list(zip(*columns, strict=True))
