"""How fast answers came: distribution, bars over runs, acceptance length. Seconds in; the axis says its unit.

A failed request has no latency: it is counted beside the figure and never drawn as a zero.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..reading.latency import FEW
from .palette import (
    INK,
    LINE_COLOURS,
    LINE_STYLES,
    MUTED,
    SHOUT,
    algorithm_colour,
    filled,
    legend_above,
    note,
    origin_of,
    title_pad,
)

Metric = Literal["ttft_s", "tpot_s", "itl_s", "e2e_s"]

_NAMES: dict[str, tuple[str, float, str]] = {
    "ttft_s": ("time to first token", 1.0, "s"),
    "tpot_s": ("time per output token", 1e3, "ms"),
    "itl_s": ("gap between chunks", 1e3, "ms"),
    "e2e_s": ("end to end", 1.0, "s"),
}
_BAR = 0.62
_ASIDE: dict[str, Any] = {"fontsize": 7.5, "color": MUTED, "style": "italic"}
#: With speculation these depend on what the draft model guesses right.
_DEPENDS_ON_ACCEPTANCE = ("tpot_s", "itl_s", "e2e_s")


def axis_name(metric: str) -> str:
    """'time to first token (s)'."""
    name, _, unit = _NAMES[metric]
    return f"{name} ({unit})"


def latency_ecdf(
    requests: pd.DataFrame, metric: Metric = "ttft_s", *, origin: str | None = None, ax: Axes | None = None
) -> Axes:
    """Share of requests that were faster, one line per load (concurrency or rate).

    `requests`: `frames.requests`, columns `load, ok, simulated_acceptance` and the metric; a row
    per request, warm-up excluded.
    """
    ax = ax or plt.gca()
    _, scale, _ = _NAMES[metric]
    good = requests[requests["ok"].fillna(False).astype(bool) & requests[metric].notna()]
    failed = int((~requests["ok"].fillna(False).astype(bool)).sum())
    if good.empty:
        return note(ax, f"{axis_name(metric)}: not logged" + (f", {failed} requests failed" if failed else ""))
    loads = list(dict.fromkeys(good["load"]))
    for place, load in enumerate(loads):
        values = good.loc[good["load"] == load, metric].astype(float) * scale
        colour, style = LINE_COLOURS[place % len(LINE_COLOURS)], LINE_STYLES[place % len(LINE_STYLES)]
        label = f"{load} (n={len(values)})"
        sns.ecdfplot(x=values, ax=ax, color=colour, linestyle=style, label=label, linewidth=1.8)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"{axis_name(metric)}, {origin_of(requests, origin)}")
    ax.set_ylabel("share of requests")
    columns = 2 if len(loads) > 2 else 1
    legend_above(ax, title="load" + (f"; {failed} failed, not drawn" if failed else ""), columns=columns)
    _title_simulated(ax, requests, lines=1 + math.ceil(len(loads) / columns))
    return ax


def latency_bars(
    latency: pd.DataFrame, metric: Metric = "ttft_s", *, origin: str | None = None, ax: Axes | None = None
) -> Axes:
    """Median per run and load (bar) with a line to the 90th percentile, coloured by algorithm.

    Of fewer than `latency.FEW` requests the line ends at the largest value. `latency`: `frames.latency`, columns `run,
    algorithm, load, metric, count, p50, p90, maximum, ok, failed, random_weights,
    simulated_acceptance`; one row per bar.
    """
    ax = ax or plt.gca()
    _, scale, unit = _NAMES[metric]
    rows = latency[latency["metric"] == metric]
    if rows.empty:
        return note(ax, f"{axis_name(metric)}: not logged")
    ends = rows["p90"].where(rows["count"].fillna(0) >= FEW, rows["maximum"]).astype("Float64") * scale
    medians = rows["p50"].astype("Float64") * scale
    top = float(ends.max()) if medians.notna().any() else 0.0
    for y, ((_, row), median, end) in enumerate(zip(rows.iterrows(), medians, ends, strict=True)):
        if pd.isna(median):
            ax.text(0, y, f" {row['failed']} failed" if row["failed"] else " not logged", va="center", **_ASIDE)
            continue
        ax.barh(y, median, _BAR, label=f"{row['run']}:{row['load']}", **filled(algorithm_colour(row["algorithm"])))
        # Below the middle of the bar, so that the figure beside the bar stays readable.
        ax.plot([median, end], [y + _BAR / 2] * 2, color=INK, linewidth=1, marker="|", markevery=[1], markersize=4)
        ax.text(median + top * 0.006, y - 0.06, f"{median:,.{2 if unit == 's' else 1}f}", va="center", fontsize=7.5)
    ax.set_xlim(0, top * 1.1 or 1.0)
    few = f"; of fewer than {FEW} requests to the largest" if (rows["count"].fillna(FEW) < FEW).any() else ""
    # Only with speculation a token's time depends on what the weights say.
    said = _of_random_weights(rows) if metric in _DEPENDS_ON_ACCEPTANCE else ""
    words = f"{axis_name(metric)}: median, line to the 90th percentile{few}; {origin_of(rows, origin)}{said}"
    _finish(ax, rows, medians.notna(), words)
    return ax


def acceptance(latency: pd.DataFrame, *, origin: str | None = None, ax: Axes | None = None) -> Axes:
    """Tokens per verification round (bonus token included), per run and load; 1 means that no draft was accepted.

    `latency`: `frames.latency`, rows with `metric == "accept_length"`, columns `run, algorithm, load, count, mean,
    random_weights, simulated_acceptance`.
    """
    ax = ax or plt.gca()
    rows = latency[(latency["metric"] == "accept_length") & latency["mean"].notna()]
    if rows.empty:
        return note(ax, "acceptance length: not logged (no speculation, or nothing was sent)")
    for y, (_, row) in enumerate(rows.iterrows()):
        value = float(row["mean"])
        ax.barh(y, value, _BAR, label=f"{row['run']}:{row['load']}", **filled(algorithm_colour(row["algorithm"])))
        ax.text(value + 0.03, y, f"{value:.2f}", va="center", fontsize=7.5)
    ax.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    ax.margins(x=0.08)
    said = f"{origin_of(rows, origin)}{_of_random_weights(rows)}"
    words = f"acceptance length (tokens per verification): mean over requests; {said}"
    _finish(ax, rows, rows["mean"].notna(), words)
    return ax


def _of_random_weights(rows: pd.DataFrame) -> str:
    """What the caption must say of bars that say nothing about a trained draft model; such rows carry a *."""
    hit = _random(rows)
    if not hit.any():
        return ""
    which = "All bars" if hit.all() else "Marked *"
    return f"\n{which}: random weights (--load-format dummy), so this says nothing about a trained draft model"


def _random(rows: pd.DataFrame) -> pd.Series:
    return rows["random_weights"].fillna(False).astype(bool) & (rows["algorithm"] != "none")


def _finish(ax: Axes, rows: pd.DataFrame, drawn: pd.Series, words: str) -> None:
    """Rows named with run, load and number of requests; the caption; a legend of the algorithms that have a bar."""
    marked = _random(rows) & (rows["metric"] != "ttft_s")
    marks = [" *" if star and bar and not marked.all() else "" for star, bar in zip(marked, drawn, strict=True)]
    counts = ["" if pd.isna(count) else f" (n={count})" for count in rows["count"]]
    lengths = ["" if pd.isna(length) else f" [simulated {length}]" for length in rows["simulated_acceptance"]]
    names = [
        f"{run} · {load}{count}{length}{mark}"
        for run, load, count, length, mark in zip(rows["run"], rows["load"], counts, lengths, marks, strict=True)
    ]
    ax.set_yticks(range(len(rows)), names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(words)
    _title_simulated(ax, rows)
    ax.legend(handles=_algorithms(rows[drawn]), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _title_simulated(ax: Axes, rows: pd.DataFrame, *, lines: int = 0) -> None:
    """Over the figure: speed with an acceptance that nobody measured is no result. `lines`: of a legend below it."""
    lengths = rows["simulated_acceptance"].dropna().unique()
    if len(lengths) == 0:
        return
    which = " or ".join(str(length) for length in lengths)
    some = " in the rows marked so" if rows["simulated_acceptance"].isna().any() else ""
    ax.set_title(
        f"SIMULATED ACCEPTANCE {which}{some}: speed is a cost model, not a result",
        loc="left",
        fontsize=9,
        color=SHOUT,
        pad=title_pad(lines),
    )


def _algorithms(rows: pd.DataFrame) -> list[Patch]:
    names = dict.fromkeys(str(name) for name in rows["algorithm"])
    return [Patch(**filled(algorithm_colour(name)), label=name) for name in names]
