"""One run: the verdict in a sentence, asked → resolved → served, the reconciliation, the findings.

In: a `Study`. Out: `Shown`. The words recorded (a recording was replayed or imported) and measured (an engine ran now)
follow the record's origin and stand over every figure that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .. import __version__
from ..diagnose import Finding, Remedy
from ..engines.contract import Line
from ..proofs import Proof, proofs
from ..reconcile import Row
from ..record import RunRecord
from ..studies import Study
from ..studies import study as study_of
from ..terms import LIMITS, TERMS, Limit
from .figures import amount_cell, change_text, interval_cell, setting_text, verdict_cell, verdict_words
from .shown import Cell, Shown, Tone, Value, code_lines, joined, paragraph, table, without_empty

_MEANINGS: dict[str, str] = {name: text for table in (TERMS, LIMITS) for name, text in table.items()}
#: A log line may be 10 kB (server_args); evidence shows its beginning.
_MAX_LINE = 360


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


def findings(study: Study, others: Iterable[RunRecord] = ()) -> Shown:
    """Causes with their evidence and remedies. `others`: records among which a remedy may have been tried."""
    if not study.diagnosis.findings:
        return paragraph(
            "Nothing found: every request that was asked for is served, and no figure is off.", tone="good"
        )
    candidates = tuple(others)
    return joined(_finding(finding, study, candidates) for finding in study.diagnosis.findings)


def _finding(finding: Finding, study: Study, others: Sequence[RunRecord]) -> Shown:
    evidence = code_lines(
        [(line.line, clipped(line.text)) for line in finding.evidence],
        label=f"evidence in the log ({study.record.origin})",
    )
    parts = [evidence]
    if finding.remedies:
        parts.append(_remedies(finding.remedies, study, others))
    inner = joined(parts)
    html = (
        f'<section class="finding {escape(finding.severity)}"><h3>'
        f'<span class="badge">{escape(finding.severity)}</span> {escape(finding.cause)}</h3>{inner.html}</section>'
    )
    return Shown(html, f"{finding.id} ({finding.severity}): {finding.cause}\n{inner.text}".rstrip())


def _remedies(remedies: Sequence[Remedy], study: Study, others: Sequence[RunRecord]) -> Shown:
    tried = [proofs(remedy, study.record.config, others) for remedy in remedies]
    # What somebody tried comes first: it is more than a prediction.
    order = sorted(range(len(remedies)), key=lambda number: not tried[number])
    rows = [_remedy_row(remedies[number], tried[number]) for number in order]
    headers = ["remedy", "requests", "slots", "KV tokens", "verdict", "what it costs", "tried in this campaign"]
    if not others:
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    basis = "this run's free memory" if remedies[0].basis == "measured" else "the configuration alone"
    return table(headers, rows, caption=f"Remedies, their effect predicted from {basis}")


def _remedy_row(remedy: Remedy, tried: Sequence[Proof]) -> list[Value]:
    limits = [
        amount_cell(remedy.predicted.get(limit), "count", unknown="not predicted")
        for limit in ("running_requests", "state_slots", "kv_tokens")
    ]
    cost = remedy.note + (". It changes the model's output." if remedy.changes_results else "")
    change = Cell(text=change_text(dict(remedy.set)), code=True, below=remedy.flags or None)
    return [change, *limits, verdict_cell(remedy.verdict), Cell(text=cost, wide=True), proof_cell(tried)]


def proof_cell(tried: Sequence[Proof]) -> Cell:
    """The closest run that has the remedy applied, what came of it, and in what else it differs."""
    if not tried:
        return Cell(text="no", tone="muted")
    best = tried[0]
    run = study_of(best.record.folder)
    tone: Tone = "good" if run.outcome == "served" else "warn"
    return Cell(
        text=f"{run.name}: {reached(run)}",
        tone=tone,
        href=f"../{run.name}/index.html",
        below=f"also {differences(best)}" if best.other else None,
    )


def reached(run: Study) -> str:
    """'served 4 of 4', or 'resolved 4 of 4, nothing sent'."""
    asked = "as many as fit" if run.asked is None else str(run.asked)
    if run.outcome in ("refused", "crashed", "timed_out", "unknown"):
        return f"{run.outcome.replace('_', ' ')}, {asked} asked"
    if run.served is None:
        return f"started, {_number(run.resolved)} of {asked} resolved, nothing sent"
    return f"served {run.served} of {asked}"


def differences(tried: Proof) -> str:
    """'memory.mem_fraction_static 0.508 instead of 0.509'."""
    return "; ".join(
        f"{key} {setting_text(there)} instead of {setting_text(here)}" for key, (here, there) in tried.other.items()
    )


def unread_lines(study: Study) -> Shown:
    """Lines that look like memory lines and fit no form we know: they may hold figures that are missing above."""
    lines: Sequence[Line] = study.diagnosis.unread
    if not lines:
        return Shown("", "")
    note = paragraph(f"{len(lines)} lines look like figures but fit no known form of this engine:", tone="warn")
    return joined([note, code_lines([(line.line, clipped(line.text)) for line in lines[:20]], label="unread lines")])


def clipped(text: str) -> str:
    """A line short enough to read, with the number of characters left out."""
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]} … ({len(text) - _MAX_LINE:,} more characters)"
