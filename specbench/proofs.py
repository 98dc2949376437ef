"""Remedies that another run of the same collection has tried. In: a remedy and records. Out: the run that proves it.

A run is a proof when its configuration has the remedy's values and otherwise differs from the failing run in at most
two keys of what decides memory; those are named, so that nobody takes a neighbour for the same configuration. What a
run was called, what it replayed and what was sent to it do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .config import RunConfig
from .diagnose import Remedy
from .record import RunRecord

_MAX_OTHER = 2
_SECTIONS = ("parallel", "speculative", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A run that has the remedy applied."""

    record: RunRecord
    other: dict[str, tuple[Any, Any]]  # further differences: dotted key -> (failing run, this run)


def proof(remedy: Remedy, failing: RunConfig, records: Iterable[RunRecord]) -> Proof | None:
    """The closest run that applied the remedy; None when no run did."""
    origin = _deciding(failing)
    found: list[tuple[int, str, RunRecord, dict[str, tuple[Any, Any]]]] = []
    for record in records:
        tried = _deciding(record.config)
        if any(key not in tried or tried[key] != value for key, value in remedy.set.items() if key in origin):
            continue
        if not any(key in origin for key in remedy.set):
            continue
        other = {
            key: (value, tried[key]) for key, value in origin.items() if key not in remedy.set and tried[key] != value
        }
        if len(other) <= _MAX_OTHER and "engine.version" not in other and "model" not in other:
            found.append((len(other), record.name, record, other))
    if not found:
        return None
    _, _, record, other = min(found, key=lambda one: one[:2])
    return Proof(record=record, other=other)


def _deciding(config: RunConfig) -> dict[str, Any]:
    """The keys that decide memory, dotted, with their values."""
    data = config.to_sections()
    flat = {f"{section}.{key}": value for section in _SECTIONS for key, value in data[section].items()}
    flat |= {"model": data["model"], "engine.version": data["engine"]["version"], "gpu.name": data["gpu"]["name"]}
    return flat
