"""Remedies that another run of the same collection has tried. In: a remedy and records. Out: the run that proves it.

A run is a proof when its configuration has the remedy's values and is otherwise the same in everything that decides
memory. Only the static fraction may differ by a little, and then the difference is named: it is often tuned so
that two runs leave the same memory. Where one of the two emulates a smaller card, its own fraction is of another card
than the other run's: then the fractions that the servers are passed are compared. What a run was called, what it
replayed and what was sent to it do not matter.

A remedy that is not about memory names the keys that decide (`decided_by`): then every other difference is allowed, and
named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import RunConfig
from ..diagnose.finding import Remedy
from ..engines.sglang.given import arg_name, server_args
from ..engines.sglang.resolve import settings
from ..errors import SpecbenchError
from ..records.record import RunRecord

FRACTION, EMULATE, _WIDTH = "memory.mem_fraction_static", "gpu.emulate", "speculative.num_draft_tokens"
#: Under which a difference between passed fractions is named.
_PASSED = f"{FRACTION} as passed"
_FLAG = "engine.args."
_FRACTION_SLOP = 0.005
_SECTIONS = ("parallel", "speculative", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A run that has the remedy applied."""

    record: RunRecord
    other: dict[str, tuple[Any, Any]]  # further differences: dotted key -> (failing run, this run)


def proofs(remedy: Remedy, failing: RunConfig, records: Iterable[RunRecord]) -> tuple[Proof, ...]:
    """The runs that applied the remedy, closest first; of equally close ones those that answered requests first."""
    if remedy.decided_by:
        return _engine_proofs(remedy, failing, records)
    origin = deciding(failing)
    decided = [key for key in remedy.set if key in origin]
    if not decided:
        return ()
    found: list[Proof] = []
    for record in records:
        tried = deciding(record.config)
        one_emulates = (origin[EMULATE] is None) != (tried[EMULATE] is None)
        aside = {EMULATE, FRACTION} if one_emulates else set()
        if any(tried[key] != remedy.set[key] for key in decided if key not in aside):
            continue
        other = {
            key: (value, tried[key])
            for key, value in origin.items()
            if key not in remedy.set and key not in aside and tried[key] != value
        }
        if other.keys() - {FRACTION}:
            continue
        if one_emulates:
            other[_PASSED] = (passed_fraction(failing.replace(remedy.set)), passed_fraction(record.config, record.env))
        if all(_near(here, there) for here, there in other.values()):
            found.append(Proof(record=record, other={key: pair for key, pair in other.items() if pair[0] != pair[1]}))
    return _closest_first(found)


def _engine_proofs(remedy: Remedy, failing: RunConfig, records: Iterable[RunRecord]) -> tuple[Proof, ...]:
    """Of a remedy for what the engine does, whatever the memory: every other difference is named."""
    keys = (*remedy.set, *remedy.decided_by)
    origin = deciding(failing) | _flags(failing, keys)
    found: list[Proof] = []
    for record in records:
        tried = deciding(record.config) | _flags(record.config, keys)
        other = {
            key: (origin[key], tried[key]) for key in origin if key not in remedy.set and tried[key] != origin[key]
        }
        if all(tried[key] == value for key, value in remedy.set.items()) and not other.keys() & {*remedy.decided_by}:
            found.append(Proof(record=record, other=other))
    return _closest_first(found)


def _flags(config: RunConfig, keys: Iterable[str]) -> dict[str, Any]:
    """The flags among the keys that have no key of their own, whatever their spelling in the configuration."""
    arguments = server_args(config)
    flags = {key: arg_name(key.removeprefix(_FLAG)) for key in keys if key.startswith(_FLAG)}
    return {key: arguments.get(name) for key, name in flags.items()}


def _closest_first(found: Iterable[Proof]) -> tuple[Proof, ...]:
    return tuple(sorted(found, key=lambda one: (len(one.other), not one.record.requests(), one.record.name)))


def passed_fraction(config: RunConfig, env: Mapping[str, Any] | None = None) -> float | None:
    """The fraction on the command line: as recorded in env.json, else as computed; None: it cannot be."""
    recorded = (env or {}).get("emulation")
    told = recorded.get("passed") if isinstance(recorded, Mapping) else None
    if isinstance(told, float):
        return told
    try:
        resolved = settings(config)
    except SpecbenchError:
        return None
    return resolved.fraction if resolved.emulation is None else resolved.emulation.passed


def _near(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and abs(first - second) <= _FRACTION_SLOP


def deciding(config: RunConfig) -> dict[str, Any]:
    """The keys that decide memory, dotted, with their values; draft tokens that are not given as the draft has them."""
    data = config.to_sections()
    flat = {f"{section}.{key}": value for section in _SECTIONS for key, value in data[section].items()}
    flat |= {"model": data["model"], "engine.version": data["engine"]["version"], "gpu.name": data["gpu"]["name"]}
    flat[EMULATE] = data["gpu"]["emulate"]
    if flat[_WIDTH] is None and config.speculative.algorithm != "none":
        flat[_WIDTH] = _own_width(config)
    return flat


def _own_width(config: RunConfig) -> int | None:
    """Draft tokens where none are given: the draft's own."""
    try:
        return settings(config).shape.verify_width or None
    except SpecbenchError:
        return None
