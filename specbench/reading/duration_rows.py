"""Rows of data/durations.yaml from records of real starts: how long a server took until it was ready.

In: records of one machine and its campaigns. Out: a row for each version, number of GPUs, and with or without CUDA
graphs: the start in the middle (of an even number the longer one). Whether kernels were compiled on the way no record
says: the first start of a version on a number of GPUs counts as one that did where it took much longer than the others,
or where there is no other, and is a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ..engines.sglang.given import server_args
from ..records.caveats import random_weights
from ..records.record import RunRecord
from .reasons import without_row

#: What the table is of: a row names neither, and what starts of others take would be taken for theirs.
MODEL, GPU = "Qwen/Qwen3.6-27B", "h200"
#: The first start compiled its kernels when it took so many times as long as the one in the middle of the others.
_LONGER = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationRows:
    rows: tuple[dict[str, Any], ...]
    without: tuple[tuple[str, str], ...]  # record, why it gives none


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    name: str
    began_s: float
    ready_s: float
    graphs: bool


def duration_rows(records: Iterable[RunRecord], damaged: Iterable[tuple[str, str]] = ()) -> DurationRows:
    """Proposed rows. `damaged`: what could not be opened, and why."""
    groups: dict[tuple[str, int], list[_Start]] = {}
    without = [without_row(name, why) for name, why in damaged]
    for record in records:
        config, status = record.config, record.status
        ready_s, began_s = status.ready_s, status.started_unix_s
        if (reason := _useless(record)) is not None or ready_s is None or began_s is None:
            without.append((record.name, reason or "it was never ready"))
            continue
        graphs = server_args(config).get("disable_cuda_graph") is not True
        start = _Start(name=record.name, began_s=began_s, ready_s=ready_s, graphs=graphs)
        groups.setdefault((config.engine.version, config.gpu.count), []).append(start)
    rows = [row for (version, gpus), starts in groups.items() for row in _rows(version, gpus, starts)]
    return DurationRows(rows=tuple(rows), without=tuple(without))


def as_yaml(found: DurationRows) -> str:
    """What goes below `starts:`, a row a line; reasons as comments."""
    lines = (yaml.safe_dump(row, sort_keys=False, default_flow_style=True, width=1000) for row in found.rows)
    body = "".join(f"  - {line}" for line in lines)
    return body + "".join(f"  # {name}: no row: {reason}\n" for name, reason in found.without)


def _useless(record: RunRecord) -> str | None:
    status, config = record.status, record.config
    if config.engine.replay is not None or config.engine.attach is not None:
        return "no engine was started for it"
    if (config.model, config.gpu.name) != (MODEL, GPU):
        return f"{config.model} on {config.gpu.name}: the table is of {MODEL} on {GPU}"
    if not random_weights(config):
        return "it read its weights from a disk, which the table leaves out"
    if status.ready_s is None:
        return "it was never ready"
    if "dist_begin" in status.marks and not status.stages:
        return "its time counts from the first use of the GPU"
    return "when it began was not recorded" if status.started_unix_s is None else None


def _rows(version: str, gpus: int, starts: Sequence[_Start]) -> Iterable[dict[str, Any]]:
    first, *others = sorted(starts, key=lambda start: start.began_s)
    alike = [start for start in others if start.graphs == first.graphs]
    compiled = not alike or first.ready_s > _LONGER * _middle(alike).ready_s
    if compiled:
        yield _row(version, gpus, first, cold=True)
    warm = others if compiled else [first, *others]
    for graphs in (True, False):
        some = [start for start in warm if start.graphs == graphs]
        if some:
            yield _row(version, gpus, _middle(some), cold=False)


def _middle(starts: Sequence[_Start]) -> _Start:
    return sorted(starts, key=lambda start: start.ready_s)[len(starts) // 2]


def _row(version: str, gpus: int, start: _Start, *, cold: bool) -> dict[str, Any]:
    seconds = round(start.ready_s, 1)
    row = {"version": version, "gpus": gpus, "cuda_graphs": start.graphs, "cold": cold, "seconds": seconds}
    return row | {"source": start.name}
