"""Memory of the GPUs over a run, from the driver's own samples."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from ..rank_names import numbers_in_words
from ..units import GIB
from .palette import GRID, MUTED, note, origin_of

#: Lines nearer than this lie on one another; further apart for so small a share of the time, one is ahead of the other.
_APART_BYTES, _MOMENTS = GIB, 0.1


def gpu_memory(samples: pd.DataFrame, *, origin: str | None = None, ax: Axes | None = None) -> Axes:
    """Memory in use on every GPU, as the driver counts it; a line where a phase begins, its name where there is room.
    GPUs whose lines lie on one another have one, of the first of them.

    `samples`: `frames.gpu`, columns `time_s, phase, gpu, used_bytes, total_bytes`.
    """
    ax = ax or plt.gca()
    rows = samples[samples["used_bytes"].notna()]
    if rows.empty:
        return note(ax, "GPU memory: not logged (no NVML where this ran)")
    for gpus in _alike(rows):
        mine = rows[rows["gpu"] == gpus[0]]
        label = f"GPU {numbers_in_words(gpus)}"
        ax.plot(mine["time_s"].astype(float), mine["used_bytes"].astype(float) / GIB, linewidth=1.4, label=label)
    if rows["total_bytes"].notna().any():
        ax.axhline(
            float(rows["total_bytes"].astype(float).max()) / GIB, color=MUTED, linewidth=1, linestyle=":", label="card"
        )
    _mark_phases(ax, rows)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (s)")
    ax.set_ylabel(f"GPU memory in use (GiB), {origin_of(samples, origin)}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # the names of the phases stand above
    return ax


def _alike(rows: pd.DataFrame) -> list[list[int]]:
    """GPUs whose lines could not be told apart: nowhere apart but for moments in which one is ahead of the other."""
    every = rows.pivot_table(index="time_s", columns="gpu", values="used_bytes", aggfunc="last").astype(float)
    levels = every.ffill().bfill()
    times = levels.index.to_series().astype(float)
    lasts = (times.shift(-1) - times).fillna(0.0)
    longest = _MOMENTS * lasts.sum()
    groups: list[list[int]] = []
    for gpu in levels.columns:
        apart = ((levels[gpu] - levels[group[0]]).abs() > _APART_BYTES for group in groups)
        near = next((group for group, far in zip(groups, apart, strict=True) if lasts[far].sum() <= longest), None)
        groups.append([int(gpu)]) if near is None else near.append(int(gpu))
    return groups


def _mark_phases(ax: Axes, rows: pd.DataFrame) -> None:
    begins = rows.groupby("phase", sort=False, dropna=True)["time_s"].min().astype(float).sort_values()
    span = float(rows["time_s"].max()) - float(rows["time_s"].min())
    ends = [*begins.iloc[1:], float(rows["time_s"].max())]
    for (phase, begin), end in zip(begins.items(), ends, strict=True):
        ax.axvline(begin, color=GRID, linewidth=0.8, zorder=0)
        if span and (end - begin) / span > 0.05:
            ax.annotate(
                str(phase),
                (begin, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(2, 2),
                textcoords="offset points",
                rotation=25,
                fontsize="x-small",
                color=MUTED,
            )
