"""What was done in a run, in order, with its seconds. In: a record. Out: `Shown`.

The parts of the start are told apart by the log: the engine's own warm-up is one of them, and is not the warm-up
requests that the workload sends once the server is ready.
"""

from __future__ import annotations

from ..diagnose.outgoing import safe
from ..records.record import RunRecord
from ..records.types import CacheState
from .gpu_use import gpu_use, still_held
from .shown import Cell, Shown, Value, joined, paragraph, table, without_empty

_NAMES = {"warmup": "warm-up requests"}


def course(record: RunRecord) -> Shown:
    """The start with its parts, the warm-up, every step of the workload, the stop; and how it ended."""
    sent: dict[str, list[bool]] = {}
    for request in record.requests():
        known = request.step in record.status.phases  # a warm-up of ours is one phase, whatever its steps
        sent.setdefault(request.step if known else request.phase, []).append(request.ok)
    rows: list[list[Value]] = []
    for phase, seconds in record.status.phases.items():
        rows.append(_row(record, phase, seconds, sent.get(phase)))
        if phase == "start":
            rows += [_part(stage, part_s) for stage, part_s in record.status.stages.items()]
    ended = joined([still_held(record), paragraph(f"How it ended: {safe(record.status.reason)}."), gpu_use(record)])
    if not rows:
        return ended
    replay = record.replayed
    caption = f"Seconds that this {'replay' if replay else 'run'} took" + (
        "; the times of its requests are those of the recording" if replay else ""
    )
    headers = ["phase", "seconds", "requests answered", "prefix cache before"]
    return joined([table(*without_empty(headers, rows), caption=caption), ended])


def _row(record: RunRecord, phase: str, seconds: float, sent: list[bool] | None) -> list[Value]:
    answered = Cell(text="") if sent is None else Cell(text=f"{sum(sent)} of {len(sent)}", number=True)
    cache = record.status.caches.get(phase)
    return [
        _name(record, phase),
        _seconds(seconds),
        answered,
        Cell(text="") if cache is None else Cell(text=_cache(cache), below=_cached(cache)),
    ]


def _name(record: RunRecord, phase: str) -> str:
    """A start that is not known to have made a server ready went until something else."""
    if phase == "start" and record.status.ready_s is not None:
        return "start, until ready"
    return _NAMES.get(phase, phase.replace("_", " "))


def _part(stage: str, seconds: float) -> list[Value]:
    """Of the start, by the log; parts that took no time worth telling are there too."""
    return [f"– {stage}", _seconds(seconds), Cell(text=""), Cell(text="")]


def _seconds(seconds: float) -> Cell:
    return Cell(text=f"{seconds:,.2f}", number=True)


def _cache(cache: CacheState) -> str:
    """What the flush was answered, and what the engine then said that was held."""
    said = "flushed" if cache.flushed else "NOT flushed"
    return said if cache.used_tokens is None else f"{said}, {cache.used_tokens:,} tokens in use"


def _cached(cache: CacheState) -> str | None:
    """An idle engine renews this figure every 30 s only: after a flush it mostly is that of before."""
    if not cache.evictable_tokens:
        return None
    last = f"{cache.evictable_tokens:,} tokens cached by its last report"
    return f"{last}, which is up to 30 s old and may be from before the flush" if cache.flushed else last
