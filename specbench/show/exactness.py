"""How exact the predictions of a campaign were, by figure and by what was known before the start."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..studies.compared import BASES, FIGURES, Compared, farthest, missed_by, shares
from ..studies.exactness import of_recording
from ..studies.study import Study
from ..units import format_gib
from .shown import Cell, Shown, Value, table

_CAPTION = (
    "How exact the predictions are. Exact: the predicted point is the logged figure (a size: within the log's "
    "rounding); inside: only its interval holds the figure. Estimates, as of CUDA graphs, are no part of it."
)


def exactness(studies: Sequence[Study]) -> Shown:
    """A row per figure that a run logged, from the configuration alone and from the free memory of the start. Empty
    where nothing was predicted and logged."""
    rows = [row for study in studies for row in of_recording(study.diagnosis)]
    counted = shares(rows)
    body: list[list[Value]] = []
    for basis, figure in itertools.product(BASES, FIGURES):
        if ("recording", basis, figure) not in counted:
            continue
        total, exact, inside, off = counted["recording", basis, figure]
        missed = [row for row in rows if (row.basis, row.figure) == (basis, figure) and row.verdict != "exact"]
        reasons = list(dict.fromkeys(row.why for row in missed if row.why))
        body.append(
            [
                Cell(text=basis, title=BASES[basis]),
                FIGURES[figure].partition(" (")[0],
                Cell(text=str(total), number=True),
                Cell(text=str(exact), number=True, tone="good" if exact == total else "plain"),
                Cell(text=str(inside), number=True),
                Cell(text=str(off), number=True, tone="bad" if off else "plain"),
                _farthest(missed),
                Cell(text="; ".join(reasons), wide=True),
            ]
        )
    if not body:
        return Shown("", "")
    heads = ["known beforehand", "figure", "starts", "exact", "inside", "off", "farthest", "why not exact"]
    return table(heads, body, caption=f"{_CAPTION}{_configurations(studies)}")


def _configurations(studies: Sequence[Study]) -> str:
    """' Configuration: free memory inferred, not measured on 1 × RTX PRO 6000; measured on 4 × H200.'"""
    budgets = (study.diagnosis.budgets.get("config") for study in studies)
    rests = dict.fromkeys(
        one.free.rests_on.words for one in budgets if one is not None and one.free.rests_on is not None
    )
    return f" Configuration: free memory {'; '.join(rests)}." if rests else ""


def _farthest(missed: Sequence[Compared]) -> Cell:
    """By how much the worst point misses."""
    found = farthest(missed)
    if found is None:
        return Cell(text="")
    row, _ = found
    size = missed_by(row)
    return Cell(text=format_gib(size) if row.unit == "bytes" else f"{size:,}", below=row.name, number=True)
