"""Many runs: the opening in sentences, then one row each, asked → resolved → served, with the reason."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..diagnose.outgoing import safe
from ..errors import RecordError
from ..reading.latency import load_name
from ..reading.outcome import outcome_of, tally
from ..records.caveats import marks_set
from ..records.listing import Skipped, folder_in, read
from ..records.record import RunRecord
from ..studies.study import Collection, Missing, Study
from .client import client_warning
from .exactness import exactness
from .figures import amount_cell, outcome_cell
from .run import partly_answered, served_cell
from .shown import Cell, Shown, Value, joined, table
from .story import first_sentence, opening, short_cause


def campaign(collection: Collection) -> Shown:
    """What the campaign shows, every shortfall with its remedy, the table of all runs, how exact predictions were."""
    parts = [opening(collection), client_warning(collection.studies), runs_table(collection)]
    return joined([*parts, exactness(collection.studies)])


def runs_table(collection: Collection) -> Shown:
    """One row per run. Names are links where the folder belongs to a campaign, which has a page for each."""
    known = read(collection.folder)
    linked = known is not None
    earlier = {} if known is None else {entry.folder: entry.earlier for entry in known.entries if entry.folder}
    rows: list[list[Value]] = []
    for entry in collection.entries:
        rows.append(_row(entry, linked) if isinstance(entry, Study) else _missing_row(entry, linked))
        rows += [_earlier_row(collection.folder, name) for name in reversed(earlier.get(entry.folder.name, ()))]
    for name, skipped in collection.skipped.items():
        rows.append(_skipped_row(name, skipped))
        before = known.entry(name).earlier if known is not None else ()
        rows += [_earlier_row(collection.folder, folder) for folder in reversed(before)]
    headers = [
        "run",
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
    origins = " or ".join(sorted({study.record.origin for study in collection.studies}))
    caption = (
        (f"All figures from 'resolved' to 'TPOT' are {origins}. " if origins else "No run has left a record yet. ")
        + "TTFT and TPOT: medians at the heaviest load. Prediction: logged figures that lie in the interval that was "
        "predicted, from the free memory of the start itself where that is known, else from the configuration alone."
    )
    return table(headers, rows, caption=caption, stack=True)


def runs_verdict(collection: Collection) -> Shown:
    """Whole numbers and words only: what a test compares."""
    rows: list[list[Value]] = [
        [
            study.name,
            study.record.config.engine.version,
            outcome_cell(study.outcome),
            amount_cell(study.asked, "count", unknown="not given"),
            study.resolved,
            served_cell(study),
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
    below = f"{config.engine.version} · {config.speculative.algorithm} · TP {config.parallel.tp_size}"
    below += "".join(f" · {mark}" for mark in short_marks(study))
    return [
        _name(study.name, linked, below),
        amount_cell(study.asked, "count", unknown="not given"),
        study.resolved,
        served_cell(study),
        outcome_cell(study.outcome),
        Cell(text=_why(study), wide=True),
        found.pools.state_slots,
        found.pools.kv_tokens,
        _decimal(ttft, 1.0, 2, load),
        _decimal(tpot, 1e3, 1, load),
        _reconciled(study),
    ]


def _why(study: Study) -> str:
    """The first cause that cost something; before it how many were answered, where the outcome is silent about it."""
    cause, some = short_cause(study), partly_answered(study)
    return f"{some}: {cause}" if some and cause else some or cause


def short_marks(study: Study) -> list[str]:
    """Without what a mark explains: a row has little room."""
    return [mark.partition(":")[0].partition(";")[0] for mark in marks_set(study.record)]


def _missing_row(missing: Missing, linked: bool) -> list[Value]:
    blank = Cell(text="", plain="", number=True)
    why = Cell(text=first_sentence(safe(missing.error)), tone="bad", wide=True, title=safe(missing.error))
    return [_name(missing.name, linked), *([blank] * 3), outcome_cell("no_record"), why, *([blank] * 5)]


def _skipped_row(name: str, skipped: Skipped) -> list[Value]:
    """A configuration that was not started: a prediction, and no figure that was recorded or measured."""
    blank = Cell(text="", plain="", number=True)
    return [
        _name(name, False, skipped.what),
        amount_cell(skipped.asked_requests, "count", unknown="not given"),
        *([blank] * 2),
        Cell(text="not started", below=f"predicted {skipped.predicted}", tone="muted"),
        Cell(text=skipped.why, tone="muted", wide=True),
        *([blank] * 5),
    ]


def _earlier_row(root: Path, name: str) -> list[Value]:
    """An attempt that a later one replaced: how it ended. Its figures are on its own page."""
    folder = folder_in(root, name)
    blank = Cell(text="", plain="", number=True)
    try:
        if folder is None:
            raise RecordError("its folder is gone")
        record = RunRecord.open(folder)
    except RecordError as error:
        ended, why = outcome_cell("no_record"), first_sentence(str(error))
    else:
        sent, answered = tally(record.requests())
        ended = outcome_cell(outcome_of(record.status.status, asked=None, resolved=None, sent=sent, answered=answered))
        why = first_sentence(safe(record.status.reason))
    page = f"{name}/index.html" if folder is not None and (folder / "index.html").is_file() else None
    cell = Cell(text=f"earlier attempt: {name}", href=page, tone="muted")
    return [cell, *([blank] * 3), ended, Cell(text=why, tone="muted", wide=True), *([blank] * 5)]


def _name(name: str, linked: bool, below: str | None = None) -> Cell:
    return Cell(text=name, href=f"{name}/index.html" if linked else None, below=below)


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
        return "none answered" if study.latency.measured else "nothing sent", None, None
    step = max(steps, key=lambda one: (one.concurrency or 0, one.request_rate or 0.0))
    ttft, tpot = step.ttft_s, step.tpot_s
    name = load_name(step.concurrency, step.request_rate)
    return name, ttft.p50 if ttft is not None else None, tpot.p50 if tpot is not None else None


def _decimal(value: float | None, scale: float, digits: int, load: str) -> Cell:
    if value is None:
        return Cell(text=load, tone="muted")
    return Cell(text=f"{value * scale:,.{digits}f}", number=True, title=load)


def missing_notice(error: str) -> Shown:
    """The verdict box of a run that left no record."""
    error = safe(error)
    html = (
        '<div class="verdict crashed"><p class="word">No record</p><p class="sentence">The run did not finish.</p>'
        f'<p class="reason">{escape(error)}</p></div>'
    )
    return Shown(html, f"No record: {error}")
