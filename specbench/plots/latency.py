"""How fast answers came: distribution, bars over runs, acceptance length. Seconds in; the axis says its unit.

A failed request has no latency: it is counted beside the figure and never drawn as a zero.
"""

from __future__ import annotations

from typing import Literal

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from .palette import INK, MUTED, algorithm_colour, filled, note

Metric = Literal["ttft_s", "tpot_s", "itl_s", "e2e_s"]

_NAMES: dict[str, tuple[str, float, str]] = {
    "ttft_s": ("time to first token", 1.0, "s"),
    "tpot_s": ("time per output token", 1e3, "ms"),
    "itl_s": ("gap between chunks", 1e3, "ms"),
    "e2e_s": ("end to end", 1.0, "s"),
}


def axis_name(metric: str) -> str:
    """'time to first token (s)'."""
    name, _, unit = _NAMES[metric]
    return f"{name} ({unit})"


def latency_ecdf(
    requests: pd.DataFrame, metric: Metric = "ttft_s", *, origin: str = "recorded", ax: Axes | None = None
) -> Axes:
    """Share of requests that were faster, one line per load (concurrency or rate).

    `requests`: `frames.requests`, columns `load, ok` and the metric, one row per request, warm-up excluded.
    """
    ax = ax or plt.gca()
    _, scale, _ = _NAMES[metric]
    good = requests[requests["ok"].fillna(False).astype(bool) & requests[metric].notna()]
    failed = int((~requests["ok"].fillna(False).astype(bool)).sum())
    if good.empty:
        return note(ax, f"{axis_name(metric)}: not logged" + (f", {failed} requests failed" if failed else ""))
    loads = list(dict.fromkeys(good["load"]))
    colours = sns.color_palette("cividis", n_colors=len(loads) + 1)
    for load, colour in zip(loads, colours, strict=False):
        values = good.loc[good["load"] == load, metric].astype(float) * scale
        sns.ecdfplot(x=values, ax=ax, color=colour, label=f"{load} (n={len(values)})", linewidth=1.8)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"{axis_name(metric)}, {origin}")
    ax.set_ylabel("share of requests")
    ax.legend(title="load" + (f"; {failed} failed, not drawn" if failed else ""))
    return ax


def latency_bars(
    latency: pd.DataFrame, metric: Metric = "ttft_s", *, origin: str = "recorded", ax: Axes | None = None
) -> Axes:
    """Median per run and load (bar) with the 90th percentile (thin line), coloured by algorithm.

    `latency`: `frames.latency`, columns `run, algorithm, load, metric, p50, p90, ok, failed`; one row per bar.
    """
    ax = ax or plt.gca()
    _, scale, unit = _NAMES[metric]
    rows = latency[latency["metric"] == metric]
    if rows.empty:
        return note(ax, f"{axis_name(metric)}: not logged")
    top = float(pd.to_numeric(rows["p90"].fillna(rows["p50"])).max()) if rows["p50"].notna().any() else 0.0
    for y, (_, row) in enumerate(rows.iterrows()):
        if pd.isna(row["p50"]):
            reason = f"{int(row['failed'])} failed" if row["failed"] else "not logged"
            ax.text(0, y, f" {reason}", va="center", fontsize=7.5, color=MUTED, style="italic")
            continue
        value = float(row["p50"]) * scale
        ax.barh(y, value, 0.62, label=f"{row['run']}:{row['load']}", **filled(algorithm_colour(row["algorithm"])))
        end = value
        if not pd.isna(row["p90"]):
            end = max(value, float(row["p90"]) * scale)
            ax.plot([value, end], [y, y], color=INK, linewidth=1)
        ax.text(
            end + top * scale * 0.01, y, f"{value:,.2f}" if unit == "s" else f"{value:,.1f}", va="center", fontsize=7.5
        )
    ax.set_yticks(range(len(rows)), [f"{run} · {load}" for run, load in zip(rows["run"], rows["load"], strict=True)])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, top * scale * 1.1 or 1.0)
    ax.set_xlabel(f"{axis_name(metric)}: median, line to the 90th percentile; {origin}")
    ax.legend(handles=_algorithms(rows), loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def acceptance(latency: pd.DataFrame, *, origin: str = "recorded", ax: Axes | None = None) -> Axes:
    """Tokens per verification round (bonus token included), per run and load; 1 means that no draft was accepted.

    `latency`: `frames.latency`, rows with `metric == "accept_length"`, columns `run, algorithm, load, mean`.
    """
    ax = ax or plt.gca()
    rows = latency[(latency["metric"] == "accept_length") & latency["mean"].notna()]
    if rows.empty:
        return note(ax, "acceptance length: not logged (no speculation, or nothing was sent)")
    for y, (_, row) in enumerate(rows.iterrows()):
        value = float(row["mean"])
        ax.barh(y, value, 0.62, label=f"{row['run']}:{row['load']}", **filled(algorithm_colour(row["algorithm"])))
        ax.text(value + 0.03, y, f"{value:.2f}", va="center", fontsize=7.5)
    ax.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(rows)), [f"{run} · {load}" for run, load in zip(rows["run"], rows["load"], strict=True)])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.margins(x=0.08)
    ax.set_xlabel(f"acceptance length (tokens per verification), {origin}")
    ax.legend(handles=_algorithms(rows), loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _algorithms(rows: pd.DataFrame) -> list[Patch]:
    names = dict.fromkeys(str(name) for name in rows["algorithm"])
    return [Patch(**filled(algorithm_colour(name)), label=name) for name in names]
