"""Where the memory of the card goes: one run as a waterfall, many runs as stacked bars. Bytes in, GiB on the axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..terms import TERMS, Origin, Term
from ..units import GIB
from .palette import (
    COMMUNICATION,
    MUTED,
    TERM_COLOURS,
    filled,
    hollow,
    legend_above,
    note,
    observed_patch,
    origin_of,
    predicted_patch,
)

_BAR = 0.36
#: Rows that overlap the next one instead of moving the waterfall on.
_WITHIN: frozenset[str] = frozenset({"graphs"})
_COLOURS = {"communication": COMMUNICATION} | {str(term): colour for term, colour in TERM_COLOURS.items()}
#: Width of a letter beside a bar and distance from it, as shares of the widest bar.
_LETTER, _GAP = 0.007, 0.006


def waterfall(steps: pd.DataFrame, *, origin: Origin = "recorded", ax: Axes | None = None) -> Axes:
    """How the card's memory is used up, term by term; each series ends at its card's total.

    `steps`: `frames.waterfall`, columns `term, label, predicted_bytes, observed_bytes, predicted_card_bytes,
    card_bytes, place, rank`, in stacking order; the two totals differ where a smaller card is emulated. Each bar starts
    where the one above it ended. `graphs` lie within `slack` and do not move the waterfall on. Communication that is
    not known lies within what was in use before it, and says so.
    """
    ax = ax or plt.gca()
    if steps.empty:
        return note(ax, "memory by term: not predicted, and not logged")
    start = {"predicted_bytes": 0.0, "observed_bytes": 0.0}
    ends = {
        name: float(pd.to_numeric(steps.loc[~steps["term"].isin(_WITHIN), name]).abs().sum()) / GIB for name in start
    }
    totals = _totals(steps)
    widest = max(*ends.values(), *totals.values(), 1.0)
    # A prediction alone has no observed side, a log of an unknown model no predicted one: no half-empty rows for it.
    sides = {name for name in start if steps[name].notna().any()}
    both = len(sides) == 2
    for row, (term, label) in enumerate(zip(steps["term"], steps["label"], strict=True)):
        colour = _COLOURS.get(term, MUTED)
        for name, offset, style, unknown in (
            ("predicted_bytes", -_BAR / 2, hollow(colour), "not predicted"),
            ("observed_bytes", _BAR / 2, filled(colour), "not logged"),
        ):
            value = steps[name].iloc[row]
            y = row + (offset if both else 0.0)
            left = start[name]
            if name not in sides:
                continue
            if pd.isna(value):
                if term == "communication" and left:
                    unknown += ": within the bar above"
                _beside(ax, (left, left), y, unknown, widest, totals, color=MUTED, style="italic")
                continue
            size = float(value) / GIB
            ax.barh(y, size, _BAR, left=left, label=f"{name}:{label}", **style)
            _beside(ax, (min(left, left + size), max(left, left + size)), y, f"{size:z,.2f}", widest, totals)
            if term not in _WITHIN:
                start[name] = left + size
    for name, total in totals.items():
        ax.axvline(total, color=MUTED, linewidth=0.8, linestyle=":")
        ax.text(total, -0.75, f"{name}: {total:,.2f}", ha="center", va="bottom", fontsize=7.5, color=MUTED)
    ax.set_yticks(range(len(steps)), list(steps["label"]))
    ax.set_ylim(len(steps) - 0.5, -0.75)
    ax.set_xlim(0, widest * 1.09)
    place = "host's memory" if steps["place"].iloc[0] == "host" else "card"
    # Of several ranks the server goes by the one with least: its card is drawn, as far as the log has them.
    rank, words = steps["rank"].iloc[0], steps["rank_words"].iloc[0]
    whose = f"of {rank}{f' ({words})' if words else ''}" if rank else "per rank"
    ax.set_xlabel(f"GiB of the {place}, {whose}{_unexplained(steps, sides, origin)}")
    patches = {"predicted_bytes": predicted_patch(), "observed_bytes": observed_patch(origin)}
    legend_above(ax, [patch for name, patch in patches.items() if name in sides], columns=2)
    return ax


def _beside(
    ax: Axes, ends: tuple[float, float], y: float, text: str, widest: float, totals: Mapping[str, float], **style: Any
) -> None:
    """Text at the right end of a bar; at its left one where it would run into the line of a card's total."""
    low, high = ends
    width, gap = len(text) * _LETTER * widest, _GAP * widest
    runs_into = any(high + gap <= total <= high + gap + width for total in totals.values())
    if runs_into and low > width + gap:
        ax.text(low - gap, y, text, ha="right", va="center", fontsize=7.5, **style)
    else:
        ax.text(high + gap, y, text, va="center", fontsize=7.5, **style)


