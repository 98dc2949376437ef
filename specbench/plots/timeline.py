"""A run over time, from the engine's own batch lines: what ran and waited, how full the pools were, what was accepted.

The functions of one figure share an axis: seconds since the first batch line, or the log's line numbers where its lines
have no stamps. `phases` (a frame of that name) is drawn by `phase_strip` and marked in all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from .palette import GRID, INK, MUTED, SHOUT, STATUS_COLOURS, TERM_COLOURS, legend_above, origin_of
from .settings import plain

_KIND_COLOURS = {
    "step": TERM_COLOURS["weights"],
    "start": MUTED,
    "serving": TERM_COLOURS["kv"],
    "idle": GRID,
    "drained": TERM_COLOURS["slack"],
    "ended": STATUS_COLOURS["crashed"],
    "prefill": TERM_COLOURS["state_ssm"],
    "retraction": SHOUT,
}
#: Rows of the strip, from top to bottom, with the kinds that lie in each.
_ROWS = (
    ("workload", ("step",)),
    ("server", ("start", "serving", "idle", "drained", "ended")),
    ("prefill bursts", ("prefill",)),
    ("retractions", ("retraction",)),
)
#: From so many points on a line is drawn by what lies in each of `_BINS` parts of its width.
_MANY, _BINS = 1_200, 400
#: A gap between two lines in which nothing is drawn: of the width, and of the usual distance.
_GAP, _GAP_TIMES = 0.05, 20
#: Of the whole axis: what the start may take of it.
_START = 0.12
#: Of the axis: a letter of a phase's name, and the least distance of two slanted names.
_LETTER, _APART = 0.0075, 0.02


def phase_strip(phases: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Which phase was when: the steps of the workload, and what the log's lines tell.

    `phases`: `frames.phases`, columns `phase, kind, begin, end, unit`. Sets the limits of the axis: of a long start
    only the end is drawn, and its length is said.
    """
    ax = ax or plt.gca()
    rows = [(name, phases[phases["kind"].isin(kinds)]) for name, kinds in _ROWS]
    rows = [(name, mine) for name, mine in rows if len(mine)]
    if not rows:
        return _silent(ax, "phases: the log has no batch line and no start that is known")
    left, right = _limits(phases)
    for y, (_, mine) in enumerate(rows):
        if (mine["kind"] == "retraction").all():
            ax.plot(mine["begin"].to_numpy(float), np.full(len(mine), y), "v", color=SHOUT, markersize=6)
            continue
        _bars(ax, mine, y, left, right)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(left, right)
    ax.tick_params(axis="y", length=0)
    return ax


def timeline_axes(timeline: pd.DataFrame) -> list[Axes]:
    """Four axes, one below the other, that share their x axis: for `phase_strip` and three figures of the lines. Of a
    log without a decode line, whose figures only say so, they are small.
    """
    known = len(timeline) > 0
    size, heights = ((10.5, 8.4), [0.8, 1.3, 1.3, 1.0]) if known else ((10.5, 2.6), [1.6, 1.0, 1.0, 1.0])
    _, axes = plt.subplots(4, 1, figsize=size, sharex=True, height_ratios=heights)
    if not known:
        axes[-1].tick_params(axis="x", labelbottom=False, length=0)
    return list(axes)


