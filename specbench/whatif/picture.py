"""The picture of a what-if: where the card's memory goes, and the cliff with "you are here". Updated in place.

In: outlooks and curves. Out: PNG bytes. Predicted is hollow and follows the controls; observed is filled and stays. The
non-obvious thing is speed: every artist is made once, moving a control only gives them other data, and nothing is laid
out anew.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..plots.palette import (
    COMMUNICATION,
    INK,
    MUTED,
    STATUS_COLOURS,
    TERM_COLOURS,
    filled,
    hollow,
    marker,
    observed_patch,
    predicted_patch,
)
from ..studies.waterfall import Step, predicted_steps
from ..terms import TERMS, Limit
from ..units import GIB
from .outlook import CURVES, Curve, Outlook, WhatIf

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR, _APART = 0.36, 0.22  # height of a bar, and how far the two of a row lie from its middle
_LABEL = 26  # characters of a line
_MOST_STILL = 8  # backgrounds that are kept, 2 MB each
_LAST = ("unexplained", "graphs", "slack")
_ORDER: tuple[str, ...] = ("before", "communication", *(t for t in TERMS if t not in _LAST), *_LAST)
_WITHIN = frozenset({"graphs"})  # rows that overlap the next one
_COLOURS: dict[str, str] = {"communication": COMMUNICATION} | {str(term): hue for term, hue in TERM_COLOURS.items()}
_LABELS = {"graphs": "graphs (within slack)", "slack": "slack"}  # short: the margin is fixed
_TITLES: dict[Limit, str] = {"running_requests": "requests at once", "kv_tokens": "KV tokens"}
_HUES: dict[Limit, str] = {"running_requests": TERM_COLOURS["weights"], "kv_tokens": TERM_COLOURS["kv"]}


class Picture:
    """One figure for one start. Not safe for two threads at once."""

    def __init__(self, what: WhatIf, before: Outlook, observed: Sequence[Step], *, dpi: int = 90) -> None:
        """`observed`: the waterfall of the start that the log tells of; empty: none."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._what, self._observed = what, tuple(observed)
        self._figure = Figure(figsize=(11.0, 4.7), dpi=dpi)
        self._figure.set_layout_engine("none")  # whatever the theme asks for: laid out once, by hand
        self._canvas: Any = FigureCanvasAgg(self._figure)
        places = {"left": 0.16, "right": 0.985, "top": 0.86, "bottom": 0.11, "wspace": 0.17, "hspace": 0.42}
        grid = self._figure.add_gridspec(2, 2, width_ratios=(1.6, 1.0), **places)
        self._waterfall = _Waterfall(self._figure.add_subplot(grid[:, 0]), before, self._observed, what)
        self._cliffs = [_Cliff(self._figure.add_subplot(grid[row, 1]), limit, what) for row, limit in enumerate(CURVES)]
        # Of the figure: drawn once, where a legend of moving axes would be drawn each time.
        self._figure.legend(
            handles=[
                marker("o", "predicted", solid=False),
                marker("x", "refused", solid=True, colour=STATUS_COLOURS["refused"]),
                marker("o", f"resolved ({what.observed.origin})", solid=True),
                marker("o", "you are here", solid=False, colour=INK),
            ],
            loc="upper right",
            bbox_to_anchor=(0.99, 0.99),
            ncol=4,
            fontsize=7,
            frameon=False,
            columnspacing=0.8,
            handletextpad=0.2,
        )
        self._title = self._figure.text(0.01, 0.965, "", fontsize=10, fontweight="bold", va="center")
        #: What moves; all else is drawn once.
        self._moving = [self._title, *self._waterfall.moving, *(one for cliff in self._cliffs for one in cliff.moving)]
        for artist in self._moving:
            artist.set_animated(True)
        self._still: dict[tuple[Any, ...], Any] = {}  # by the scales

    def update(self, after: Outlook, curve: Curve) -> None:
        """Gives every artist what is predicted for `after`."""
        self._waterfall.update(after)
        for cliff in self._cliffs:
            cliff.update(after, curve)
        self._title.set_text(f"predicted: {after.verdict}")
        self._title.set_color(STATUS_COLOURS.get({"serves": "served"}.get(after.verdict, after.verdict), MUTED))

    def png(self) -> bytes:
        from PIL import Image

        scales = (self._waterfall.widest, *(cliff.scale for cliff in self._cliffs))
        if scales not in self._still:
            if len(self._still) >= _MOST_STILL:
                self._still.clear()
            self._canvas.draw()
            self._still[scales] = self._canvas.copy_from_bbox(self._figure.bbox)
        self._canvas.restore_region(self._still[scales])
        for artist in self._moving:
            self._figure.draw_artist(artist)
        target = io.BytesIO()
        # Little compression: it is shown once, over a local connection.
        Image.fromarray(_rgb(self._canvas)).save(target, format="png", compress_level=1)
        return target.getvalue()


