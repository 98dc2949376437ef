"""Figures: a tidy frame in, one Axes out. Nothing is shown, saved or set globally here (`theme` is asked for by name).

One reading rule holds in all of them: **predicted is hollow, observed is filled**, and what is not known is a gap that
says so. Colours mean a term of memory (`palette.TERM_COLOURS`) or an algorithm (`palette.algorithm_colour`).
"""

from __future__ import annotations

from .curve import requests_curve
from .grids import feasible, gib_buys
from .latency import acceptance, latency_bars, latency_ecdf
from .limits import asked_resolved_served
from .memory import memory_by_term, waterfall
from .palette import panels, rows_axes, theme
from .samples import gpu_memory
from .timeline import accept_lengths, phase_strip, pool_usage, request_queue, timeline_axes

__all__ = [
    "accept_lengths",
    "acceptance",
    "asked_resolved_served",
    "feasible",
    "gib_buys",
    "gpu_memory",
    "latency_bars",
    "latency_ecdf",
    "memory_by_term",
    "panels",
    "phase_strip",
    "pool_usage",
    "request_queue",
    "requests_curve",
    "rows_axes",
    "theme",
    "timeline_axes",
    "waterfall",
]
