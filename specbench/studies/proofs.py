"""Remedies that another run of the same collection has tried. In: a remedy and records. Out: the run that proves it.

A run is a proof when its configuration has the remedy's values and is otherwise the same in everything that decides
memory. Only the static fraction may differ by a little, and then the difference is named: it is often tuned so
that two runs leave the same memory. What a run was called, what it replayed and what was sent to it do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..configuration.config import RunConfig
from ..diagnose.finding import Remedy
from ..records.record import RunRecord

_FRACTION = "memory.mem_fraction_static"
_FRACTION_SLOP = 0.005
_SECTIONS = ("parallel", "speculative", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A run that has the remedy applied."""

    record: RunRecord
    other: dict[str, tuple[Any, Any]]  # further differences: dotted key -> (failing run, this run)


def proofs(remedy: Remedy, failing: RunConfig, records: Iterable[RunRecord]) -> tuple[Proof, ...]:
    """The runs that applied the remedy, closest first; of equally close ones those that answered requests first."""
    origin = _deciding(failing)
    decided = [key for key in remedy.set if key in origin]
    if not decided:
        return ()
    found: list[Proof] = []
    for record in records:
        tried = _deciding(record.config)
        if any(tried[key] != remedy.set[key] for key in decided):
            continue
        other = {
            key: (value, tried[key]) for key, value in origin.items() if key not in remedy.set and tried[key] != value
        }
        if other.keys() <= {_FRACTION} and _near(*other.get(_FRACTION, (0.0, 0.0))):
            found.append(Proof(record=record, other=other))
    return tuple(sorted(found, key=lambda one: (len(one.other), not one.record.requests(), one.record.name)))


def _near(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and abs(first - second) <= _FRACTION_SLOP


def _deciding(config: RunConfig) -> dict[str, Any]:
    """The keys that decide memory, dotted, with their values."""
    data = config.to_sections()
    flat = {f"{section}.{key}": value for section in _SECTIONS for key, value in data[section].items()}
    flat |= {"model": data["model"], "engine.version": data["engine"]["version"], "gpu.name": data["gpu"]["name"]}
    flat["gpu.emulate"] = data["gpu"]["emulate"]
    return flat
