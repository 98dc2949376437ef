"""Recordings that are the changed configuration, or nearly. In: the change and a folder of records. Out: which fit.

A recording fits when it is the same in everything that decides memory (see `studies.proofs`). The non-obvious things: a
configuration that was read from a bare log holds every argument as the engine printed it, its defaults too; a recording
is then compared by what its own log prints. Of one that emulated a smaller card the fraction counts that its server was
passed, beside a start that emulates none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..configuration.config import RunConfig
from ..diagnose.fromlog import config_of_log
from ..diagnose.told import Told
from ..engines.sglang.logs import read as read_log
from ..errors import ConfigError, SpecbenchError
from ..lifecycle.differences import OPEN
from ..paths import resolve, shortened
from ..reading.pools import report
from ..records.folders import has_record
from ..records.listing import every_folder
from ..records.record import RunRecord
from ..studies.proofs import EMULATE, FRACTION, deciding, passed_fraction

#: Compared before any log is read.
_PLAIN = ("memory.max_running_requests", "parallel.tp_size", "gpu.name", "model")
#: Fractions that differ by no more are one: on the largest card 3 MiB.
_SAME_FRACTION = 1e-5
_NEAREST = 3
#: Of one difference in its weight: another model or engine is further away than another number.
_FAR: Mapping[str, int] = {"model": 100, "engine.version": 10, "gpu.name": 10, "speculative.algorithm": 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A recording of another configuration."""

    name: str
    differences: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # key -> (recorded, as changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a folder of records has for a configuration."""

    same: tuple[RunRecord, ...]  # those that answered requests first
    nearest: tuple[Near, ...] = ()


def recordings(config: RunConfig, folder: str | Path | None, *, from_log: bool) -> Found:
    """`from_log`: the configuration was read from a log. ConfigError: there is no such folder, or it cannot be read.
    None: no recordings."""
    if folder is None:
        return Found(same=())
    root = resolve(folder, kind="recordings")
    try:
        records = list(_records(root))
    except OSError as error:
        raise ConfigError(
            f"recordings: {shortened(root)!r} cannot be read: {error.strerror}.\nGive a folder of records, or None."
        ) from None
    wanted = deciding(config)
    same = [record for record in records if _is(record, wanted, from_log=from_log)]
    if same:
        return Found(same=tuple(sorted(same, key=lambda record: (not record.requests(), record.name))))
    near = [Near(name=record.name, differences=_differences(deciding(record.config), wanted)) for record in records]
    return Found(same=(), nearest=tuple(sorted(near, key=_distance)[:_NEAREST]))


def _records(root: Path) -> Iterator[RunRecord]:
    for folder in every_folder(root):
        if has_record(folder):
            try:
                record = RunRecord.open(folder)
                has_log = record.log_path.is_file()
            except SpecbenchError:
                continue  # a damaged one plays nothing
            if has_log:
                yield record


def _is(record: RunRecord, wanted: Mapping[str, Any], *, from_log: bool) -> bool:
    recorded = deciding(record.config)
    if any(recorded[key] != wanted[key] for key in _PLAIN):
        return False
    if _alike(recorded, wanted) or (recorded[EMULATE] != wanted[EMULATE] and _alike(_passed(record), wanted)):
        return True
    return from_log and any(_alike(deciding(config), wanted) for config in _as_logged(record))


def _passed(record: RunRecord) -> dict[str, Any]:
    """What decides memory of a run that emulated a smaller card, as its server was passed it: of the card itself."""
    return {**deciding(record.config), EMULATE: None, FRACTION: passed_fraction(record.config, record.env)}


def _alike(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(_equal(recorded.get(key), value) for key, value in wanted.items())


def _equal(recorded: Any, wanted: Any) -> bool:
    if isinstance(recorded, float) and isinstance(wanted, float):
        return abs(recorded - wanted) <= _SAME_FRACTION
    return bool(recorded == wanted)


def _as_logged(record: RunRecord) -> Iterator[RunConfig]:
    """The configuration as the recording's own log tells it; with the version as its lines leave it, and as known."""
    try:
        log = read_log(record.log_path, name=record.name)
        pools = report(log)
    except (SpecbenchError, OSError):
        return
    for version in (None, record.config.engine.version):
        told = Told(model=record.config.model, gpu=record.config.gpu.name, version=version)
        config = config_of_log(log, pools, record.name, told).config
        if config is not None:
            yield config


def _differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is stated otherwise; where one of the two leaves it to the engine nothing is known to differ."""
    return {
        key: (recorded[key], value)
        for key, value in wanted.items()
        if recorded[key] != value and not (recorded[key] in OPEN or value in OPEN)
    }


def _distance(near: Near) -> tuple[int, str]:
    return sum(_FAR.get(key, 1) for key in near.differences), near.name
