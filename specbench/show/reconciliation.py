"""Prediction against the log, term by term, above memory from four sides. In: a `Seen`. Out: `Shown`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..judging.reconcile import Row
from ..judging.sides import ranks_of
from ..studies.seen import Seen
from ..terms import LIMITS, TERMS
from .figures import amount_cell, interval_cell, verdict_cell
from .shown import Cell, Shown, Value, joined, paragraph, table, without_empty
from .sides import four_sides, measured_words, rank_text

_MEANINGS: dict[str, str] = {name: text for table in (TERMS, LIMITS) for name, text in table.items()}


def reconciliation(study: Seen) -> Shown:
    """Prediction against the log, term by term; ranks that agree share a row."""
    origin, every = study.origin, ranks_of(study.diagnosis.pools)
    rows: list[list[Value]] = []
    for group in _grouped(_told(study)):
        by_basis = {row.basis: row for row in group}
        any_row = group[0]
        best = by_basis.get(study.basis, any_row)
        ranks = list(dict.fromkeys(row.rank for row in group))
        config, measured = by_basis.get("config"), by_basis.get("measured")
        rows.append(
            [
                Cell(text=any_row.term, title=_MEANINGS[any_row.term]),
                rank_text(ranks, every),
                _predicted_cell(config, any_row.unit, study),
                interval_cell(
                    measured.predicted if measured else None, any_row.unit, estimated=best.verdict == "estimated"
                ),
                amount_cell(any_row.observed, any_row.unit),
                _outside(best),
                verdict_cell(best.verdict),
                Cell(text=best.attribution or ""),
                Cell(text="" if any_row.line is None else str(any_row.line), number=True),
            ]
        )
    headers = [
        "term",
        "rank",
        "predicted (from the configuration)",
        f"predicted ({measured_words(study)})",
        origin,
        "outside by",
        "verdict",
        "difference comes from",
        "log line",
    ]
    budget = study.diagnosis.budgets.get("config")
    rests = None if budget is None else budget.free.rests_on
    source = Shown("", "") if rests is None else paragraph(f"From the configuration: free memory {rests.words}.")
    return joined([table(*without_empty(headers, rows)), source, four_sides(study)])


def _predicted_cell(row: Row | None, unit: str, study: Seen) -> Cell:
    """What is left beside an emulated budget is compared on the larger card, which it says."""
    cell = interval_cell(row.predicted if row else None, unit, estimated=row is not None and row.verdict == "estimated")
    if row is None or row.predicted is None or (row.term, row.basis) != ("slack", "config"):
        return cell
    emulation = study.diagnosis.budgets["config"].emulation
    return cell if emulation is None else dataclasses.replace(cell, below=f"on the {emulation.host} that is there")


def _outside(row: Row) -> Cell:
    """How far an `off` value lies outside the interval; within the rounding of the log there is nothing to say."""
    return amount_cell(row.delta, row.unit, signed=True) if row.verdict == "off" else Cell(text="")


def reconciliation_verdict(study: Seen) -> Shown:
    """The counts and whole bytes on the better basis only: what a test compares."""
    rows: list[list[Value]] = [
        [
            row.term,
            row.rank or "-",
            _predicted_cell(row, row.unit, study),
            amount_cell(row.observed, row.unit),
            row.verdict,
        ]
        for row in _told(study)
        if row.basis == study.basis
    ]
    origin = study.origin
    return table(["term", "rank", "predicted", origin, "verdict"], rows)


def _told(study: Seen) -> list[Row]:
    """Without the terms that the configuration does not have: predicted as nothing, and nothing of them logged."""
    return [
        row
        for row in study.diagnosis.reconciliation.rows
        if row.observed is not None or row.predicted is None or row.predicted.high != 0
    ]


def _grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of one term: both bases together, and equal ranks together."""
    per_rank: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        per_rank.setdefault((row.term, row.rank), []).append(row)
    merged: dict[tuple[object, ...], list[Row]] = {}
    for (term, _), mine in per_rank.items():
        key = (term, mine[0].observed, *((row.basis, row.verdict, row.predicted) for row in mine))
        merged.setdefault(key, []).extend(mine)
    terms = list(dict.fromkeys(term for term, _ in per_rank))
    return sorted(merged.values(), key=lambda group: terms.index(group[0].term))
