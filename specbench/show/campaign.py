"""Many runs: one row each, asked → resolved → served, with the reason and the remedy that another run proved."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ..frames.serving import load_name
from ..listing import read
from ..proofs import Proof, proof
from ..studies import Collection, Missing, Study
from .figures import amount_cell, change_text, verdict_cell
from .shown import Cell, Shown, Value, joined, paragraph, table


def campaign(collection: Collection) -> Shown:
    """What happened in a sentence per outcome, the table of all runs, then which remedies were proved."""
    return joined([_story(collection), runs_table(collection), proved(collection)])


def runs_table(collection: Collection) -> Shown:
    """One row per run. Links lead to the run's page where the folder belongs to a campaign."""
    linked = read(collection.folder) is not None
    rows: list[list[Value]] = [_row(study, linked) for study in collection.studies]
    rows += [_missing_row(missing, linked) for missing in collection.missing]
    origins = sorted({study.record.origin for study in collection.studies}) or ["recorded"]
    origin = " / ".join(origins)
    headers = [
        "run",
        "SGLang",
        "algorithm",
        "tp",
        "asked",
        f"resolved ({origin})",
        f"served ({origin})",
        f"state slots ({origin})",
        f"KV tokens ({origin})",
        "TTFT p50 s",
        "TPOT p50 ms",
        "at",
        "outcome",
        "predicted",
        "prediction",
        "why",
    ]
    return table(headers, rows)


def runs_verdict(collection: Collection) -> Shown:
    """Whole numbers and words only: what a test compares."""
    rows: list[list[Value]] = [
        [
            study.name,
            study.record.config.engine.version,
            study.outcome,
            amount_cell(study.asked, "count", unknown="not given"),
            study.resolved,
            study.served,
            study.diagnosis.pools.state_slots,
            study.diagnosis.pools.kv_tokens,
            _reconciled(study).printed,
        ]
        for study in collection.studies
    ]
    headers = ["run", "version", "outcome", "asked", "resolved", "served", "state slots", "KV tokens", "prediction"]
    return table(headers, rows)


def _row(study: Study, linked: bool) -> list[Value]:
    config, found = study.record.config, study.diagnosis
    budget = found.budgets.get(study.basis)
    load, ttft, tpot = heaviest(study)
    return [
        _name(study.name, linked),
        config.engine.version,
        config.speculative.algorithm,
        config.parallel.tp_size,
        amount_cell(study.asked, "count", unknown="not given"),
        study.resolved,
        study.served if study.served is not None else _not_served(study),
        found.pools.state_slots,
        found.pools.kv_tokens,
        _decimal(ttft, 1.0, 2),
        _decimal(tpot, 1e3, 1),
        load,
        verdict_cell(study.outcome),
        verdict_cell(budget.verdict) if budget is not None else None,
        _reconciled(study),
        found.findings[0].cause if found.findings else "",
    ]


def _missing_row(missing: Missing, linked: bool) -> list[Value]:
    blank = Cell(text="no record", tone="muted")
    return [
        _name(missing.name, linked),
        *([blank] * 11),
        Cell(text="failed", tone="bad"),
        blank,
        blank,
        Cell(text=missing.error, tone="bad"),
    ]


def _name(name: str, linked: bool) -> Cell:
    return Cell(text=name, href=f"{name}/index.html" if linked else None)


def _not_served(study: Study) -> Cell:
    """A server that never ran served none; one that got no request has no figure."""
    if study.outcome in ("refused", "timed_out"):
        return Cell(text="0", plain="0", number=True, tone="bad")
    return Cell(text="not logged" if study.record.requests() else "nothing sent", tone="muted")


