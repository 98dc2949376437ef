"""A run over time, from the engine's own decode and prefill lines and from the GPU samples."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from ..units import GIB
from .palette import GRID, MUTED, TERM_COLOURS, legend_above, note, origin_of


def pool_usage(timeline: pd.DataFrame, *, origin: str | None = None, ax: Axes | None = None) -> Axes:
    """How full the two pools were: share of KV tokens and of state slots in use.

    `timeline`: `frames.timeline`, columns `time_s, kv_usage, state_usage` (0 to 1), one row per decode line.
    """
    ax = ax or plt.gca()
    drawn = False
    for name, label, colour in (
        ("kv_usage", "KV tokens", TERM_COLOURS["kv"]),
        ("state_usage", "state slots", TERM_COLOURS["state_ssm"]),
    ):
        rows = timeline[timeline[name].notna() & timeline["time_s"].notna()]
        if rows.empty:
            continue
        drawn = True
        ax.plot(
            rows["time_s"].astype(float), rows[name].astype(float) * 100, ".-", color=colour, label=label, linewidth=1
        )
    if not drawn:
        return note(ax, "pool usage: not logged (the server never decoded)")
    ax.axhline(100, color=GRID, linewidth=0.8)
    ax.set_ylim(0, 105)
    ax.set_xlabel("time since the first decode line (s)")
    ax.set_ylabel(f"pool in use (%), {origin_of(timeline, origin)}")
    legend_above(ax)
    return ax


def request_queue(
    timeline: pd.DataFrame, *, asked: int | None = None, origin: str | None = None, ax: Axes | None = None
) -> Axes:
    """Requests running and requests waiting. `asked` draws the requested concurrency as a line.

    `timeline`: `frames.timeline`, columns `time_s, running_requests, queued_requests`.
    """
    ax = ax or plt.gca()
    rows = timeline[timeline["running_requests"].notna() & timeline["time_s"].notna()]
    if rows.empty:
        return note(ax, "running requests: not logged (the server never decoded)")
    time = rows["time_s"].astype(float)
    ax.step(time, rows["running_requests"].astype(float), where="post", color=TERM_COLOURS["weights"], label="running")
    if rows["queued_requests"].notna().any():
        queued = rows[rows["queued_requests"].notna()]
        ax.step(
            queued["time_s"].astype(float),
            queued["queued_requests"].astype(float),
            where="post",
            color=TERM_COLOURS["scratch_ssm"],
            linestyle="--",
            label="waiting",
        )
    if asked is not None:
        ax.axhline(asked, color=MUTED, linewidth=1, linestyle=":", label=f"asked at once: {asked}")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time since the first decode line (s)")
    ax.set_ylabel(f"requests, {origin_of(timeline, origin)}")
    legend_above(ax)
    return ax


def gpu_memory(samples: pd.DataFrame, *, origin: str | None = None, ax: Axes | None = None) -> Axes:
    """Memory in use on every GPU, as the driver counts it; a line where a phase begins, its name where there is room.

    `samples`: `frames.gpu`, columns `time_s, phase, gpu, used_bytes, total_bytes`.
    """
    ax = ax or plt.gca()
    rows = samples[samples["used_bytes"].notna()]
    if rows.empty:
        return note(ax, "GPU memory: not logged (no NVML where this ran)")
    for gpu, mine in rows.groupby("gpu", dropna=False):
        ax.plot(mine["time_s"].astype(float), mine["used_bytes"].astype(float) / GIB, linewidth=1.4, label=f"GPU {gpu}")
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
