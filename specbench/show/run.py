"""One run: the verdict in a sentence, asked → resolved → served, the reconciliation, the findings.

In: a `Study`. Out: `Shown`. The words recorded (a recording was replayed or imported) and measured (an engine ran now)
follow the record's origin and stand over every figure that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .. import __version__
from ..reconcile import Row
from ..record import RunRecord
from ..studies import Study
from ..terms import LIMITS, TERMS, Limit
from .figures import amount_cell, interval_cell, verdict_cell, verdict_words
from .shown import Cell, Shown, Value, joined, paragraph, table, without_empty

_MEANINGS: dict[str, str] = {name: text for table in (TERMS, LIMITS) for name, text in table.items()}


def headline(study: Study) -> Shown:
    """What happened, in one sentence and with the reason."""
    word, sentence = _sentence(study)
    reason = _reason(study)
    html = (
        f'<div class="verdict {escape(study.outcome)}">'
        f'<p class="word">{escape(word)} · {escape(study.record.origin)}</p>'
        f'<p class="sentence">{escape(sentence)}</p>'
        + (f'<p class="reason">{escape(reason)}</p>' if reason else "")
        + "</div>"
    )
    return Shown(html, "\n".join(part for part in (f"{word}: {sentence}", reason) if part))


def notes(study: Study) -> Shown:
    """What a reader of the figures must know, and where they come from."""
    lines = [*_notes(study), provenance(study.record)]
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return Shown(f'<ul class="notes">{items}</ul>', "\n".join(f"- {line}" for line in lines))


def _notes(study: Study) -> list[str]:
    """Said when the record was written or when the log was read."""
    return [note.rstrip(".") for note in (*study.record.status.notes, *study.diagnosis.assumptions)]


def _sentence(study: Study) -> tuple[str, str]:
    asked = "as many as fit" if study.asked is None else f"{study.asked}"
    served = study.served
    match study.outcome:
        case "served" if served is None:
            return "Served", f"{asked} asked, {_number(study.resolved)} resolved; no request was sent (load-only run)."
        case "served":
            return "Served", f"{asked} requests at once asked, {_number(study.resolved)} resolved, {served} served."
        case "capped":
            reached = "no request was sent" if served is None else f"{served} served at once"
            return "Capped", f"{asked} requests at once asked, {_number(study.resolved)} resolved, {reached}."
        case "refused":
            return "Refused", f"{asked} requests at once asked, none served: the server did not start."
        case "crashed":
            reached = "none" if served is None else f"{served}"
            return "Crashed", f"{asked} requests at once asked, {reached} served before the server died."
        case "timed_out":
            return "Timed out", f"{asked} requests at once asked; the server was not ready in time."
        case _:
            return "Unknown", "the log ends before it tells how the run ended."


def _number(value: int | None) -> str:
    return "not logged" if value is None else f"{value:,}"


def _reason(study: Study) -> str:
    first = next((finding for finding in study.diagnosis.findings if finding.severity != "notice"), None)
    if first is not None:
        return first.cause
    budget = study.diagnosis.budgets.get(study.basis)
    return budget.reason if budget is not None and study.outcome != "served" else ""


def provenance(record: RunRecord) -> str:
    """'recorded: replay of a recording · SGLang 0.5.12 · Qwen/Qwen3.6-27B · 1 × h200 · specbench 0.1.0'."""
    config = record.config
    parts = [
        f"{record.origin}: {_origin_words(record)}",
        f"SGLang {config.engine.version}",
        config.model,
        f"{config.gpu.count} × {config.gpu.name}",
        f"specbench {__version__}",
    ]
    return " · ".join(parts)


def _origin_words(record: RunRecord) -> str:
    if record.origin == "measured":
        return "a real engine ran"
    return "an imported recording" if record.config.engine.replay is None else "replay of a recording"


def overview(study: Study) -> Shown:
    """The verdict and the table below it."""
    return joined([headline(study), served_table(study), notes(study)])


def served_table(study: Study) -> Shown:
    """Every limit: asked, predicted, resolved by the engine, reached by the workload."""
    asked = _asked(study)
    budget = study.diagnosis.budgets.get(study.basis)
    rows: list[list[Value]] = []
    for limit, meaning in LIMITS.items():
        predicted = budget.limits.get(limit) if budget is not None else None
        observed = study.diagnosis.resolved.get(limit)
        rows.append(
            [
                Cell(text=limit, title=meaning),
                Cell(text="not given", tone="muted") if asked.get(limit) is None else asked[limit],
                interval_cell(predicted.value if predicted else None, "count"),
                amount_cell(observed, "count"),
                served_cell(study) if limit == "running_requests" else Cell(text=""),
            ]
        )
    origin = study.record.origin
    on = "from logged free memory" if study.basis == "measured" else "from the configuration"
    headers = ["limit", "asked", f"predicted ({on})", f"resolved ({origin})", f"served ({origin})"]
    shown = table(headers, rows)
    if budget is not None:
        words = verdict_words(budget.verdicts)
        shown = joined([shown, paragraph(f"Predicted verdict: {words}. {budget.reason}")])
    return shown


def served_cell(study: Study) -> Cell:
    """Most requests at once. A server that never ran served none; one that was sent nothing has no figure."""
    if study.served is not None:
        return amount_cell(study.served, "count")
    if study.outcome in ("refused", "timed_out"):
        return Cell(text="0", number=True, tone="bad")
    return Cell(text="not logged" if study.record.requests() else "nothing sent", tone="muted")


def _asked(study: Study) -> dict[Limit, int | None]:
    memory = study.record.config.memory
    return {
        "running_requests": memory.max_running_requests,
        "state_slots": memory.max_mamba_cache_size,
        "kv_tokens": memory.max_total_tokens,
        "context_len": memory.context_length,
    }


def reconciliation(study: Study) -> Shown:
    """Prediction against the log, term by term; ranks that agree share a row."""
    origin = study.record.origin
    rows: list[list[Value]] = []
    for group in _grouped(study.diagnosis.reconciliation.rows):
        by_basis = {row.basis: row for row in group}
        any_row = group[0]
        best = by_basis.get(study.basis, any_row)
        ranks = list(dict.fromkeys(row.rank for row in group))
        config, measured = by_basis.get("config"), by_basis.get("measured")
        rows.append(
            [
                Cell(text=any_row.term, title=_MEANINGS[any_row.term]),
                _rank_text(ranks),
                interval_cell(config.predicted if config else None, any_row.unit),
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
        "predicted (from logged free memory)",
        origin,
        "outside by",
        "verdict",
        "difference comes from",
        "log line",
    ]
    return table(*without_empty(headers, rows))


def _outside(row: Row) -> Cell:
    """How far an `off` value lies outside the interval; within the rounding of the log there is nothing to say."""
    return amount_cell(row.delta, row.unit, signed=True) if row.verdict == "off" else Cell(text="")


def reconciliation_verdict(study: Study) -> Shown:
    """The counts and whole bytes on the better basis only: what a test compares."""
    rows: list[list[Value]] = [
        [
            row.term,
            row.rank or "-",
            interval_cell(row.predicted, row.unit),
            amount_cell(row.observed, row.unit),
            row.verdict,
        ]
        for row in study.diagnosis.reconciliation.rows
        if row.basis == study.basis
    ]
    origin = study.record.origin
    return table(["term", "rank", "predicted", origin, "verdict"], rows)


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
