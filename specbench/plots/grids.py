"""Tables of predictions as pictures: what fits together, what more memory buys.

Frames are `frames.grid`'s and `frames.gib_curve`'s. All of it is predicted: hollow points, and the words say so. A line
is a setting (a version, a number of ranks, an algorithm); colour and dashes tell settings apart, and mean no more.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..units import GIB
from .palette import INK, MUTED, marker, note
from .settings import FIGURE_NAMES, here_line, plain, settings, titled

_FILL = 0.12
#: What a request can have at the most: by the pool, and by the model or the configuration.
_LONGEST = ("tokens_per_request", "context_len")
#: Areas that lie on each other and can still be told apart.
_FEW = 4


def feasible(rows: pd.DataFrame, *, here: tuple[int | None, int | None] | None = None, ax: Axes | None = None) -> Axes:
    """What fits together: for each number of requests the longest context that all of them can have at once.

    `rows`: `frames.grid` over requests, columns `setting, asked_requests, tokens_per_request, context_len, certainty`.
    Below a line everything fits, by prediction; where the area is filled, with the least memory that may be free too.
    Without a line the server does not start, or runs fewer at once. `here`: requests and context that are asked; not
    marked when one of them is not given.
    """
    at = None if here is None or here[0] is None or here[1] is None else (here[0], here[1])
    ax = ax or plt.gca()
    known = rows[rows["asked_requests"].notna()]
    fits = known[known["tokens_per_request"].notna()]
    if fits.empty:
        return note(ax, "no number of requests is served as asked, by prediction")
    handles: list[Artist] = []
    doubtful = False
    fill = _FILL if known["setting"].nunique() <= _FEW else _FILL / 2
    for colour, style, setting, mine in settings(known):
        asked, longest, sure = _contexts(mine)
        doubtful = doubtful or bool(np.any(~np.isnan(longest) & ~sure))
        edges, height = _steps(asked, longest)
        ax.plot(edges, height, color=colour, linestyle=style, linewidth=1.6)
        _, filled = _steps(asked, np.where(sure, longest, np.nan))
        ax.fill_between(edges, filled, 1.0, color=colour, alpha=fill, linewidth=0)
        held = "" if at is None else ": fits" if _holds(asked, longest, at) else ": does not fit"
        if mine["verdict"].isna().all():
            held = ": not predicted"
        label = f"{setting or 'predicted'}{held}"
        handles.append(Patch(facecolor=to_rgba(colour, _FILL), edgecolor=colour, linestyle=style, label=label))
    if doubtful:
        handles.append(Patch(facecolor="none", edgecolor=MUTED, label="not filled: likely, not sure"))
    ax.set_yscale("log", base=2)
    limit = float(known["context_len"].dropna().astype(float).max())
    low = float(fits["tokens_per_request"].astype(float).min())
    bottom = 2.0 ** np.floor(np.log2(min(low, limit, at[1] if at else limit) * 0.7))
    ax.set_ylim(bottom, limit * 1.35)
    _context_limit(ax, limit)
    ax.set_xlim(0.5, float(known["asked_requests"].max()) + 0.5)
    if at is not None:
        here_style: dict[str, Any] = {"markersize": 8, "markerfacecolor": "white", "markeredgewidth": 1.6}
        ax.plot([at[0]], [at[1]], "D", markeredgecolor=INK, zorder=5, **here_style)
        handles.append(marker("D", f"asked here: {at[0]:,} of {at[1]:,}", solid=False, colour=INK))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_xlabel("requests that run at once")
    ax.set_ylabel("tokens of context for each, predicted")
    titled(ax, "What fits: requests at once, and the context of each", handles)
    return ax


def _contexts(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Requests, the longest context that all of them can have (NaN: none), and whether that is sure; of one setting."""
    rows = rows.sort_values("asked_requests")
    figures = [rows[name].astype("Float64").to_numpy(float, na_value=np.nan) for name in _LONGEST]
    sure = (rows["certainty"] == "sure").to_numpy(bool, na_value=False)
    return rows["asked_requests"].to_numpy(float), np.minimum(*figures), sure


def _context_limit(ax: Axes, tokens: float) -> None:
    """What the model, or the configuration, allows a request."""
    ax.axhline(tokens, color=MUTED, linewidth=0.8, linestyle=":")
    place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "bottom"}
    ax.text(1.0, tokens, f"context limit {tokens:,.0f}", fontsize=7.5, color=MUTED, **place)


def gib_buys(
    rows: pd.DataFrame, figure: str = "running_requests", *, here_bytes: int | None = None, ax: Axes | None = None
) -> Axes:
    """One figure over the free memory of a card, a line per setting, whose legend says what a GiB buys on average.

    `rows`: `frames.gib_curve`, columns `setting, pre_bytes, verdict` and the figure's own. `here_bytes`: what the
    card has. Below the first point the server does not start.
    """
    ax = ax or plt.gca()
    known = rows[rows["pre_bytes"].notna()]
    if known.empty or not known[figure].notna().any():
        return note(ax, f"{FIGURE_NAMES[figure]}: not predicted")
    handles: list[Artist] = []
    for colour, style, setting, mine in settings(known):
        mine = mine.sort_values("pre_bytes")
        gib = mine["pre_bytes"].to_numpy(float) / GIB
        drawn = (
            mine[figure]
            .astype("Float64")
            .where(mine["verdict"].isin(["serves", "capped"]))
            .to_numpy(float, na_value=np.nan)
        )
        ax.plot(
            gib,
            drawn,
            color=colour,
            linestyle=style,
            linewidth=1.4,
            drawstyle="steps-post" if figure != "kv_tokens" else "default",
        )
        stands = np.flatnonzero(~np.isnan(drawn))
        if len(stands):
            ax.plot(gib[stands[0]], drawn[stands[0]], "o", markersize=5, markerfacecolor="white", color=colour)
        each = _each(gib[stands], drawn[stands])
        handles.append(Line2D([], [], color=colour, linestyle=style, label=f"{setting or 'predicted'}{each}"))
    ax.set_ylim(0, max(ax.get_ylim()[1] * 1.05, 1.0))
    if here_bytes is not None:
        handles.append(here_line(ax, here_bytes / GIB, f"this card: {here_bytes / GIB:,.1f} GiB"))
    ax.yaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_xlabel("GiB free before loading, on each card")
    ax.set_ylabel(f"{FIGURE_NAMES[figure]}, predicted")
    titled(ax, f"What a GiB buys: {FIGURE_NAMES[figure]}", handles)
    return ax


def _each(gib: np.ndarray, figure: np.ndarray) -> str:
    """': 5.9 GiB each', ': 6,220 per GiB': on average, from the first that starts to where no more is asked."""
    if not len(figure):
        return ": does not start"
    full = int(np.argmax(figure == figure[-1]))
    gained, more = figure[full] - figure[0], gib[full] - gib[0]
    if gained <= 0:
        return ""
    return f": {more / gained:,.2g} GiB each" if gained < more else f": {_three(gained / more)} per GiB"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _steps(at: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each value as wide as its number of requests: from half below to half above."""
    return np.stack([at - 0.5, at + 0.5], axis=1).reshape(-1), np.repeat(values, 2)


def _holds(asked: np.ndarray, longest: np.ndarray, here: tuple[int, int]) -> bool:
    return bool(np.any((asked == here[0]) & (longest >= here[1])))