def request_queue(
    timeline: pd.DataFrame,
    *,
    phases: pd.DataFrame | None = None,
    asked: int | None = None,
    origin: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Requests running and requests waiting. `asked` draws the requested concurrency as a line.

    `timeline`: `frames.timeline`, columns `time_s, line, rank, running_requests, queued_requests`.
    """
    ax = ax or plt.gca()
    series = (
        ("running_requests", "running", TERM_COLOURS["weights"], "-"),
        ("queued_requests", "waiting", TERM_COLOURS["scratch_ssm"], "--"),
    )
    handles = _drawn(ax, timeline, series, "running requests: not logged (the server never decoded)", stepwise=True)
    if not handles:
        return ax
    if asked is not None:
        ax.axhline(asked, color=MUTED, linewidth=1, linestyle=":")
        handles.append(Line2D([], [], color=MUTED, linewidth=1, linestyle=":", label=f"asked at once: {asked}"))
    return _finished(ax, timeline, phases, handles, f"requests, {origin_of(timeline, origin)}")


def pool_usage(
    timeline: pd.DataFrame, *, phases: pd.DataFrame | None = None, origin: str | None = None, ax: Axes | None = None
) -> Axes:
    """How full the two pools were: share of KV tokens and of state slots in use.

    `timeline`: `frames.timeline`, columns `time_s, line, rank, kv_usage, state_usage` (0 to 1), a row per decode line.
    """
    ax = ax or plt.gca()
    series = (
        ("kv_usage", "KV tokens", TERM_COLOURS["kv"], "-"),
        ("state_usage", "state slots", TERM_COLOURS["state_ssm"], "-"),
    )
    handles = _drawn(ax, timeline, series, "pool usage: not logged (the server never decoded)", scale=100.0)
    if not handles:
        return ax
    ax.axhline(100, color=GRID, linewidth=0.8)
    ax.set_ylim(0, 105)
    return _finished(ax, timeline, phases, handles, f"pool in use (%), {origin_of(timeline, origin)}")


def accept_lengths(
    timeline: pd.DataFrame, *, phases: pd.DataFrame | None = None, origin: str | None = None, ax: Axes | None = None
) -> Axes:
    """Tokens per verify round as the decode lines have it, bonus token included; 1 means that no draft was accepted.

    `timeline`: `frames.timeline`, columns `time_s, line, rank, accept_length`.
    """
    ax = ax or plt.gca()
    series = (("accept_length", "acceptance length", TERM_COLOURS["graphs"], "-"),)
    silent = "acceptance length: not logged (no speculation, or the server never decoded)"
    handles = _drawn(ax, timeline, series, silent)
    if not handles:
        return ax
    ax.axhline(1, color=MUTED, linewidth=0.8, linestyle=":")
    handles.append(Line2D([], [], color=MUTED, linewidth=0.8, linestyle=":", label="no draft accepted"))
    return _finished(ax, timeline, phases, handles, f"tokens per round, {origin_of(timeline, origin)}")


def _bars(ax: Axes, rows: pd.DataFrame, y: int, left: float, right: float) -> None:
    """A bar per phase with its name in it; that of a narrow step stands above, where no other one stands."""
    span, inside, above = right - left, left, left
    columns = (rows["phase"], rows["kind"], rows["unit"], rows["begin"].astype(float), rows["end"].astype(float))
    for name, kind, unit, begins, end in zip(*columns, strict=True):
        # What lies within one second of the stamps is seen too.
        begin, colour, width = max(begins, left), _KIND_COLOURS[kind], max(end - max(begins, left), 0.002 * span)
        ax.barh(y, width, 0.62, left=begin, color=colour, alpha=0.45, edgecolor=colour, linewidth=0.8)
        words = f"start, {end - begins:,.0f} {'s' if unit == 's' else 'lines'}" if kind == "start" else str(name)
        needed = len(words) * _LETTER * span
        if begin >= inside and (needed <= width or kind == "start"):
            ax.text(begin + 0.002 * span, y, words, va="center", fontsize=7.5, color=INK, parse_math=False)
            inside = begin + needed
        elif kind == "step" and begin >= above:
            place = (begin + width / 2, y - 0.34)
            ax.text(*place, words, rotation=20, va="bottom", fontsize=7, color=INK, parse_math=False)
            above = begin + _APART * span


def _drawn(
    ax: Axes,
    timeline: pd.DataFrame,
    series: tuple[tuple[str, str, str, Any], ...],
    silent: str,
    *,
    stepwise: bool = False,
    scale: float = 1.0,
) -> list[Artist]:
    """A line per series and rank, with its legend; of a series that was not logged the legend says so. Empty, and a
    note in the axes: none was logged."""
    handles: list[Artist] = []
    known = False
    for name, label, colour, style in series:
        parts = list(_of_ranks(timeline, name))
        if not parts:
            handles.append(Line2D([], [], linestyle="none", label=f"{label}: not logged"))
            continue
        known = True
        for x, y in parts:
            look: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.2 / len(parts) ** 0.25}
            _one(ax, x, y * scale, look, stepwise)
        ranks = f" (each of {len(parts)} ranks)" if len(parts) > 1 else ""
        handles.append(Line2D([], [], color=colour, linestyle=style, linewidth=1.2, label=f"{label}{ranks}"))
    if known:
        return handles
    _silent(ax, silent)
    return []


def _of_ranks(timeline: pd.DataFrame, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(place on the axis, figure) of the rows that have both, rank by rank."""
    axis = _axis(timeline)
    rows = timeline[timeline[name].notna() & timeline[axis].notna()]
    for _, mine in rows.groupby("rank", sort=False, dropna=False) if "rank" in rows else [("", rows)]:
        if len(mine):
            yield mine[axis].to_numpy(float), mine[name].to_numpy(float)


def _axis(timeline: pd.DataFrame) -> str:
    return "time_s" if timeline["time_s"].notna().any() or "line" not in timeline else "line"


def _one(ax: Axes, x: np.ndarray, y: np.ndarray, look: dict[str, Any], stepwise: bool) -> None:
    """As it is; of many points the least, the mean and the most of each part of the width. No line over a long gap."""
    if len(x) <= _MANY:
        x, y = _broken(x, y) if len(x) > 1 else (x, y)
        if stepwise:
            ax.step(x, y, where="post", **look)
        else:
            ax.plot(x, y, marker="." if len(x) <= _BINS else None, **look)
        return
    width = (x.max() - x.min()) or 1.0
    part = np.minimum(((x - x.min()) / width * _BINS).astype(int), _BINS - 1)
    parts = pd.DataFrame({"x": x, "y": y}).groupby(part)
    binned = parts.agg({"x": "mean", "y": ["min", "mean", "max"]}).to_numpy(float)
    middle, least, mean, most = _broken(*binned.T)
    ax.fill_between(middle, least, most, color=look["color"], alpha=0.25, linewidth=0)
    ax.plot(middle, mean, **look)


def _broken(x: np.ndarray, *figures: np.ndarray) -> Iterator[np.ndarray]:
    """With a hole in every gap that is much longer than the usual one and is seen as such."""
    gaps = np.diff(x)
    long = np.flatnonzero((gaps > _GAP_TIMES * np.median(gaps)) & (gaps > _GAP * (x.max() - x.min()))) + 1
    yield np.insert(x, long, x[long])
    for figure in figures:
        yield np.insert(figure.astype(float), long, np.nan)


def _finished(ax: Axes, timeline: pd.DataFrame, phases: pd.DataFrame | None, handles: list[Artist], label: str) -> Axes:
    if phases is not None:
        _mark(ax, phases)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_ylabel(label, fontsize=8.5)
    place = ax.get_subplotspec()
    ax.set_xlabel(_axis_words(timeline) if place is None or place.is_last_row() else "")
    legend_above(ax, handles, columns=len(handles))
    return ax


def _axis_words(timeline: pd.DataFrame) -> str:
    words = (
        "time since the first batch line (s, by the log's stamps)"
        if _axis(timeline) == "time_s"
        else "line of the log: its lines have no time"
    )
    most = timeline.groupby("rank", dropna=False).size().max() if "rank" in timeline else len(timeline)
    if most > _MANY:
        words += f"\n{len(timeline):,} decode lines: the mean, and from least to most, of each 1/{_BINS} of the width"
    kept = timeline["lines"].iloc[0] if "lines" in timeline and len(timeline) else None
    if kept is not None and not pd.isna(kept) and kept > len(timeline):
        words += f"; kept of {int(kept):,} in the log"
    return words


def _mark(ax: Axes, phases: pd.DataFrame) -> None:
    """A line where a step begins (else where serving or idling does), idle time shaded, retractions in their colour."""
    kinds = ["step"] if (phases["kind"] == "step").any() else ["serving", "drained", "ended"]
    for begin in phases.loc[phases["kind"].isin(kinds), "begin"].astype(float):
        ax.axvline(begin, color=GRID, linewidth=0.8, zorder=0)
    quiet = phases[phases["kind"] == "idle"]
    for begin, end in zip(quiet["begin"].astype(float), quiet["end"].astype(float), strict=True):
        ax.axvspan(begin, end, color=GRID, alpha=0.35, linewidth=0, zorder=0)
    for begin in phases.loc[phases["kind"] == "retraction", "begin"].astype(float):
        ax.axvline(begin, color=SHOUT, linewidth=0.7, alpha=0.6, zorder=1)


def _limits(phases: pd.DataFrame) -> tuple[float, float]:
    """Of the axis: the start is cut where it would crowd out what follows it."""
    rest = phases[phases["kind"] != "start"]
    if rest.empty:
        return float(phases["begin"].min()), float(phases["end"].max()) or 1.0
    low, high = float(rest["begin"].min()), float(rest["end"].max())
    span = (high - low) or 1.0
    first = float(phases["begin"].min())
    return max(first, low - _START * span) - 0.005 * span, high + 0.01 * span


def _silent(ax: Axes, text: str) -> Axes:
    """Axes that say why they are empty. Their x axis is shared: it is left as it is."""
    ax.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=ax.transAxes)
    ax.set_yticks([])
    return ax
