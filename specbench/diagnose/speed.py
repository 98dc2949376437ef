"""How fast a server made tokens, as far as a record or a log tells: what speculation is judged by.

In: a record or a log. Out: a `Speed`, with the time per output token per step of the workload (record) and per number
of running requests (decode lines). Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..engines.contract import ServerLog
from ..engines.sglang import logs
from ..errors import LogFormatError
from ..paths import resolve
from ..reading.latency import StepLatency, table
from ..reading.pace import Pace, paces
from ..records.caveats import random_weights
from ..records.record import RunRecord
from ..specs import named_by
from .shared_log import refuse_shared

_UNNAMED = "an algorithm that its log does not name"
#: Arguments that make a step of another length, as the engine prints them.
_SETTINGS = (
    *("dtype", "quantization", "kv_cache_dtype", "attention_backend", "disable_cuda_graph", "dp_size", "ep_size"),
    *("pp_size", "load_format"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One server's. Times are medians."""

    name: str
    model: str | None  # as the server was told; None: not logged
    tp_size: int | None
    version: str | None
    algorithm: str | None  # of speculation; None: none
    random_weights: bool  # filled, not loaded: a draft accepts about nothing
    steps: Mapping[tuple[int, int], StepLatency]  # (clients, input tokens); empty: a bare log
    paces: Mapping[int, Pace]  # by running requests
    settings: Mapping[str, object]  # arguments on which speed depends, as printed; empty: not logged


def of_record(record: RunRecord, log: ServerLog | None = None) -> Speed:
    """A record's. `log`: when it was read already."""
    read = log or logs.read(record.log_path, name=record.log_path.name, version=record.config.engine.version)
    config = record.config
    return Speed(
        name=record.name,
        model=config.model,
        tp_size=config.parallel.tp_size,
        version=config.engine.version,
        algorithm=None if config.speculative.algorithm.lower() == "none" else config.speculative.algorithm,
        random_weights=random_weights(config),
        steps={
            (row.concurrency, row.input_tokens): row
            for row in table(record).measured
            if row.concurrency is not None and row.tpot_s is not None and not row.inexact
        },
        paces=paces(read),
        settings=_settings(read),
    )


def _settings(log: ServerLog) -> dict[str, object]:
    arguments = log.server_args or {}
    return {name: arguments[name] for name in _SETTINGS if name in arguments}


def differences(one: Speed, other: Speed) -> list[str]:
    """Settings in which two servers differ, in words; those that one of them did not log are left out."""
    names = [name for name in one.settings if name in other.settings and one.settings[name] != other.settings[name]]
    return [f"{name} {str(one.settings[name])[:40]} against {str(other.settings[name])[:40]}" for name in names]


def of_log(log: ServerLog, name: str | None = None) -> Speed:
    """A bare log's."""
    arguments = log.server_args or {}
    model, size = arguments.get("model_path"), arguments.get("tp_size")
    accepts = any(value is not None for value in log.decode.get("accept_length", ()))
    algorithm = arguments.get("speculative_algorithm") or (_UNNAMED if accepts else None)
    return Speed(
        name=name or PurePosixPath(log.source).name,
        model=model if isinstance(model, str) else None,
        tp_size=size if isinstance(size, int) else None,
        version=log.version,
        algorithm=None if algorithm is None else str(algorithm),
        random_weights=arguments.get("load_format") == "dummy",
        steps={},
        paces=paces(log),
        settings=_settings(log),
    )


def of_path(path: str | Path) -> Speed:
    """A record's folder or a log. ConfigError, RecordError: no such record; LogFormatError: no log of this engine."""
    found = resolve(path, kind="record or log")
    if found.is_dir():
        return of_record(RunRecord.open(found))
    refuse_shared(found)
    log = logs.read(found)
    if not logs.recognised(log):
        raise LogFormatError(
            f"{found}: {log.lines_total:,} lines, and none is a known line of an SGLang server.\n"
            "Give the log of the same server without speculation, or its record."
        )
    return of_log(log, str(path))


def same_model(one: str | None, other: str | None) -> bool:
    """By name; an unknown one may be any."""
    if one is None or other is None or one == other:
        return True
    known = named_by(one)
    if known is not None and known == named_by(other):
        return True
    return PurePosixPath(one).name.lower() == PurePosixPath(other).name.lower()
