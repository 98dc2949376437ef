"""Where the time of a campaign went. In: a collection of runs. Out: a table with a row per run and one for all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..reading.spent import Spent, spent
from ..studies.study import Collection
from .shown import Cell, Shown, Value, paragraph, table

_COLUMNS = ("start_s", "warmup_s", "measured_s", "stop_s", "own_s", "run_s")


def time_spent(collection: Collection) -> Shown:
    """Seconds of this machine. Runs whose notebook is not there, such as imported records, are left out."""
    seen = [(study.name, spent(study.folder, study.record)) for study in collection.studies]
    rows = [(name, one) for name, one in seen if one.run_s is not None]
    if not rows:
        return paragraph("Not recorded: these records lie without their run notebooks.", tone="muted")
    headers = [
        "run",
        "engine start s",
        "warm-up s",
        "measured s",
        "engine stop s",
        "specbench s",
        "whole run s",
        "share",
    ]
    body = [_row(name, [getattr(one, column) for column in _COLUMNS]) for name, one in rows]
    if len(rows) > 1:
        body.append(_row("all", [_total([one for _, one in rows], column) for column in _COLUMNS]))
    caption = (
        "Wall time on this machine (of a replay not the recorded times). specbench: kernel, imports, prediction, "
        "captures and tables of the run notebook; share: of the whole run. Diagnoses and pages follow after all runs."
    )
    return table(headers, body, caption=caption, unknown="none")


def _row(name: str, seconds: Sequence[float | None]) -> list[Value]:
    own_s, run_s = seconds[-2:]
    share = None if own_s is None or not run_s else f"{own_s / run_s:.1%}"
    return [name, *map(_cell, seconds), None if share is None else Cell(text=share, number=True)]


def _cell(seconds: float | None) -> Value:
    return None if seconds is None else Cell(text=f"{seconds:,.1f}", number=True)


def _total(rows: Sequence[Spent], column: str) -> float | None:
    known = [value for row in rows if (value := getattr(row, column)) is not None]
    return math.fsum(known) if known else None