def _rgb(canvas: Any) -> Any:
    import numpy as np

    return np.asarray(canvas.buffer_rgba())[..., :3]


class _Waterfall:
    """A bar per term: predicted above, observed below it."""

    def __init__(self, ax: Axes, before: Outlook, observed: Sequence[Step], what: WhatIf) -> None:
        first = _steps(before)
        # A start that is refused has not all pools; one request alone shows them.
        every = (*first, *_steps(what.with_({"memory.max_running_requests": 1})), *observed)
        labels = {step.term: _LABELS.get(step.term, step.label) for step in every}
        self._terms = [term for term in _ORDER if term in labels]
        self._bars: dict[str, Any] = {}
        self._texts: dict[str, Any] = {}
        self._ax = ax
        seen = {step.term: step.observed for step in observed}
        there = any(value is not None for value in seen.values())
        start = 0.0
        for row, term in enumerate(self._terms):
            colour = _COLOURS.get(term, MUTED)
            above = row - (_APART if there else 0.0)
            self._bars[term] = ax.barh(above, 0.0, _BAR, **hollow(colour))[0]
            self._texts[term] = _words_beside(ax, 0.0, above, "", INK)
            if not there:
                continue
            value = seen.get(term)
            size = 0.0 if value is None else value / GIB
            ax.barh(row + _APART, size, _BAR, left=start, **filled(colour))
            words = "not logged" if value is None else f"{size:z,.2f}"
            _words_beside(ax, max(start, start + size), row + _APART, words, MUTED)
            start += 0.0 if term in _WITHIN else size
        total = next((card for step in (*first, *observed) if (card := step.predicted_card or step.card)), None)
        #: GiB. Without a card, as of a host's memory, what the bars take, as long as they do not take more.
        self.widest = start if total is None else max([total, *(step.predicted_card or 0 for step in first)]) / GIB
        self._grows = total is None
        if total is not None:
            ax.axvline(total / GIB, color=MUTED, linewidth=0.8, linestyle=":")
        ax.set_yticks(range(len(self._terms)), [fill(labels[term], _LABEL) for term in self._terms], fontsize=8)
        ax.set_ylim(len(self._terms) - 0.4, -0.6)
        ax.tick_params(axis="x", labelsize=8)
        on_host = any(step.on_host for step in (*first, *observed))
        ax.set_xlabel(f"GiB of the {'host' if on_host else 'card'}, per rank", fontsize=8)
        ax.set_xlim(0, (self.widest or 1.0) * 1.12)
        _bare(ax)
        handles = [predicted_patch(), *([observed_patch(what.observed.origin)] if there else [])]
        ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncol=2, fontsize=8, frameon=False)

    @property
    def moving(self) -> list[Any]:
        return [*self._bars.values(), *self._texts.values()]

    def update(self, after: Outlook) -> None:
        values = {step.term: step.predicted for step in _steps(after)}
        start = 0.0
        for term in self._terms:
            value = values.get(term)
            size = 0.0 if value is None else value / GIB
            bar, text = self._bars[term], self._texts[term]
            bar.set_x(start)
            bar.set_width(size)
            bar.set_visible(value is not None)
            text.set_text("not predicted" if value is None else f"{size:z,.2f}")
            text.set_color(MUTED if value is None else INK)
            text.xy = (max(start, start + size), text.xy[1])
            start += 0.0 if term in _WITHIN else size
        if self._grows and start > self.widest:
            self.widest = start
            self._ax.set_xlim(0, start * 1.12)


