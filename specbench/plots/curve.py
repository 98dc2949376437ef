"""The cliff: what a server gets over the number of requests asked, and where in it a run is.

Asking for more gives less, then nothing. Everything on the line is predicted (hollow); what a run resolved and served
is filled, and labelled "you are here".
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from .palette import INK, MUTED, SHOUT, STATUS_COLOURS, TERM_COLOURS, WORD_COLOURS, marker, note, origin_of
from .settings import FIGURE_NAMES, here_line, legend_of, plain, settings

_COLOURS = {
    "kv_tokens": TERM_COLOURS["kv"],
    "state_slots": TERM_COLOURS["state_ssm"],
    "running_requests": TERM_COLOURS["weights"],
}
#: Column of a run -> its own figure on each axis.
_RESOLVED = {"running_requests": "resolved_requests", "state_slots": "state_slots", "kv_tokens": "kv_tokens"}
#: As many points as can be told apart have marks.
_MARKED = 24
#: Figures that differ by more than this are drawn on a logarithmic axis.
_WIDE = 30.0
#: Figures that differ by more than this have a tick at each power of ten only.
_MANY_DECADES = 10_000.0
#: Of the largest figure: a narrower band is not seen beside its line.
_SEEN = 0.005
#: Letters in a line of the legend: of three figures beside each other none grows into the next.
_WORDS = 40
#: As many changes of the verdict as are told in words.
_MOST_TOLD = 4


def requests_curve(
    rows: pd.DataFrame,
    figure: str = "state_slots",
    *,
    here: int | None = None,
    run: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One figure over the requests asked, a line per setting: where more requests give less, and where none start.

    `rows`: `frames.grid` (`frames.requests_curve`), columns `setting, bound, asked_requests, verdict` and the
    figure's own (`state_slots`, `kv_tokens`, `running_requests`). `here`: the requests that are asked; not given: the
    run's. `run`: one row of `frames.runs`: what the engine resolved is a filled point, what was served a diamond where
    it differs. A refused point is a cross on the axis; where it is refused and where capped is said in words.
    """
    ax = ax or plt.gca()
    known = rows[rows["asked_requests"].notna()]
    points = known[known["bound"] == "point"]
    if points.empty or not points[figure].notna().any():
        return note(ax, f"{FIGURE_NAMES[figure]}: {_why_none(points, figure)}")
    here = here if here is not None or run is None else _whole(run["asked_requests"].iloc[0])
    lines = list(settings(points))
    one = len(lines) == 1
    handles: list[Artist] = []
    for colour, style, setting, mine in lines:
        colour = _COLOURS[figure] if one else colour
        mine = mine.sort_values("asked_requests")
        label = textwrap.fill(f"{setting}: {told(mine)}", _WORDS) if setting else "predicted"
        handles.append(_line(ax, mine, figure, colour, style, label))
        if _band(ax, known[known["setting"] == setting], figure, colour):
            handles.append(Patch(color=colour, alpha=0.15, linewidth=0, label="range of the prediction"))
        refused = mine.loc[mine["verdict"] == "refused", "asked_requests"].astype(float)
        _crosses(ax, refused, colour)
        at = mine[(mine["asked_requests"] == here) & _stands(mine) & mine[figure].notna()]
        if len(at):
            ring: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "markeredgecolor": colour}
            ax.plot(at["asked_requests"].astype(float), at[figure].astype(float), "o", **ring)
    if (points["verdict"] == "refused").any():
        handles.append(Line2D([], [], linestyle="none", marker="x", color=MUTED, label="does not start"))
    if figure == "running_requests":
        asked_all = np.sort(points["asked_requests"].astype(float).unique())
        ax.plot(asked_all, asked_all, color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
        handles.append(Line2D([], [], color=MUTED, linewidth=0.8, linestyle=":", label="as asked"))
    scale = _scaled(ax, points.loc[points["verdict"] != "refused", figure].dropna().astype(float), figure)
    if one:
        _cliff(ax, lines[0][3], here)
    if here is not None:
        handles.append(here_line(ax, here, f"asked here: {here:,}"))
    if run is not None:
        handles += _run(ax, run, figure, here)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_xlabel("requests asked (max_running_requests)")
    ax.set_ylabel(f"{FIGURE_NAMES[figure]}, predicted{scale}")
    legend_of(ax, handles)
    return ax


def _why_none(points: pd.DataFrame, figure: str) -> str:
    """A server that starts has its figures: one without slots has a model without state."""
    stateless = figure == "state_slots" and points["verdict"].isin(["serves", "capped"]).any()
    return "none, the model keeps no state" if stateless else "not predicted"


def _scaled(ax: Axes, values: pd.Series, figure: str) -> str:
    """Sets the scale of a figure, and says which. Requests that run are beside those that are asked, on one scale."""
    if figure != "running_requests" and not values.empty and values.max() > _WIDE * max(values.min(), 1.0):
        _logarithmic(ax, values.min(), values.max())
        return ", log scale"
    ax.set_ylim(0, ax.get_ylim()[1] * 1.05)
    return ""


def _logarithmic(ax: Axes, low: float, high: float) -> None:
    """With ticks that people read: 1, 2, 5, 10, 20, 50; the powers of ten alone where there are many."""
    ax.set_yscale("log")
    many = high > _MANY_DECADES * max(low, 1.0)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if many else (1.0, 2.0, 5.0)))
    ax.yaxis.set_minor_formatter(NullFormatter())


def told(rows: pd.DataFrame) -> str:
    """'serves 1 to 4, capped 5 to 7, refused from 8': the verdicts over the requests asked, in order."""
    words = [f"{verdict} {_span(first, last)}" for verdict, first, last in _stretches(rows)]
    return ", ".join(words[:_MOST_TOLD]) + (", …" if len(words) > _MOST_TOLD else "")


