"""Causes with their evidence, remedies with their predicted effect, and the runs that tried them.

In: a `Seen` and the records of its campaign. Out: `Shown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from ..diagnose.catalogue import title
from ..diagnose.finding import ORDER, Finding, Remedy, was_words
from ..diagnose.outgoing import safe
from ..diagnose.remedy_words import on_server
from ..engines.contract import Line
from ..reading.outcome import in_words
from ..records.record import RunRecord
from ..studies.proofs import Proof, proofs
from ..studies.seen import Seen
from ..studies.study import Study
from ..studies.study import study as study_of
from ..terms import Limit
from ..units import counted, format_count
from .figures import amount_cell, change_text, remedy_cell, setting_text
from .shown import Cell, Shown, Tone, Value, code_lines, joined, paragraph, table

#: A log line may be 10 kB (server_args); evidence shows its beginning.
_MAX_LINE = 360
_MEASURED = "this run's free memory"


def findings(study: Seen, others: Iterable[RunRecord] = ()) -> Shown:
    """Causes with their evidence and remedies, then what the log holds and nobody could read.

    `others`: records among which a remedy may have been tried.
    """
    candidates = tuple(others)
    parts = [_finding(finding, study, candidates) for finding in study.diagnosis.findings]
    if not parts:
        off = sum(row.verdict == "off" for row in study.diagnosis.reconciliation.rows if row.basis == study.basis)
        text = "No finding: nothing was refused, capped or spoiled."
        if not study.diagnosis.judged:
            text = "No finding, and too little was read to say that nothing is wrong."
        doubtful = off > 0 or not study.diagnosis.judged
        parts = [paragraph(f"{text} Figures off the prediction: {off}.", tone="warn" if doubtful else "good")]
    return joined([*parts, unread_lines(study)])


def _finding(finding: Finding, study: Seen, others: Sequence[RunRecord]) -> Shown:
    evidence = code_lines(
        map(_cited, finding.evidence),
        label=f"evidence in the log ({study.origin})",
    )
    parts = [evidence]
    if finding.remedies:
        parts.append(_remedies(finding.remedies, study, others))
    inner, named, cause = joined(parts), title(finding.id), safe(finding.cause)
    html = (
        f'<section class="finding {escape(finding.severity)}"><h3>'
        f'<span class="badge">{escape(finding.severity)}</span> {escape(named)} <code>{escape(finding.id)}</code></h3>'
        f"<p>{escape(cause)}</p>{inner.html}</section>"
    )
    return Shown(html, f"{named} ({finding.id}, {finding.severity}): {cause}\n{inner.text}".rstrip())


def _remedies(remedies: Sequence[Remedy], study: Seen, others: Sequence[RunRecord]) -> Shown:
    config = study.config
    tried = [() if config is None else proofs(remedy, config, others) for remedy in remedies]
    # What somebody tried comes first: it is more than a prediction.
    order = sorted(range(len(remedies)), key=lambda number: not tried[number])
    bases = {basis for remedy in remedies if (basis := remedy.predicted_from(_MEASURED)) is not None}
    rows = [_remedy_row(remedies[number], tried[number], study, says_basis=len(bases) > 1) for number in order]
    headers = ["remedy", "requests", "slots", "KV tokens", "verdict", "what it costs", "tried in this campaign"]
    if not others:
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    first = "what was tried in this campaign before the others; " if any(tried) and others else ""
    source = next(iter(bases)) if len(bases) == 1 else "what each row names"
    order_words = f" Order: {first}{ORDER}" if bases else ""
    effect = f", their effect predicted from {source}" if bases else ""
    return table(headers, rows, caption=f"Remedies{effect}.{order_words}")


def _remedy_row(remedy: Remedy, tried: Sequence[Proof], study: Seen, *, says_basis: bool) -> list[Value]:
    """`says_basis`: the remedies beside it are predicted from something else."""
    limits = [_limit_cell(remedy, limit) for limit in ("running_requests", "state_slots", "kv_tokens")]
    cost = remedy.note + (". It changes the model's output." if remedy.changes_results else "")
    was = was_words(remedy, study.config)
    below = f"{on_server(remedy)} (it had {was})".lstrip() if was else on_server(remedy)
    change = Cell(text=change_text(dict(remedy.set)), code=True, below=below or None)
    basis = remedy.predicted_from(_MEASURED)
    source = f"predicted from {basis}" if says_basis and basis is not None else None
    return [
        change,
        *limits,
        remedy_cell(remedy, study.wanted),
        Cell(text=cost, below=source, wide=True),
        proof_cell(tried),
    ]


def _limit_cell(remedy: Remedy, limit: Limit) -> Cell:
    """A limit, and under it its bounds where it has any."""
    cell, bounds = amount_cell(remedy.predicted.get(limit), "count", unknown="not predicted"), remedy.spans.get(limit)
    return cell if bounds is None or bounds.is_exact else replace(cell, below=f"{bounds.low:,} to {bounds.high:,}")


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
    """'served 4 of 4', 'resolved 4 of 4, nothing sent', 'resolved 7 of 8, none of 2 requests answered', 'refused'."""
    if run.outcome in ("refused", "crashed", "timed_out", "unknown"):
        return in_words(run.outcome)
    of_asked = "" if run.asked is None else f" of {run.asked:,}"
    resolved = f"resolved {format_count(run.resolved)}{of_asked}"
    if run.outcome == "unanswered":
        return f"{resolved}, none of {counted(run.diagnosis.sent or 0, 'request')} answered"
    if not run.diagnosis.answered:
        return f"{resolved}, nothing sent"
    if run.served is None or (run.resolved is not None and run.served < run.resolved):
        seen = "" if run.served is None else f", {run.served:,} seen at once"
        return f"{resolved}{seen}, {run.diagnosis.answered} of {counted(run.diagnosis.sent or 0, 'request')} answered"
    return f"served {run.served:,}{of_asked}"


def differences(tried: Proof) -> str:
    """'memory.mem_fraction_static 0.508 instead of 0.509'."""
    return "; ".join(
        f"{key} {setting_text(there)} instead of {setting_text(here)}" for key, (here, there) in tried.other.items()
    )


def unread_lines(study: Seen) -> Shown:
    """Lines that look like memory lines and fit no form we know: they may hold figures that are missing above."""
    lines: Sequence[Line] = study.diagnosis.unread
    if not lines:
        return Shown("", "")
    look = "looks like a figure but fits" if len(lines) == 1 else "look like figures but fit"
    note = paragraph(f"{counted(len(lines), 'line')} {look} no known form of this engine:", tone="warn")
    return joined([note, code_lines(map(_cited, lines[:20]), label="unread lines")])


def _cited(line: Line) -> tuple[int | None, str]:
    return line.line, (f"{line.file}: " if line.file else "") + clipped(safe(line.labelled))


def clipped(text: str) -> str:
    """A line short enough to read, with the number of characters left out."""
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]} … ({len(text) - _MAX_LINE:,} more characters)"
