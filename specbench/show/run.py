"""One run: the verdict in a sentence, asked → resolved → served, notes, and where the figures come from.

In: a `Seen`, of a record or of a bare log. Out: `Shown`. The words recorded (a recording was replayed or imported, or
it is a log) and measured (an engine ran now) stand over every figure that was observed.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape

from ..diagnose.outgoing import safe
from ..reading.outcome import in_words, some_answered
from ..records.caveats import caveats
from ..studies.seen import Seen
from ..terms import LIMITS
from ..units import counted
from .figures import amount_cell, interval_cell, verdict_words
from .gpu_use import still_held
from .sending import questions
from .shown import Cell, Shown, Value, banner, joined, paragraph, table
from .sides import measured_words


def headline(study: Seen) -> Shown:
    """What happened, in one sentence and with the reason, and where the figures come from."""
    word, sentence = in_words(study.outcome).capitalize(), _sentence(study)
    reason, source = safe(_reason(study)), safe(" · ".join(study.provenance))
    html = (
        f'<div class="verdict {escape(study.outcome)}">'
        f'<p class="word">{escape(word)} · {escape(study.origin)}</p>'
        f'<p class="sentence">{escape(sentence)}</p>'
        + (f'<p class="reason">{escape(reason)}</p>' if reason else "")
        + f'<p class="provenance">{escape(source)}</p></div>'
    )
    box = Shown(html, "\n".join(part for part in (f"{word}: {sentence}", reason, source) if part))
    return joined([*(banner(safe(mark)) for mark in study.diagnosis.marks), box])


def notes(study: Seen) -> Shown:
    """What a reader of the figures must know: first, set apart, what limits their worth."""
    warned = () if study.config is None else caveats(study.config)
    said = [note.rstrip(".") for note in (*study.notes, *study.diagnosis.assumptions)]
    lines = [safe(line) for line in dict.fromkeys(said) if line not in (*warned, *study.diagnosis.marks)]
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    listed = Shown(f'<ul class="notes">{items}</ul>' if items else "", "\n".join(f"- {line}" for line in lines))
    warnings = [banner(f"{caveat[:1].upper()}{caveat[1:]}.") for caveat in warned]
    return joined([*warnings, still_held(study.record), listed])


def _sentence(study: Seen) -> str:
    asked = "As many as fit asked" if study.asked is None else f"{counted(study.asked, 'request')} at once asked"
    asked = asked if study.asked_is_told else "What was asked is not logged"
    resolved = "resolved: not logged" if study.resolved is None else f"{study.resolved:,} resolved"
    served = study.served
    sent, answered = study.diagnosis.sent or 0, study.diagnosis.answered
    seen = f"{served:,} served at once" if served is not None else "how many were served at once is not logged"
    seen = "no request was sent (load-only run)" if answered == 0 else seen
    match study.outcome:
        case "served" | "capped" | "started":
            some = partly_answered(study)
            end = f"; {some}" if some else ""
            return f"{asked}, {resolved}{';' if answered == 0 or served is None else ','} {seen}{end}."
        case "unanswered":
            return f"{asked}, {resolved}; none of the {counted(sent, 'request')} sent was answered."
        case "refused":
            return f"{asked}, none served: the server did not start."
        case "crashed":
            if answered is None:  # a bare log
                if served is None:
                    return f"{asked}, {resolved}; the server died, and its log does not tell how many it had served."
                return f"{asked}, {resolved}, {seen} before the server died."
            some = f"{answered} of {counted(sent, 'request')}" if answered else "no request"
            return f"{asked}, {resolved}; {some} answered before the server died."
        case "timed_out" if study.record is not None and study.record.status.cut_short:
            return f"{asked}, {resolved}; ended by the deadline of its campaign before it was done."
        case "timed_out":
            return f"{asked}, none served: the server was not ready in time."
        case _:
            return f"{asked}; the log ends before it tells how the run ended."


def partly_answered(study: Seen) -> str:
    """'1 of 3 requests answered', where the word for the outcome is silent about it; else empty."""
    found = study.diagnosis
    return some_answered(found.sent, found.answered) if study.outcome in ("served", "capped") else ""


def _reason(study: Seen) -> str:
    first = study.diagnosis.main_finding
    if first is not None:
        return " ".join([first.cause, *(finding.beside for finding in study.diagnosis.beside)])
    budget = study.diagnosis.budgets.get(study.basis)
    return budget.reason if budget is not None and study.outcome not in ("served", "started") else ""


def overview(study: Seen) -> Shown:
    """The verdict and the table below it."""
    return joined([headline(study), _of_the_server(study), served_table(study), notes(study), questions(study)])


def _of_the_server(study: Seen) -> Shown:
    """Of several ranks: that slots and tokens are no figures of one of them."""
    budget, pools = study.diagnosis.budgets.get(study.basis), study.diagnosis.pools
    if budget is None:
        return Shown("", "")
    said = budget.not_multiplied(pools.state_slots, pools.kv_tokens) or budget.predicted_not_multiplied
    return paragraph(said) if said is not None else Shown("", "")


def served_table(study: Seen) -> Shown:
    """Every limit: asked, predicted, resolved by the engine, reached by the workload."""
    asked, not_given = study.asked_limits, "not given" if study.asked_is_told else "not logged"
    budget = study.diagnosis.budgets.get(study.basis)
    rows: list[list[Value]] = []
    for limit, meaning in LIMITS.items():
        predicted = budget.limits.get(limit) if budget is not None else None
        observed = study.diagnosis.resolved.get(limit)
        rows.append(
            [
                Cell(text=limit, title=meaning),
                Cell(text=not_given, tone="muted") if asked.get(limit) is None else asked[limit],
                interval_cell(predicted.value if predicted else None, "count"),
                amount_cell(observed, "count"),
                _with_source(served_cell(study)) if limit == "running_requests" else Cell(text=""),
            ]
        )
    origin = study.origin
    on = measured_words(study) if study.basis == "measured" else "from the configuration"
    headers = ["limit", "asked", f"predicted ({on})", f"resolved ({origin})", f"served ({origin})"]
    shown = table(headers, rows)
    if budget is not None:
        words = verdict_words(budget.verdicts)
        fault = f" {budget.fault}" if budget.fault is not None else ""
        source = "" if study.basis == "measured" else f" Predicted from {budget.basis_words}."
        shown = joined([shown, paragraph(f"Predicted verdict: {words}. {budget.reason}{fault}{source}")])
    return shown


def served_cell(study: Seen) -> Cell:
    """Most requests at once. A server that never ran served none; one that was sent nothing has no figure."""
    if study.served == 0:
        return Cell(text="none", number=True, tone="bad")
    if study.served is not None:
        return replace(amount_cell(study.served, "count"), title=study.diagnosis.served_source)
    if study.outcome in ("refused", "timed_out"):
        return Cell(text="none", below="did not start", number=True, tone="bad")
    return Cell(text="nothing sent" if study.diagnosis.sent == 0 else "not logged", tone="muted")


def _with_source(cell: Cell) -> Cell:
    return cell if cell.title is None else replace(cell, below=f"by {cell.title}")
