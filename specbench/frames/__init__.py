"""Studies -> tidy DataFrames: one row per observation, one column per variable; `COLUMNS` says what each holds."""

from __future__ import annotations

from .columns import COLUMNS, Column
from .grids import gib_curve, grid, knobs, what_fits
from .memory import limit_curve, limit_curve_of, limits, memory, predicted_waterfall, runs, waterfall
from .plans import asked_here, plan_curve, plan_region, wished_here
from .serving import gpu, latency, requests, timeline

__all__ = [
    "COLUMNS",
    "Column",
    "asked_here",
    "gib_curve",
    "gpu",
    "grid",
    "knobs",
    "latency",
    "limit_curve",
    "limit_curve_of",
    "limits",
    "memory",
    "plan_curve",
    "plan_region",
    "predicted_waterfall",
    "requests",
    "runs",
    "timeline",
    "waterfall",
    "what_fits",
    "wished_here",
]
