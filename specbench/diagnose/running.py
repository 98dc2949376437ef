"""Most requests that ran at once, by what the engine itself says. In: its log, and /metrics where they were asked. Out:
an `AtOnce`, or None when none of them tells.

A decode line is one step in forty, so a short meeting of requests is seen by none. A prefill line names those that it
begins and, apart from them, those that are running: together they were there at once. The client is not asked: a
request whose tokens keep it waiting looks the same to it as one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..engines.contract import ServerLog
from ..engines.sglang.metrics import RUNNING
from ..record_types import MetricSample


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    requests: int
    source: str  # who says so, e.g. "decode line 88"


def most_at_once(log: ServerLog, metrics: Iterable[MetricSample]) -> AtOnce | None:
    """Of equal figures the better witness counts: a decode line, a prefill line, /metrics."""
    said = [found for found in (_decode(log), _prefill(log), _metrics(metrics)) if found is not None]
    return max(said, key=lambda found: found.requests, default=None)


def _decode(log: ServerLog) -> AtOnce | None:
    running: Sequence[int | None] = log.decode.get("running_requests", ())
    rows = [(count, line) for count, line in zip(running, log.decode.get("line", ()), strict=True) if count is not None]
    most, line = max(rows, key=lambda row: row[0], default=(None, None))
    return None if most is None else AtOnce(requests=most, source=f"decode line {line}")


def _prefill(log: ServerLog) -> AtOnce | None:
    columns = (log.prefill.get(name, ()) for name in ("running_requests", "new_requests", "line"))
    rows = [
        (running + new, running, line)
        for running, new, line in zip(*columns, strict=True)
        if running is not None and new is not None
    ]
    if not rows:
        return None
    most, running, line = max(rows, key=lambda row: row[0])
    return AtOnce(requests=most, source=f"prefill line {line}: {running} running, {most - running} begun")


def _metrics(samples: Iterable[MetricSample]) -> AtOnce | None:
    values = [sample.value for sample in samples if sample.name.partition("{")[0] == RUNNING]
    return AtOnce(requests=int(max(values)), source=f"/metrics: {RUNNING}") if values else None