def _span(first: int, last: int | None) -> str:
    return f"from {first:,}" if last is None else f"{first:,}" if last == first else f"{first:,} to {last:,}"


def _stretches(rows: pd.DataFrame) -> Iterator[tuple[str, int, int | None]]:
    """(verdict, first, last) of requests with the same verdict one after the other; last None: to the end."""
    rows = rows.sort_values("asked_requests")
    pairs = zip(rows["asked_requests"].astype(int), rows["verdict"].fillna("not predicted"), strict=True)
    groups = [(str(verdict), [asked for asked, _ in mine]) for verdict, mine in groupby(pairs, key=lambda one: one[1])]
    for number, (verdict, asked) in enumerate(groups):
        yield verdict, asked[0], asked[-1] if number + 1 < len(groups) or number == 0 else None


def _line(ax: Axes, mine: pd.DataFrame, figure: str, colour: Any, style: Any, label: str) -> Line2D:
    drawn = mine[figure].astype("Float64").where(_stands(mine)).astype(float)
    look: dict[str, Any] = {
        "color": colour,
        "linestyle": style,
        "marker": "o" if len(mine) <= _MARKED else None,
        "markersize": 4.5,
        "markerfacecolor": "white",
    }
    ax.plot(mine["asked_requests"].astype(float), drawn, linewidth=1.4, **look)
    return Line2D([], [], label=label, **look)


def _stands(rows: pd.DataFrame) -> pd.Series:
    return rows["verdict"].isin(["serves", "capped"])


def _band(ax: Axes, rows: pd.DataFrame, figure: str, colour: Any) -> bool:
    """From the low end of the predicted interval to the high one. False: they differ by less than one sees."""
    ends = {
        str(name): pd.Series(
            mine[figure].astype("Float64").where(_stands(mine)).to_numpy(float, na_value=np.nan),
            index=mine["asked_requests"].astype(float),
        ).sort_index()
        for name, mine in rows.groupby("bound")
        if name != "point"
    }
    if len(ends) < 2:
        return False
    low, high = ends["low"].fillna(0.0), ends["high"]
    if not ((high - low) > _SEEN * high.max()).any():
        return False
    ax.fill_between(high.index, low, high, color=colour, alpha=0.15, linewidth=0)
    return True


def _crosses(ax: Axes, refused: pd.Series, colour: Any) -> None:
    """On the axis, where there is no figure; of many that follow each other the first and the last."""
    at = refused.to_numpy(float)
    if not len(at):
        return
    where: dict[str, Any] = {"color": colour, "clip_on": False, "transform": ax.get_xaxis_transform()}
    if len(at) > _MARKED:
        ax.plot(at, np.zeros(len(at)), linewidth=1, **where)
        at = at[[0, -1]]
    ax.plot(at, np.zeros(len(at)), "x", markersize=6, **where)


def _cliff(ax: Axes, rows: pd.DataFrame, here: int | None) -> None:
    """Where it is capped and where refused, each stretch in its colour with its words."""
    for verdict, first, last in list(_stretches(rows))[:_MOST_TOLD]:
        if verdict not in ("capped", "refused"):
            continue
        end = int(rows["asked_requests"].max()) if last is None else last
        ax.axvspan(first - 0.5, end + 0.5, color=STATUS_COLOURS[verdict], alpha=0.07, linewidth=0, zorder=0)
        words = f"{verdict} {_span(first, last)}"
        # Beside the line of what is asked, not on it.
        ax.text(
            *((first - 0.4 if here is None or not first - 1 < here < first + 1 else here + 0.15), 0.97, words),
            transform=ax.get_xaxis_transform(),
            rotation=90,
            ha="left",
            va="top",
            fontsize=8,
            color=WORD_COLOURS[verdict],
            bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
            zorder=1,
        )


def _run(ax: Axes, run: pd.DataFrame, figure: str, here: int | None) -> list[Artist]:
    """What the engine made of it, and what was served; "you are here" stands at the last of them that is known."""
    row: dict[Any, Any] = run.iloc[0].to_dict()
    origin = origin_of(run)
    resolved = _whole(row.get(_RESOLVED[figure]))
    served = _whole(row.get("served_requests")) if figure == "running_requests" else None
    at = here if here is not None else _whole(row.get("resolved_requests"))
    if at is None:
        return []
    handles: list[Artist] = []
    if resolved is not None and row.get("outcome") not in ("refused",):
        ax.plot([at], [resolved], "o", color=_COLOURS[figure], markersize=8, zorder=4)
        handles.append(marker("o", f"resolved ({origin})", solid=True, colour=_COLOURS[figure]))
    else:
        resolved = None
    if served is not None and served != resolved:
        ax.plot([at], [served], "D", color=INK, markersize=5, clip_on=False, zorder=5)
        handles.append(marker("D", f"served ({origin})", solid=True, colour=INK))
    place = served if served is not None else resolved
    words = "you are here" if place is not None else f"you are here: {row.get('outcome')}"
    # To the side, and up or down, where there is room.
    right = at < sum(ax.get_xlim()) * 0.6
    height = 0.0 if place is None else float(ax.transAxes.inverted().transform(ax.transData.transform((at, place)))[1])
    ax.annotate(
        words,
        (at, height),
        xycoords=ax.get_xaxis_transform(),
        xytext=(16 if right else -16, 22 if height < 0.7 else -30),
        textcoords="offset points",
        ha="left" if right else "right",
        fontsize=8.5,
        fontweight="bold",
        color=SHOUT,
        arrowprops={"arrowstyle": "->", "color": SHOUT, "linewidth": 1.0},
        zorder=6,
    )
    return handles


def _whole(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)
