"""Prediction against the log, term by term, and memory from four sides. In: a `Study`. Out: `Shown`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ..judging.reconcile import Row
from ..judging.sides import TOTALS, Told
from ..studies.study import Study
from ..terms import LIMITS, TERMS
from ..units import format_gib
from .figures import amount_cell, interval_cell, verdict_cell
from .shown import Cell, Shown, Value, joined, paragraph, table, without_empty

_MEANINGS: dict[str, str] = {name: text for table in (TERMS, LIMITS, TOTALS) for name, text in table.items()}


def reconciliation(study: Study) -> Shown:
    """Prediction against the log, term by term; ranks that agree share a row."""
    origin = study.record.origin
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
                _rank_text(ranks),
                _predicted_cell(config, any_row.unit, study),
                interval_cell(measured.predicted if measured else None, any_row.unit),
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
    return joined([table(*without_empty(headers, rows)), four_sides(study)])


def four_sides(study: Study) -> Shown:
    """Predicted, log, /server_info and NVML side by side, each cell with its source; where the engine contradicts
    itself is said below."""
    found = study.diagnosis.sides
    if found is None or not found.rows:
        return Shown("", "")
    origin = study.record.origin
    on = measured_words(study) if study.basis == "measured" else "from the configuration"
    sampled = not study.record.replayed or any(side.nvml is not None for side in found.rows)
    rows: list[list[Value]] = [
        [
            Cell(text=side.name.replace("_", " ") if side.name in TOTALS else side.name, title=_MEANINGS[side.name]),
            side.rank or "all",
            dataclasses.replace(interval_cell(side.predicted, side.unit), below=side.predicted_from),
            *(_told_cell(told, side.unit) for told in (side.log, side.server_info)),
            _told_cell(side.nvml, side.unit, unknown="not told" if sampled else "not sampled: a replay"),
        ]
        for side in found.rows
    ]
    headers = ["term", "rank", f"predicted ({on})"]
    headers += [f"{name} ({origin})" for name in ("log", "/server_info", "NVML")]
    shown = table(headers, rows, caption="From four sides: GiB per rank or counts, each with its source")
    parts = [shown]
    if found.deciding is not None:
        least = found.of("free_before_loading", found.deciding).log
        size = "" if least is None else f" ({format_gib(least.value)}, {origin})"
        parts.append(paragraph(f"{found.deciding} has least free before loading{size}: the server goes by it."))
    if found.not_sampled is not None and sampled:
        parts.append(paragraph(f"NVML tells nothing of a rank: {found.not_sampled}."))
    differ = (*found.disagreements, *study.diagnosis.pools.disagreements)
    if not differ:
        agreed = any(side.log is not None and side.server_info is not None for side in found.rows)
        return joined([*parts, paragraph("The log and /server_info agree.")] if agreed else parts)
    return joined([*parts, *(paragraph(f"The engine contradicts itself: {text}.", tone="bad") for text in differ)])


def _predicted_cell(row: Row | None, unit: str, study: Study) -> Cell:
    """What is left beside an emulated budget is compared on the larger card, which it says."""
    cell = interval_cell(row.predicted if row else None, unit)
    if row is None or row.predicted is None or (row.term, row.basis) != ("slack", "config"):
        return cell
    emulation = study.diagnosis.budgets["config"].emulation
    return cell if emulation is None else dataclasses.replace(cell, below=f"on the {emulation.host} that is there")


def _told_cell(told: Told | None, unit: str, *, unknown: str = "not told") -> Cell:
    if told is None:
        return Cell(text=unknown, tone="muted")
    return dataclasses.replace(amount_cell(told.value, unit), below=told.source)


def measured_words(study: Study) -> str:
    """What a prediction on the measured basis rests on."""
    budget = study.diagnosis.budgets.get("measured")
    return f"from {budget.free.words}" if budget is not None else "from logged free memory"


def _outside(row: Row) -> Cell:
    """How far an `off` value lies outside the interval; within the rounding of the log there is nothing to say."""
    return amount_cell(row.delta, row.unit, signed=True) if row.verdict == "off" else Cell(text="")


def reconciliation_verdict(study: Study) -> Shown:
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
    origin = study.record.origin
    return table(["term", "rank", "predicted", origin, "verdict"], rows)


def _told(study: Study) -> list[Row]:
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
    return list(merged.values())


def _rank_text(ranks: Sequence[str]) -> str:
    named = [rank for rank in ranks if rank]
    if not named:
        return "all" if ranks else ""
    return named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}" if len(named) > 2 else ", ".join(named)
