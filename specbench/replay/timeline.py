"""A recorded log, cut into pieces that are written at their time: the start, one piece per step, the rest.

In: the log's bytes, the recorded requests and the marks of the start. Out: `Emission`s (seconds, bytes). Joined in
order they are the log, byte for byte.

The non-obvious thing: stamps have a resolution of one second. Lines of the same second are spread evenly over it, and
marks taken by a finer clock (seconds since the start at which a line was first seen) pin the lines they belong to. A
step's lines begin with the access line of its first request, found by counting requests, not by the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..engines.sglang.log_clock import (
    MARKS,
    is_batch,
    is_generate_request,
    is_listening,
    is_other_request,
    is_ready,
    line_time,
)
from ..records.types import RequestTrace

#: A mark was taken by polling: it is at most this late.
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Emission:
    at_s: float  # seconds since the start of its piece
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A log in pieces. `start` ends with the line that makes it ready, or with the last line when it never was."""

    start: tuple[Emission, ...]
    listening: int | None  # index in `start` of the line from which the port accepts; None: never
    ready: int | None  # index in `start` from which /health answers 200; None: never
    steps: Mapping[str, tuple[Emission, ...]]  # step -> its lines, seconds since the step's first request
    rest: tuple[Emission, ...]  # what was logged after the last step, seconds since the first of these lines


def timeline(log: bytes, traces: Sequence[RequestTrace], marks: Mapping[str, float], *, to_the_end: bool) -> Timeline:
    """Cuts a log. `to_the_end`: the run crashed while serving, so what follows the last step belongs to it."""
    lines = _physical_lines(log)
    stamps = [line_time(line) for line in lines]
    at = _pinned(_spread(stamps), lines, stamps, marks)
    listening = next((i for i, line in enumerate(lines) if is_listening(line)), None)
    fired = next((i for i, line in enumerate(lines) if is_ready(line)), None)
    ready = None if listening is None or fired is None else max(listening, fired)
    if ready is None:
        return Timeline(start=_piece(lines, at), listening=listening, ready=None, steps={}, rest=())
    began = _step_beginnings(lines, stamps, ready, traces)
    first = min(began.values(), default=len(lines))
    # Without steps everything after the start (the recorder's own look at /server_info) still belongs to it.
    start = _piece(lines[:first], at[:first])
    last = len(lines) if to_the_end or not began else _end_of_steps(lines, stamps, max(began.values()), traces)
    places = [*sorted(began.items(), key=lambda item: item[1]), ("", last)]
    steps = {name: _piece(lines[begin:end], at[begin:end]) for (name, begin), (_, end) in pairwise(places)}
    rest = _piece(lines[last:], at[last:])
    return Timeline(start=start, listening=listening, ready=ready, steps=steps, rest=rest)


def _physical_lines(log: bytes) -> list[bytes]:
    """Lines end at \\n alone: a progress bar redraws itself with \\r on one line."""
    parts = log.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _spread(stamps: Sequence[float | None]) -> list[float]:
    """Seconds since the first stamp, never falling; the lines of one second spread evenly over it."""
    origin = next((stamp for stamp in stamps if stamp is not None), 0.0)
    counts: dict[float, int] = {}
    for stamp in stamps:
        if stamp is not None:
            counts[stamp] = counts.get(stamp, 0) + 1
    seen: dict[float, int] = {}
    at: list[float] = []
    latest = 0.0
    for stamp in stamps:
        if stamp is not None:
            place = seen.get(stamp, 0)
            seen[stamp] = place + 1
            share = place / counts[stamp] if stamp == int(stamp) else 0.0
            latest = max(latest, stamp - origin + share)
        at.append(latest)
    return at