def _reconciled(study: Study) -> Cell:
    """'12 match' or '2 of 12 off', on the better basis; rows that nothing was logged for are not counted."""
    rows = [row for row in study.diagnosis.reconciliation.rows if row.basis == study.basis]
    joined_rows = [row for row in rows if row.verdict in ("match", "off")]
    off = sum(row.verdict == "off" for row in joined_rows)
    if not joined_rows:
        return Cell(text="nothing logged", tone="muted")
    if off:
        return Cell(text=f"{off} of {len(joined_rows)} off", tone="bad")
    return Cell(text=f"{len(joined_rows)} match", tone="good")


def heaviest(study: Study) -> tuple[str, float | None, float | None]:
    """Of the step with the heaviest load: its name, median time to first token and per output token, in seconds."""
    steps = [step for step in study.latency.measured if step.ok]
    if not steps:
        return "nothing answered" if study.latency.measured else "nothing sent", None, None
    step = max(steps, key=lambda one: (one.concurrency or 0, one.request_rate or 0.0))
    ttft, tpot = step.ttft_s, step.tpot_s
    name = load_name(step.concurrency, step.request_rate)
    return name, ttft.p50 if ttft is not None else None, tpot.p50 if tpot is not None else None


def _decimal(value: float | None, scale: float, digits: int) -> Cell:
    if value is None:
        return Cell(text="not logged", tone="muted")
    return Cell(text=f"{value * scale:,.{digits}f}", number=True)


def _story(collection: Collection) -> Shown:
    words = {
        "served": "served what was asked",
        "capped": "served fewer at once than asked, without an error",
        "refused": "did not start",
        "crashed": "died after the start",
        "timed_out": "were not ready in time",
        "unknown": "ended without saying how",
    }
    counts = {word: sum(study.outcome == outcome for study in collection.studies) for outcome, word in words.items()}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    if collection.missing:
        parts.append(f"{len(collection.missing)} left no record")
    total = len(collection.studies) + len(collection.missing)
    return paragraph(f"{total} configurations: {'; '.join(parts)}.")


def proved(collection: Collection) -> Shown:
    """Runs that did not get what was asked, each with the remedy that another run of the same folder tried."""
    rows: list[list[Value]] = []
    linked = read(collection.folder) is not None
    for study in collection.studies:
        if study.outcome == "served":
            continue
        for remedy_text, predicted, tried in _proofs(study, collection.studies):
            run = next(other for other in collection.studies if other.record is tried.record)
            reached = run.served if run.served is not None else run.resolved
            rows.append(
                [
                    _name(study.name, linked),
                    verdict_cell(study.outcome),
                    remedy_text,
                    amount_cell(predicted, "count", unknown="not predicted"),
                    _name(run.name, linked),
                    verdict_cell(run.outcome),
                    amount_cell(reached, "count"),
                    "; ".join(f"{key}: {there} instead of {here}" for key, (here, there) in tried.other.items()),
                ]
            )
    if not rows:
        return Shown("", "")
    headers = [
        "run",
        "outcome",
        "remedy",
        "requests predicted with it",
        "tried by",
        "its outcome",
        "requests it got (recorded)",
        "it also differs in",
    ]
    return joined([paragraph("Remedies that another run of this campaign has tried:"), table(headers, rows)])


def _proofs(study: Study, others: Iterable[Study]) -> list[tuple[str, int | None, Proof]]:
    records = [other.record for other in others if other.folder != study.folder]
    found: dict[str, tuple[str, int | None, Proof]] = {}
    for finding in study.diagnosis.findings:
        for remedy in finding.remedies:
            tried = proof(remedy, study.record.config, records)
            if tried is not None:
                text = change_text(dict(remedy.set))
                found.setdefault(text, (text, remedy.predicted.get("running_requests"), tried))
    return list(found.values())


def missing_notice(error: str) -> Shown:
    """The verdict box of a run that left no record."""
    html = (
        '<div class="verdict crashed"><p class="word">No record</p><p class="sentence">The run did not finish.</p>'
        f'<p class="reason">{escape(error)}</p></div>'
    )
    return Shown(html, f"No record: {error}")


__all__ = ["campaign", "heaviest", "load_name", "missing_notice", "proved", "runs_table", "runs_verdict"]
