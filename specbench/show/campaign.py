"""Many runs: the story in sentences, then one row each, asked → resolved → served, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..diagnose import Finding, Remedy
from ..frames.serving import load_name
from ..listing import read
from ..proofs import Proof, proofs
from ..studies import Collection, Missing, Study
from .figures import amount_cell, change_text, verdict_cell
from .findings import differences, reached
from .run import served_cell
from .shown import Cell, Shown, Value, joined, paragraph, table

_WORDS = {
    "served": "served what was asked",
    "capped": "served fewer at once than asked, without an error",
    "refused": "did not start",
    "crashed": "died after the start",
    "timed_out": "were not ready in time",
    "unknown": "ended without saying how",
}
_MAX_CAUSE = 150


def campaign(collection: Collection) -> Shown:
    """What happened in a sentence per outcome, which remedies were proved, the table of all runs."""
    return joined([_counts(collection), story(collection), runs_table(collection)])


def runs_table(collection: Collection) -> Shown:
    """One row per run. Names are links where the folder belongs to a campaign, which has a page for each."""
    linked = read(collection.folder) is not None
    rows = [
        _row(entry, linked) if isinstance(entry, Study) else _missing_row(entry, linked) for entry in collection.entries
    ]
    headers = [
        "run",
        "SGLang",
        "speculation",
        "TP",
        "asked",
        "resolved",
        "served",
        "outcome",
        "why",
        "state slots",
        "KV tokens",
        "TTFT s",
        "TPOT ms",
        "prediction",
    ]
    origins = " or ".join(sorted({study.record.origin for study in collection.studies})) or "recorded"
    caption = (
        f"All figures from 'resolved' to 'TPOT' are {origins}. TTFT and TPOT: medians at the heaviest load. "
        "Prediction: figures that lie in the predicted interval."
    )
    return table(headers, rows, caption=caption)


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
    load, ttft, tpot = heaviest(study)
    return [
        _name(study.name, linked),
        config.engine.version,
        config.speculative.algorithm,
        config.parallel.tp_size,
        amount_cell(study.asked, "count", unknown="not given"),
        study.resolved,
        served_cell(study),
        verdict_cell(study.outcome),
        Cell(text=_cause(study), wide=True),
        found.pools.state_slots,
        found.pools.kv_tokens,
        _decimal(ttft, 1.0, 2, load),
        _decimal(tpot, 1e3, 1, load),
        _reconciled(study),
    ]


def _missing_row(missing: Missing, linked: bool) -> list[Value]:
    blank = Cell(text="", plain="")
    why = Cell(text=_first_sentence(missing.error), tone="bad", wide=True, title=missing.error)
    return [_name(missing.name, linked), *([blank] * 6), Cell(text="no record", tone="bad"), why, *([blank] * 5)]


def _name(name: str, linked: bool) -> Cell:
    return Cell(text=name, href=f"{name}/index.html" if linked else None)


def _cause(study: Study) -> str:
    first = next((finding for finding in study.diagnosis.findings if finding.severity != "notice"), None)
    return _first_sentence(first.cause) if first is not None else ""


def _first_sentence(text: str) -> str:
    """Enough to tell rows apart; the run's page has the whole text."""
    line = " ".join(text.split())
    sentence, dot, _ = line.partition(". ")
    sentence += "." if dot else ""
    return sentence if len(sentence) <= _MAX_CAUSE else sentence[:_MAX_CAUSE].rsplit(" ", 1)[0] + " …"


def _reconciled(study: Study) -> Cell:
    """'12 match' or '2 of 12 off', on the better basis; rows that nothing was logged for are not counted."""
    rows = [row for row in study.diagnosis.reconciliation.rows if row.basis == study.basis]
    compared = [row for row in rows if row.verdict in ("match", "off")]
    off = sum(row.verdict == "off" for row in compared)
    if not compared:
        return Cell(text="nothing logged", tone="muted")
    if off:
        return Cell(text=f"{off} of {len(compared)} off", tone="bad")
    return Cell(text=f"{len(compared)} match", tone="good")


