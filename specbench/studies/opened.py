"""A record's folder or a bare log, opened for a notebook or a page. In: a path, or paths. Out: a `Seen`.

`opened` alone decides which of the two it is; whatever shows it asks the same questions of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, cast

from .. import __version__
from ..configuration.explain import listed, shown
from ..diagnose.absent_ranks import absent_ranks
from ..diagnose.against import with_other
from ..diagnose.diagnosis import of_paths
from ..diagnose.told import Told, told_by
from ..diagnose.types import Diagnosis
from ..errors import ConfigError
from ..paths import resolve
from ..reading.latency import LatencyTable
from ..records.types import GpuSample, RequestTrace
from ..terms import LIMITS, Limit
from .seen import Seen
from .study import Study, study

_BY_NAME = ("model", "gpu", "version", "launch", "server")
_MAPPINGS = ("arguments", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStudy(Seen):
    """A log without a record, diagnosed."""

    name: str
    diagnosis: Diagnosis

    @property
    def record(self) -> None:
        return None

    @property
    def folder(self) -> None:
        return None

    @property
    def latency(self) -> LatencyTable:
        return LatencyTable(name=self.name, origin=self.origin, rows=(), notes=())

    @property
    def asked_limits(self) -> Mapping[Limit, int | None]:
        """As the log's own arguments give them; None: not given, or not logged."""
        asked = self.diagnosis.requested
        return {limit: value if isinstance(value := asked.get(limit), int) else None for limit in LIMITS}

    @property
    def asked_is_told(self) -> bool:
        """Without its arguments in the log nobody knows what was asked."""
        return self.diagnosis.log.server_args is not None

    @property
    def notes(self) -> tuple[str, ...]:
        return self.diagnosis.marks

    @property
    def provenance(self) -> tuple[str, ...]:
        """recorded: a log alone | SGLang 0.5.11 to 0.5.12 | model | specbench 0.1.0."""
        arguments = self.diagnosis.log.server_args or {}
        model = arguments.get("model_path")
        return (
            f"{self.origin}: a log alone",
            f"SGLang {self.diagnosis.version_text}",
            str(model) if model is not None else "model not logged",
            *([] if self.config is None or (of := absent_ranks(self.config, self.diagnosis.pools)) is None else [of]),
            f"specbench {__version__}",
        )

    @property
    def requests(self) -> tuple[RequestTrace, ...]:
        return ()

    @property
    def gpu_samples(self) -> tuple[GpuSample, ...]:
        return ()

    @property
    def no_requests(self) -> str:
        return "A bare log has no requests of ours: how fast the answers came is not known from it."


def opened(
    source: str | Path | Sequence[str | Path],
    *,
    told: Told | Mapping[str, Any] | None = None,
    against: str | Path | None = None,
) -> Study | LogStudy:
    """A record (or its run folder), or a log (or the files of one server's ranks), diagnosed.

    `told`: what the user knows beside a bare log, as `Told`, or by name: model, gpu, version, launch (a
    launch command), arguments, env; of a log that several servers wrote, server. `against`: a record or a log of
    the same server without speculation, to tell whether speculation pays. ConfigError: no such file, or no such server.
    RecordError, LogFormatError: it is there, and cannot be read as what it is.
    """
    paths = list(source) if isinstance(source, (list, tuple)) else [cast(Path, source)]
    beside = _told(told)
    if len(paths) == 1 and resolve(paths[0], kind="record or log").is_dir():
        record = study(paths[0])
        return record if against is None else dataclasses.replace(record, diagnosis=_judged(record.diagnosis, against))
    if not paths:
        raise ConfigError("record: no path.\nExpected a record's folder, or a log, or the logs of one server's ranks.")
    found = _judged(of_paths(paths, told=beside), against)
    return LogStudy(name=found.name, diagnosis=found)


def _judged(found: Diagnosis, against: str | Path | None) -> Diagnosis:
    return found if against is None else with_other(found, against)


def _told(told: Told | Mapping[str, Any] | None) -> Told | None:
    if told is None or isinstance(told, Told):
        return told
    if not isinstance(told, Mapping):
        raise ConfigError(f"told: got {shown(told)}.\nExpected names with their values, as in the notebook's comment.")
    unknown = [name for name in told if name not in (*_BY_NAME, *_MAPPINGS)]
    if unknown:
        raise ConfigError(f"told: {shown(unknown[0])}: no such key.\nAllowed here: {listed((*_BY_NAME, *_MAPPINGS))}.")
    for name, value in told.items():
        if not isinstance(value, Mapping if name in _MAPPINGS else (str, NoneType)):
            expected = "names with their values" if name in _MAPPINGS else "text"
            raise ConfigError(f"told: {name}: got {shown(value)}.\nExpected {expected}, as in the notebook's comment.")
    launched = told_by(**{name: told.get(name) for name in _BY_NAME})
    return dataclasses.replace(
        launched,
        arguments={**launched.arguments, **told.get("arguments", {})},
        env={**launched.env, **told.get("env", {})},
    )
