"""The decode lines of a log in a few figures. In: the columns of `ServerLog.decode`. Out: `Serving`, or None."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..engines.contract import ServerLog
from ..reading.intervals import Interval, intervals
from .types import Serving


def serving(log: ServerLog) -> Serving | None:
    """None when the log has no decode line. A column of which nothing was logged gives None, never 0."""

    def known(name: str) -> list[Any]:
        return [value for value in log.decode.get(name, ()) if value is not None]

    lines = len(log.decode.get("line", ()))
    if lines == 0:
        return None
    accepted = known("accept_length")
    marks = intervals(log)
    return Serving(
        decode_lines=log.seen.get("decode", lines),
        running_max=max(known("running_requests"), default=None),
        queued_max=max(known("queued_requests"), default=None),
        token_usage_max=max(known("token_usage"), default=None),
        state_usage_max=max(known("state_usage"), default=None),
        accept_length_mean=statistics.fmean(accepted) if accepted else None,
        throughput_max=_peak(log.decode.get("throughput", ()), marks),
        idle_lines=marks.count("spans_idle"),
    )


def _peak(throughput: Sequence[float | None], marks: Sequence[Interval]) -> float | None:
    """None, too, when the highest line counts idle time: then it was faster than any line says."""
    rows = [(speed, mark != "spans_idle") for speed, mark in zip(throughput, marks, strict=True) if speed is not None]
    speed, busy = max(rows, default=(None, False))
    return speed if busy else None