def heaviest(study: Study) -> tuple[str, float | None, float | None]:
    """Of the step with the heaviest load: its name, median time to first token and per output token, in seconds."""
    steps = [step for step in study.latency.measured if step.ok]
    if not steps:
        return "nothing answered" if study.latency.measured else "nothing sent", None, None
    step = max(steps, key=lambda one: (one.concurrency or 0, one.request_rate or 0.0))
    ttft, tpot = step.ttft_s, step.tpot_s
    name = load_name(step.concurrency, step.request_rate)
    return name, ttft.p50 if ttft is not None else None, tpot.p50 if tpot is not None else None


def _decimal(value: float | None, scale: float, digits: int, load: str) -> Cell:
    if value is None:
        return Cell(text=load, tone="muted")
    return Cell(text=f"{value * scale:,.{digits}f}", number=True, title=load)


def _counts(collection: Collection) -> Shown:
    counts = {word: sum(study.outcome == outcome for study in collection.studies) for outcome, word in _WORDS.items()}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    if collection.missing:
        parts.append(f"{len(collection.missing)} left no record")
    return paragraph(f"{len(collection.entries)} configurations: {'; '.join(parts)}.")


def story(collection: Collection) -> Shown:
    """Every run that did not get what was asked and whose remedy another run tried: what happened, why, the proof."""
    linked = read(collection.folder) is not None
    html, text = [], []
    for study, finding, remedy, tried in _proved(collection):
        predicted = remedy.predicted.get("running_requests")
        said = "not predicted" if predicted is None else f"predicted: {predicted} at once"
        change = change_text(dict(remedy.set))
        asked = "As many as fit" if study.asked is None else f"{study.asked} asked"
        before, after = f"{asked}, {study.outcome}. {_first_sentence(finding.cause)} Remedy: ", f" ({said}). Tried by "
        runs = [next(other for other in collection.studies if other.record is one.record) for one in tried]
        also = [f" (with {differences(one)})" if one.other else "" for one in tried]
        html.append(
            f"<li>{_link(study, linked)}: {escape(before)}<code>{escape(change)}</code>{escape(after)}"
            + "; and by ".join(
                f"{_link(run, linked)}: <strong>{escape(reached(run))}</strong>{escape(more)}"
                for run, more in zip(runs, also, strict=True)
            )
            + ".</li>"
        )
        proved = "; and by ".join(f"{run.name}: {reached(run)}{more}" for run, more in zip(runs, also, strict=True))
        text.append(f"- {study.name}: {before}{change}{after}{proved}.")
    return Shown(f'<ul class="story">{"".join(html)}</ul>' if html else "", "\n".join(text))


def _link(study: Study, linked: bool) -> str:
    name = f"<strong>{escape(study.name)}</strong>"
    return f'<a href="{escape(study.name)}/index.html">{name}</a>' if linked else name


def _proved(collection: Collection) -> Iterator[tuple[Study, Finding, Remedy, list[Proof]]]:
    """Of each run that did not get what was asked, the remedy with the closest proof, and that proof.

    When the closest run was sent nothing, the closest one that answered requests is given beside it.
    """
    for study in collection.studies:
        if study.outcome == "served":
            continue
        records = [other.record for other in collection.studies if other is not study]
        best: tuple[Finding, Remedy, list[Proof]] | None = None
        for finding in study.diagnosis.findings:
            for remedy in finding.remedies:
                tried = proofs(remedy, study.record.config, records)
                if tried and (best is None or len(tried[0].other) < len(best[2][0].other)):
                    answered = [one for one in tried[1:] if one.record.requests() and not tried[0].record.requests()]
                    best = finding, remedy, [tried[0], *answered[:1]]
        if best is not None:
            yield study, *best


def missing_notice(error: str) -> Shown:
    """The verdict box of a run that left no record."""
    html = (
        '<div class="verdict crashed"><p class="word">No record</p><p class="sentence">The run did not finish.</p>'
        f'<p class="reason">{escape(error)}</p></div>'
    )
    return Shown(html, f"No record: {error}")
