"""What was asked and what one gets: the limits over the number of requests asked, and asked → resolved → served."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from ..reading.outcome import in_words
from ..terms import LIMITS, Limit
from .palette import INK, MUTED, STATUS_COLOURS, TERM_COLOURS, legend_above, marker, note, origin_of, title_pad

_CURVE_COLOURS: dict[str, str] = {
    "kv_tokens": TERM_COLOURS["kv"],
    "state_slots": TERM_COLOURS["state_ssm"],
    "running_requests": TERM_COLOURS["weights"],
}
#: Words beside a row of asked, resolved, served, where the outcome's own would not do.
_ASIDE = {"served": "", "started": "started, nothing sent", "unanswered": "no request answered"}


def limit_curve(
    curve: pd.DataFrame,
    limit: Limit = "kv_tokens",
    *,
    observed: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One limit over the requests asked (`max_running_requests`): where it falls off, and where the engine refuses.

    `curve`: `frames.limit_curve`, columns `asked, limit, predicted, predicted_low, predicted_high, verdict`.
    `observed`: rows of `frames.runs` (columns `asked_requests` and the limit's own): what the engine resolved, as
    filled points. Of running requests what was served is a diamond, where that differs (`served_requests`).
    A refused point is a cross on the axis: there is no limit to plot.
    """
    ax = ax or plt.gca()
    rows = curve[curve["limit"] == limit].sort_values("asked")
    if rows.empty:
        return note(ax, f"{limit}: not predicted")
    colour = _CURVE_COLOURS.get(limit, INK)
    asked = rows["asked"].astype(int)
    value = rows["predicted"].astype("Float64").astype(float)
    ax.fill_between(
        asked,
        rows["predicted_low"].astype("Float64").astype(float),
        rows["predicted_high"].astype("Float64").astype(float),
        step=None,
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    ax.plot(asked, value, color=colour, linewidth=1.2, marker="o", markersize=5, markerfacecolor="white")
    refused = rows[rows["verdict"] == "refused"]
    handles = [marker("o", "predicted", solid=False, colour=colour)]
    if not refused.empty:
        red = STATUS_COLOURS["refused"]
        ax.plot(refused["asked"].astype(int), [0.0] * len(refused), "x", color=red, markersize=7, clip_on=False)
        handles.append(marker("x", "predicted: refused", solid=True, colour=red))
    name = "resolved_requests" if limit == "running_requests" else limit
    if observed is not None and name in observed and observed[name].notna().any():
        points = observed[observed[name].notna() & observed["asked_requests"].notna()]
        ax.plot(points["asked_requests"].astype(int), points[name].astype(float), "o", color=colour, markersize=8)
        handles.append(marker("o", f"resolved ({origin_of(points)})", solid=True, colour=colour))
        if limit == "running_requests" and "served_requests" in points:
            served = points[points["served_requests"].notna() & (points["served_requests"] != points[name])]
            if not served.empty:
                figures = served["served_requests"].astype(float)
                ax.plot(served["asked_requests"].astype(int), figures, "D", color=INK, markersize=5, clip_on=False)
                handles.append(marker("D", f"served ({origin_of(served)})", solid=True, colour=INK))
    if limit == "running_requests":
        ax.plot(asked, asked, color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
    ax.set_ylim(0, ax.get_ylim()[1] * 1.08)
    ax.set_xticks(list(asked) if len(asked) <= 12 else list(asked)[:: max(1, len(asked) // 8)])
    ax.set_xlabel("running requests asked")
    ax.set_ylabel(f"{LIMITS[limit].split(' (')[0]}, predicted", wrap=True)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    legend_above(ax, handles, columns=2)
    ax.set_title(limit, pad=title_pad(2))  # of two lines, also where there is one: titles of neighbours are level
    return ax


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
