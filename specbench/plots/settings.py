"""What pictures of several settings share: a line for each, where one is, the legend, the names of figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .palette import INK, LINE_COLOURS, LINE_STYLES, legend_above, title_pad

FIGURE_NAMES = {
    "state_slots": "state slots",
    "kv_tokens": "KV tokens",
    "running_requests": "running requests",
}
#: Of a legend: a letter, and the mark with its space. Inches.
_LETTER, _HANDLE = 0.065, 0.5


def settings(rows: pd.DataFrame) -> Iterator[tuple[str, Any, str, pd.DataFrame]]:
    """(colour, dashes, name, rows) of each setting, in their order."""
    for number, setting in enumerate(dict.fromkeys(rows["setting"])):
        colour, style = LINE_COLOURS[number % len(LINE_COLOURS)], LINE_STYLES[number % len(LINE_STYLES)]
        yield colour, style, str(setting), rows[rows["setting"] == setting]


def here_line(ax: Axes, at: float, label: str) -> Artist:
    """A vertical line at what is asked or there; its legend entry."""
    ax.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    return Line2D([], [], color=INK, linewidth=0.9, linestyle=(0, (1, 2)), label=label)


def legend_of(ax: Axes, handles: list[Artist]) -> int:
    """The legend above the axes, in two columns where they fit; how many lines it has."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    width = ax.get_window_extent().width / ax.figure.dpi  # inches
    columns = 2 if 2 * (longest * _LETTER + _HANDLE) <= width else 1
    legend_above(ax, handles, columns=columns)
    return -(-len(handles) // columns)


def titled(ax: Axes, title: str, handles: list[Artist]) -> None:
    """The title above a legend of any height."""
    ax.set_title(title, pad=title_pad(legend_of(ax, handles)))


def plain(value: float, _: int) -> str:
    """A tick in plain digits; the second argument is matplotlib's place of it."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"