class _Cliff:
    """One limit over the requests asked, with the change and the start marked on it."""

    def __init__(self, ax: Axes, limit: Limit, what: WhatIf) -> None:
        self._ax, self._limit = ax, limit
        self.scale: tuple[float, float] | None = None  # most requests, highest value
        hue, red = _HUES[limit], STATUS_COLOURS["refused"]
        (self._line,) = ax.plot([], [], color=hue, linewidth=1.2, marker="o", markersize=4, markerfacecolor="white")
        (self._crosses,) = ax.plot([], [], "x", color=red, markersize=5, clip_on=False)
        (self._here,) = ax.plot([], [], "o", color=INK, markersize=11, markerfacecolor="none", markeredgewidth=1.6)
        self._words = ax.annotate("", (0, 0), xytext=(8, 7), textcoords="offset points", fontsize=8, fontweight="bold")
        self._words.set_clip_on(False)
        seen, asked = what.observed.resolved.get(limit), what.observed.asked
        self._seen = None if seen is None or asked is None else (asked, seen)
        if self._seen is not None:
            ax.plot([self._seen[0]], [self._seen[1]], "o", color=hue, markersize=7, clip_on=False)
        if limit == "running_requests":
            (self._as_asked,) = ax.plot([], [], color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
        ax.set_title(_TITLES[limit], fontsize=9, loc="left", fontweight="bold", pad=4)
        ax.tick_params(labelsize=8)
        ax.yaxis.set_major_formatter("{x:,.0f}")
        if limit == "kv_tokens":
            ax.set_xlabel("requests asked", fontsize=8)
        _bare(ax)

    @property
    def moving(self) -> list[Any]:
        return [self._line, self._crosses, self._here, self._words]

    def update(self, after: Outlook, curve: Curve) -> None:
        asked, values = curve.asked, curve.limits.get(self._limit, ())
        every = zip(asked, values, curve.refused, strict=True)
        known = [(float(x), float(y)) for x, y, no in every if y is not None and not no]
        self._line.set_data([x for x, _ in known], [y for _, y in known])
        crosses = [x for x, no in zip(asked, curve.refused, strict=True) if no]
        self._crosses.set_data(crosses, [0] * len(crosses))
        here = None if after.config is None else after.config.memory.max_running_requests
        value = 0 if after.verdict == "refused" else after.limit(self._limit)
        place = None if here is None or value is None else (float(here), float(value))
        self._here.set_data(*(([], []) if place is None else ([place[0]], [place[1]])))
        self._words.set_visible(place is not None)
        if place is not None:
            self._words.xy = place
            self._words.set_text("refused" if after.verdict == "refused" else f"{value:,}")
        if self._limit == "running_requests":
            self._as_asked.set_data(asked, asked)  # stands still as long as the scale does
        last = max(*asked, here or 1, self._seen[0] if self._seen else 1, 1)
        highest = max(*(y for _, y in known), value or 0, self._seen[1] if self._seen else 0, 1)
        self._rescale(last, highest * 1.22)

    def _rescale(self, last: float, top: float) -> None:
        """Scales stay as long as they do: all below the top, and not all in the lower part."""
        now = self.scale
        if now is not None and now[0] == last and 0.45 * now[1] <= top <= now[1]:
            return
        self.scale = (last, top)
        self._ax.set_xlim(0.4, last * 1.04 + 0.6)
        self._ax.set_ylim(0, top)


def _steps(outlook: Outlook) -> tuple[Step, ...]:
    if outlook.budget is None or outlook.config is None:
        return ()
    return predicted_steps(outlook.budget, outlook.config)


def _words_beside(ax: Axes, right: float, row: float, words: str, colour: str) -> Any:
    """By points, not by GiB: pools of a few MiB would have theirs beyond any picture."""
    beside: dict[str, Any] = {"xytext": (1.5, 0), "textcoords": "offset points"}
    return ax.annotate(words, (right, row), va="center", fontsize=6.5, color=colour, **beside)


def _bare(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
