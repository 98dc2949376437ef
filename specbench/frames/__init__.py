"""Studies -> tidy DataFrames: one row per observation, one column per variable; `COLUMNS` says what each holds."""

from __future__ import annotations

from .columns import COLUMNS, Column
from .curves import requests_curve, requests_curve_of
from .grids import gib_curve, grid, knobs, what_fits
from .memory import limits, memory, predicted_waterfall, runs, waterfall
from .plans import asked_here, plan_curve, plan_region, wished_here
from .serving import gpu, latency, phases, requests, timeline

__all__ = [
    "COLUMNS",
    "Column",
    "asked_here",
    "gib_curve",
    "gpu",
    "grid",
    "knobs",
    "latency",
    "limits",
    "memory",
    "phases",
    "plan_curve",
    "plan_region",
    "predicted_waterfall",
    "requests",
    "requests_curve",
    "requests_curve_of",
    "runs",
    "timeline",
    "waterfall",
    "what_fits",
    "wished_here",
]
