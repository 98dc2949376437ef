"""Most requests that ran at once, by what the engine itself says. In: its log, and /metrics where they were asked, and
the requests as the client saw them. Out: an `AtOnce`, or None when none of them tells.

A decode line is one step in forty, so a short meeting of requests is seen by none. A prefill line names those that it
begins and, apart from them, those that are running: together they were there at once. The client is asked only where
the engine says nothing (a server that somebody else started, without its log): a request whose tokens keep it waiting
looks the same to it as one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..engines.contract import ServerLog
from ..engines.sglang.metrics import RUNNING
from ..records.types import MetricSample, RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    requests: int
    source: str  # who says so, e.g. "decode line 88"


def most_at_once(
    log: ServerLog, metrics: Iterable[MetricSample], requests: Sequence[RequestTrace] = ()
) -> AtOnce | None:
    """Of equal figures the better witness counts: a decode line, a prefill line, /metrics.

    `requests`: those of one engine; with several behind one address the client's count is none of theirs.
    """
    said = [found for found in (_decode(log), _prefill(log), _metrics(metrics)) if found is not None]
    return max(said, key=lambda found: found.requests) if said else _client(requests)


def _decode(log: ServerLog) -> AtOnce | None:
    running: Sequence[int | None] = log.decode.get("running_requests", ())
    rows = [(count, line) for count, line in zip(running, log.decode.get("line", ()), strict=True) if count is not None]
    most, line = max(rows, key=lambda row: row[0], default=(None, None))
    return None if most is None else AtOnce(requests=most, source=f"decode {log.where(line)}")


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
    return AtOnce(requests=most, source=f"prefill {log.where(line)}: {running} running, {most - running} begun")


def _metrics(samples: Iterable[MetricSample]) -> AtOnce | None:
    values = [sample.value for sample in samples if sample.name.partition("{")[0] == RUNNING]
    return AtOnce(requests=int(max(values)), source=f"/metrics: {RUNNING}") if values else None


def _client(requests: Sequence[RequestTrace]) -> AtOnce | None:
    """Most answered requests of one step between their first and their last chunk. Not of a replay's stand-ins: their
    times are those of requests that waited for others.
    """
    found: list[tuple[int, str]] = []
    for step in dict.fromkeys(request.step for request in requests):
        streams = [
            (request.sent_s + request.chunks[0][0], request.sent_s + request.chunks[-1][0])
            for request in requests
            if request.step == step and request.ok and request.chunks and request.replayed_exactly is not False
        ]
        # Of one moment the beginnings come first: a stream of a single chunk begins and ends in it.
        moments = sorted([(begin, 0) for begin, _ in streams] + [(end, 1) for _, end in streams])
        running = list(accumulate(-1 if ended else 1 for _, ended in moments))
        found.append((max(running, default=0), step))
    most, step = max(found, key=lambda one: one[0], default=(0, ""))
    return AtOnce(requests=most, source=f"the client's own count of streams in {step}") if most else None
