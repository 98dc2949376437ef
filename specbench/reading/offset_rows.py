"""Rows of data/offsets.yaml from records whose starts measured their own offsets.

In: records. Out: proposed rows as YAML, and for every record that gives none the reason. Starts of one version,
algorithm, TP size and card that print the same figures share a row; where their offsets differ, the row says by how
much, and is not exact when that is more than a few tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from ..budget.freememory import loading_beside
from ..configuration.config import RunConfig
from ..engines.sglang.resolve import settings
from ..records.record import RunRecord
from ..speculative import canonical
from ..units import GIB, MIB, Interval
from .freeread import MeasuredOffsets, measured_offsets
from .reasons import without_row

#: Beyond this the starts do not agree: some tokens of a large model.
_AGREE = MIB // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One row, as data/offsets.yaml holds it."""

    row: dict[str, Any]
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    proposals: tuple[Proposal, ...]
    without: tuple[tuple[str, str], ...]  # record, why it has none


def offset_rows(records: Iterable[RunRecord], damaged: Iterable[tuple[str, str]] = ()) -> Offsets:
    """Proposed rows, in the order of the records. `damaged`: what could not be opened, and why."""
    groups: dict[tuple[Any, ...], list[tuple[RunRecord, MeasuredOffsets]]] = {}
    without = [without_row(name, why) for name, why in damaged]
    for record in records:
        found = measured_offsets(record)
        if isinstance(found, str):
            without.append((record.name, found))
            continue
        config = record.config
        key = (
            config.engine.sizing or config.engine.version,
            canonical(config.speculative.algorithm),
            config.parallel.tp_size,
            config.gpu.name,
            found.logged_pre.bytes,
            found.logged_post.bytes,
        )
        groups.setdefault(key, []).append((record, found))
    return Offsets(proposals=tuple(map(_proposal, groups.values())), without=tuple(without))


def as_yaml(offsets: Offsets) -> str:
    """What goes below `rows:` of data/offsets.yaml; reasons as comments."""
    rows = [proposal.row for proposal in offsets.proposals]
    text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=1000) if rows else ""
    body = "".join(f"  {line}\n" for line in text.splitlines())
    return body + "".join(f"  # {name}: no row: {reason}\n" for name, reason in offsets.without)


def _proposal(group: list[tuple[RunRecord, MeasuredOffsets]]) -> Proposal:
    config, found = group[0][0].config, group[0][1]
    pres, posts = [each.pre_offset for _, each in group], [each.post_offset for _, each in group]
    fractions = {record.config.memory.mem_fraction_static for record, _ in group}
    spread = max(_spread(pres), _spread(posts))
    names = tuple(record.name for record, _ in group)
    source = f"measured by NVML in the starts {', '.join(names)}"
    if len(group) > 1:
        source += f"; they differ by at most {spread / MIB:.2f} MiB"
    return Proposal(
        row={
            "versions": [config.engine.sizing or config.engine.version],
            "algorithms": [canonical(config.speculative.algorithm)],
            "tp": config.parallel.tp_size,
            "gpu": config.gpu.name,
            "logged": {"pre": _printed(found.logged_pre.bytes), "post": _printed(found.logged_post.bytes)},
            "pre": _gib(pres),
            "post": _gib(posts),
            "beside": _beside(group[0][0].config, found),
            "exact": all(each.exact for _, each in group) and spread <= _AGREE,
            "runs": len(group),
            "fractions": len(fractions),
            "source": source,
        },
        records=names,
    )


def _printed(size_bytes: int) -> str:
    """As the log prints it."""
    return f"{size_bytes / GIB:.2f}"


def _beside(config: RunConfig, found: MeasuredOffsets) -> float:
    """0 where the shapes do not give the weights: then no prediction starts from them."""
    size = loading_beside(settings(config), found.logged_pre.bytes, found.logged_post.bytes)
    return 0.0 if size is None else round(size / GIB, 5)


def _gib(offsets: list[Interval]) -> float:
    points = [offset.point for offset in offsets]
    return round((min(points) + max(points)) / 2 / GIB, 5)


def _spread(offsets: list[Interval]) -> int:
    return max(offset.high for offset in offsets) - min(offset.low for offset in offsets)