#: CUDA's total is that of the card less what the driver keeps of it, so the smaller one of both;
#: an emulated card is never the larger one.
_DRIVERS_GIB = 1.5


def _totals(steps: pd.DataFrame) -> dict[str, float]:
    """Words -> GiB of the card; of an emulated one and of the one that is there."""
    cards = [steps[name].iloc[0] for name in ("predicted_card_bytes", "card_bytes")]
    expected, there = (None if pd.isna(card) else float(card) / GIB for card in cards)
    if expected is None or there is None or expected == there:
        total = there if expected is None else expected
        return {} if total is None else {"whole card": total}
    if 0 < expected - there <= _DRIVERS_GIB:
        return {f"whole card (CUDA counts {there:,.2f})": expected}
    return {"emulated card": expected, "card that is there": there}


def _unexplained(steps: pd.DataFrame, told: Collection[str], origin: Origin) -> str:
    """'; unexplained rest: 0.07 predicted, 0.09 recorded'."""
    rest = steps[steps["term"] == "unexplained"]
    if rest.empty:
        return ""
    sides = (("predicted_bytes", "predicted", "not predicted"), ("observed_bytes", origin, "not logged"))
    said = []
    for name, word, unknown in (side for side in sides if side[0] in told):
        value = rest[name].iloc[0]
        said.append(unknown if pd.isna(value) else f"{float(value) / GIB:z,.2f} {word}")
    return f"; {rest['label'].iloc[0]}: {', '.join(said)}"


def memory_by_term(memory: pd.DataFrame, *, basis: str = "measured", ax: Axes | None = None) -> Axes:
    """Memory by term over runs: a hollow stack (predicted) above a filled one (observed) for every run.

    `memory`: `frames.memory`, columns `run, rank, term, basis, predicted, observed` (bytes); the first rank.
    """
    ax = ax or plt.gca()
    rows = memory[memory["basis"] == basis]
    if rows.empty:
        return note(ax, "memory by term: not logged")
    runs = list(dict.fromkeys(rows["run"]))
    used: list[Term] = []
    for y, run in enumerate(runs):
        mine = rows[rows["run"] == run]
        mine = mine[mine["rank"] == mine["rank"].iloc[0]].drop_duplicates("term").set_index("term")
        start = {"predicted": 0.0, "observed": 0.0}
        for term in (name for name in TERMS if name in mine.index and name not in ("graphs", "slack", "unexplained")):
            for name, offset, style in (
                ("predicted", -_BAR / 2, hollow(TERM_COLOURS[term])),
                ("observed", _BAR / 2, filled(TERM_COLOURS[term])),
            ):
                value = mine.loc[term, name]
                if pd.isna(value):
                    continue
                size = float(value) / GIB
                ax.barh(y + offset, size, _BAR, left=start[name], label=f"{name}:{run}:{term}", **style)
                start[name] += size
                if term not in used:
                    used.append(term)
        if not start["observed"]:
            ax.text(0.3, y + _BAR / 2, "not logged", va="center", fontsize=7.5, color=MUTED, style="italic")
    ax.set_yticks(range(len(runs)), runs)
    ax.invert_yaxis()
    ax.set_xlabel("GiB per rank, before graphs and activations")
    handles = [predicted_patch(), observed_patch(origin_of(rows))]
    for term in TERMS:
        if term in used:
            handles.append(_patch(term))
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _patch(term: Term) -> Patch:
    return Patch(**filled(TERM_COLOURS[term]), label=term)
