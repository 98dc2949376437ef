"""How fast tokens come at a number of running requests, from decode lines that count nothing but decoding.

In: a `ServerLog`. Out: a `Pace` per number of running requests. A line's throughput is that of all running requests
together, so running / throughput is the time per token of each; times the acceptance length it is the time of a step
(one draft and one verification; without speculation one token).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ..engines.contract import ServerLog
from .intervals import intervals

#: Fewer lines of one number of running requests are chance.
LEAST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Medians over the steady lines of one number of running requests."""

    running: int
    lines: int
    token_s: float  # seconds per token of each request
    accept_length: float | None  # tokens per verify round, bonus included; None: no speculation
    tokens_each: float | None  # KV tokens of each request; None: not logged


def paces(log: ServerLog) -> dict[int, Pace]:
    """By number of running requests, ascending; only those with at least `LEAST_LINES` lines."""
    names = ("running_requests", "throughput", "accept_length", "tokens")
    grouped: dict[int, list[tuple[float, float | None, int | None]]] = {}
    for mark, running, speed, accepted, tokens in zip(
        intervals(log), *(log.decode.get(name, ()) for name in names), strict=True
    ):
        if mark == "steady" and running and speed:
            grouped.setdefault(running, []).append((running / speed, accepted, tokens))
    return {
        running: Pace(
            running=running,
            lines=len(rows),
            token_s=statistics.median(row[0] for row in rows),
            accept_length=_median([row[1] for row in rows]),
            tokens_each=_median([row[2] / running for row in rows if row[2]]),
        )
        for running, rows in sorted(grouped.items())
        if len(rows) >= LEAST_LINES
    }


def _median(values: list[float | None] | list[float]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
