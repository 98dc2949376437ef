"""What was asked and what one gets, run by run: asked → resolved → served."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from ..reading.outcome import in_words
from .palette import INK, MUTED, STATUS_COLOURS, marker, note, origin_of

#: Words beside a row of asked, resolved, served, where the outcome's own would not do.
_ASIDE = {"served": "", "started": "started, nothing sent", "unanswered": "no request answered"}


def asked_resolved_served(runs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Requests at once, per run: asked (hollow circle), resolved (filled square), served (filled diamond).

    `runs`: `frames.runs`, columns `run, outcome, asked_requests, resolved_requests, served_requests`. Not known: no
    mark; beside the row stands the outcome, unless it served what was asked.
    """
    ax = ax or plt.gca()
    if runs.empty:
        return note(ax, "no run")
    series = (("asked_requests", "o"), ("resolved_requests", "s"), ("served_requests", "D"))
    for y, (_, run) in enumerate(runs.iterrows()):
        colour = STATUS_COLOURS.get(run["outcome"], MUTED)
        known = [float(run[name]) for name, _ in series if not pd.isna(run[name])]
        if len(known) > 1:
            ax.plot([min(known), max(known)], [y, y], color=colour, linewidth=2, alpha=0.35, zorder=1)
        for name, shape in series:
            if pd.isna(run[name]):
                continue
            size = {"o": 11, "s": 8, "D": 5}[shape]
            face = {"o": "white", "s": colour, "D": INK}[shape]
            ax.plot(
                float(run[name]),
                y,
                marker=shape,
                markersize=size,
                markeredgecolor=INK if shape == "D" else colour,
                markerfacecolor=face,
                linestyle="none",
                label=f"{name}:{run['run']}",
                zorder=3 if shape == "D" else 2,
            )
        word = _ASIDE.get(run["outcome"], in_words(run["outcome"]))
        if word:
            place = (max(known, default=0), y)
            ax.annotate(word, place, xytext=(12, 0), textcoords="offset points", va="center", fontsize=8, color=colour)
    ax.set_yticks(range(len(runs)), list(runs["run"]))
    ax.set_ylim(len(runs) - 0.5, -0.5)
    most = pd.to_numeric(runs["asked_requests"].fillna(runs["resolved_requests"])).max()
    ax.set_xlim(-0.4, (1.0 if pd.isna(most) else float(most)) * 1.3 + 0.5)  # room for the words beside the marks
    ax.set_xlabel("requests running at once")
    ax.legend(
        handles=[
            marker("o", "asked", solid=False),
            marker("s", f"resolved by the engine ({origin_of(runs)})", solid=True),
            marker("D", f"served ({origin_of(runs)})", solid=True, colour=INK),
        ],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncol=3,
    )
    return ax