def _pinned(
    at: list[float], lines: Sequence[bytes], stamps: Sequence[float | None], marks: Mapping[str, float]
) -> list[float]:
    """`at` with the lines of known marks moved to their finer time, and the others kept between these."""
    places = {name: next((i for i, line in enumerate(lines) if text in line), None) for name, text in MARKS.items()}
    known = [
        (place, marks[name], stamp)
        for name, place in places.items()
        if place is not None and name in marks and (stamp := stamps[place]) is not None
    ]
    if not known:
        return at
    # The marks' clock began at an unknown moment: it must put every mark into the second of its line's stamp.
    low = max(stamp - seconds for _, seconds, stamp in known)
    high = min(stamp + 1 + _POLL_S - seconds for _, seconds, stamp in known)
    if low > high:
        return at
    origin = next(stamp for stamp in stamps if stamp is not None)
    pins: list[tuple[int, float]] = []
    for place, seconds, _ in sorted(known):
        moment = max(0.0, (low + high) / 2 + seconds - origin)
        pins.append((place, max(moment, pins[-1][1]) if pins else moment))
    moved = list(at)
    borders = [(-1, 0.0), *pins, (len(at), float("inf"))]
    for (begin, floor), (end, ceiling) in pairwise(borders):
        for place in range(begin + 1, min(end, len(at))):
            moved[place] = min(max(at[place], floor), ceiling)
    for place, moment in pins:
        moved[place] = moment
    return moved


def _step_beginnings(
    lines: Sequence[bytes], stamps: Sequence[float | None], ready: int, traces: Sequence[RequestTrace]
) -> dict[str, int]:
    """step -> index of its first line: the access line of its first request."""
    answered = [trace for trace in traces if trace.http_status is not None]
    requests = [i for i in range(ready + 1, len(lines)) if is_generate_request(lines[i])]
    if not answered:
        return {}
    began: dict[str, int] = {}
    if len(requests) >= len(answered):
        for trace, place in zip(_in_order(answered), requests, strict=False):
            began.setdefault(trace.step, place)
        return began
    # Access lines are missing (a log level, a proxy): fall back to the clock, in whole hours of time zone.
    timed = [trace for trace in answered if trace.sent_unix_s is not None]
    first = next((s for s in stamps[ready:] if s is not None), None)
    if not timed or first is None:
        return {}
    zone_s = round((first - min(t.sent_unix_s or 0.0 for t in timed)) / 900) * 900
    for trace in _in_order(timed):
        moment = int((trace.sent_unix_s or 0.0) + zone_s)
        place = next((i for i in range(ready + 1, len(lines)) if (stamps[i] or 0.0) >= moment), len(lines))
        began.setdefault(trace.step, place)
    return began


def _end_of_steps(
    lines: Sequence[bytes], stamps: Sequence[float | None], begin: int, traces: Sequence[RequestTrace]
) -> int:
    """Index of the first line after the last step: written in a later second, or about some other request."""
    if begin == len(lines):  # nothing was logged about the last step
        return begin
    step = max((t for t in traces if t.http_status is not None), key=lambda t: (t.sent_unix_s or 0.0, t.index)).step
    of_step = [trace for trace in traces if trace.step == step and trace.http_status is not None]
    took_s = max(trace.sent_s + (trace.end_s or 0.0) for trace in of_step)
    unix = [trace.sent_unix_s for trace in of_step if trace.sent_unix_s is not None]
    # One second of doubt goes to the step: its beginning is known to the second only.
    border = int((stamps[begin] or 0.0) + (min(unix) % 1 if unix else 0.0) + took_s)
    later = next((i for i in range(begin, len(lines)) if (stamps[i] or 0.0) > border), len(lines))
    requests = [i for i in range(begin, later) if is_generate_request(lines[i])][len(of_step) :]
    others = [i for i in range(begin, later) if is_other_request(lines[i])]
    other = min([*requests, *others], default=None)
    if other is None:
        return later
    # What an error says stands before its access line: the step ends with its last own line.
    return max(i for i in range(begin, other) if is_batch(lines[i]) or is_generate_request(lines[i])) + 1


def _in_order(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    return sorted(traces, key=lambda trace: (trace.sent_unix_s or 0.0, trace.index))


def _piece(lines: Sequence[bytes], at: Sequence[float]) -> tuple[Emission, ...]:
    """Emissions timed from the piece's first line."""
    return tuple(Emission(max(0.0, moment - at[0]), line) for line, moment in zip(lines, at, strict=True))
