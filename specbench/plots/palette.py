"""Colours by meaning, the predicted/observed marks, and the theme.

The hues are Okabe and Ito's, which stay apart under the common colour-vision deficiencies; a term of the draft is the
lighter shade of the target's. Colour is never the only carrier: every bar has its label, every line its legend entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..terms import Term

INK = "#1f2933"
MUTED = "#6b7680"
GRID = "#dfe4e8"
#: Of what must not be overlooked in a figure.
SHOUT = "#A0307A"

TERM_COLOURS: Mapping[Term, str] = {
    "weights": "#0072B2",
    "draft_weights": "#7FB8D8",
    "state_conv": "#F3CF80",
    "state_ssm": "#E69F00",
    "scratch_ssm": "#D55E00",
    "scratch_conv": "#EFA982",
    "kv": "#009E73",
    "draft_kv": "#80CEB9",
    "graphs": "#CC79A7",
    "slack": "#B8C0C7",
    "unexplained": "#1f2933",
}

#: What is gone of a card before its weights load, and is no term.
COMMUNICATION = "#B79F00"

#: Lines of one panel that mean no term and no algorithm, in their order: Okabe and Ito's hues, then ink.
LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", INK)
#: As many as make no common factor with the colours, so that neither carries the meaning alone.
LINE_STYLES = ("-", "--", ":", "-.")

_ALGORITHM_COLOURS: Mapping[str, str] = {
    "none": "#5f6b76",
    "DFLASH": "#D55E00",
    "EAGLE": "#0072B2",
    "EAGLE3": "#56B4E9",
    "NEXTN": "#009E73",
    "NGRAM": "#CC79A7",
}
_OTHER_ALGORITHM = "#B79F00"

STATUS_COLOURS: Mapping[str, str] = {
    "served": "#009E73",
    "started": "#4C86A8",
    "capped": "#E69F00",
    "unanswered": "#D55E00",
    "refused": "#D55E00",
    "crashed": "#A0307A",
    "timed_out": "#A0307A",
}

#: Of words that stand in a stretch of that colour: dark enough to be read on it.
WORD_COLOURS: Mapping[str, str] = {"capped": "#8a5a00", "refused": "#a63f00"}


def algorithm_colour(algorithm: str) -> str:
    """The colour of a speculative algorithm; names without a colour of their own share one."""
    return _ALGORITHM_COLOURS.get(algorithm if algorithm == "none" else algorithm.upper(), _OTHER_ALGORITHM)


def theme() -> None:
    """matplotlib's settings for notebooks and pages. Changes global state, so the caller asks for it."""
    import seaborn as sns

    sns.set_theme(
        context="notebook",
        style="white",
        rc={
            "axes.edgecolor": "#9aa5ae",
            "axes.labelcolor": INK,
            "axes.titlelocation": "left",
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlepad": 10,
            "axes.labelsize": 9.5,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            "figure.figsize": (9.5, 4.2),
            "font.size": 9.5,
            "legend.fontsize": 8.5,
            "legend.frameon": False,
            "savefig.dpi": 110,
            "text.color": INK,
            "xtick.color": INK,
            "xtick.labelsize": 8.5,
            "ytick.color": INK,
            "ytick.labelsize": 8.5,
        },
    )


def hollow(colour: str) -> dict[str, Any]:
    """Bar style of a predicted figure."""
    return {"facecolor": "none", "edgecolor": colour, "linewidth": 1.4}


def filled(colour: str) -> dict[str, Any]:
    """Bar style of an observed figure."""
    return {"facecolor": colour, "edgecolor": colour, "linewidth": 1.4}


def predicted_patch() -> Patch:
    """Legend entry of predicted figures."""
    return Patch(**hollow(MUTED), label="predicted")


def observed_patch(origin: str) -> Patch:
    """Legend entry of observed ones; `origin`: recorded or measured."""
    return Patch(**filled(MUTED), label=origin)


def marker(shape: str, label: str, *, solid: bool, colour: str = MUTED) -> Line2D:
    """Legend entry of a point: hollow for asked or predicted, filled for what was observed."""
    face = colour if solid else "white"
    return Line2D([], [], linestyle="none", marker=shape, markeredgecolor=colour, markerfacecolor=face, label=label)


def legend_above(ax: Axes, handles: Sequence[Artist] | None = None, *, title: str = "", columns: int = 1) -> None:
    """A legend between the title and the axes, where no data can lie below it."""
    given = {} if handles is None else {"handles": handles}
    ax.legend(
        **given,
        title=title or None,
        title_fontsize="small",
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncol=columns,
        alignment="left",
        borderaxespad=0.2,
        borderpad=0.2,
        columnspacing=1.0,
        handletextpad=0.5,
    )


def title_pad(legend_lines: int) -> float:
    """Points from the axes to a title that stands above a legend of so many lines."""
    return 6.0 + 14.5 * legend_lines


def note(ax: Axes, text: str) -> Axes:
    """An empty figure that says why it is empty."""
    ax.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=ax.transAxes)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def rows_axes(rows: int, *, width: float = 10.5, per_row: float = 0.3) -> Axes:
    """A new figure high enough for that many labelled rows; its Axes."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, min(1.5 + per_row * max(rows, 1), 40.0)))
    return ax


def panels(frame: pd.DataFrame, count: int = 1, *, width: float = 11.5, height: float = 4.4) -> list[Axes]:
    """A new figure with so many axes beside each other, for what is drawn of a frame; of an empty one, which only gets
    a word that says why, it is low.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, count, figsize=(width, 0.8 if frame.empty else height), squeeze=False)
    return list(axes[0])


def origin_of(frame: pd.DataFrame, given: str | None = None) -> str:
    """How a figure's observed values came about: 'recorded', 'measured', or 'measured or recorded' of both kinds."""
    if given is not None:
        return given
    found = sorted({str(value) for value in frame["origin"].dropna()}) if "origin" in frame else []
    return " or ".join(found) or "observed"
