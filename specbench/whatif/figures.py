"""The tables of a what-if: figures of a change beside the observed state, and predicted → tried → proven.

In: outlooks, and the study of the new record. Out: `Shown`. Each column says whether its figures are observed (recorded
or measured) or predicted, and from what.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..diagnose.trying import slack_bytes
from ..judging.reconcile import reconcile
from ..reading.outcome import in_words
from ..show.figures import amount_cell, change_text, interval_cell, outcome_cell, setting_text, verdict_cell
from ..show.findings import reached
from ..show.shown import Cell, Shown, Value, joined, paragraph, table
from ..studies.study import Study
from ..terms import LIMITS, TERMS, Basis, Limit, Term
from ..units import format_gib
from .outlook import Outlook, WhatIf
from .trial import Way

_BASES: dict[Basis, str] = {"measured": "this start's free memory", "config": "the configuration alone"}
_TERMS: tuple[Term, ...] = ("state_ssm", "scratch_ssm", "kv", "slack")
_KINDS = {"serves": "served", "capped": "capped", "refused": "refused"}


def _of(after: Outlook) -> str:
    """What an outlook rests on; of the configuration alone, whether the free memory of such cards was measured."""
    if after.basis == "config" and after.budget is not None:
        return after.budget.basis_words
    return "" if after.basis is None else _BASES[after.basis]


def headline(what: WhatIf, before: Outlook, after: Outlook) -> Shown:
    """What the change is predicted to come to, in a sentence."""
    moved = "as it was started" if not after.changes else change_text(dict(after.changes))
    source = "" if after.basis is None else f"predicted from {_of(after)}"
    if after.basis == "config" and before.basis == "measured":
        source += ": other ranks load other weights, of which this log tells nothing"
    kind = _KINDS.get(after.verdict, "unknown")
    refusals = what.refusals(after.config) if after.config is not None and after.verdict == "refused" else ()
    lines = [after.reason, *(line for line in refusals if line not in after.reason)][:2] + list(_beside(after))
    word = f"predicted: {after.verdict}" if after.budget is not None else after.verdict
    html = (
        f'<div class="verdict {kind}"><p class="word">{escape(word)}</p>'
        f'<p class="sentence"><code>{escape(moved)}</code></p>'
        + "".join(f'<p class="reason">{escape(line)}</p>' for line in lines if line)
        + f'<p class="provenance">{escape(source)}</p></div>'
    )
    return Shown(html, "\n".join(part for part in (f"{word} ({moved})", *lines, source) if part))


def figures(what: WhatIf, before: Outlook, after: Outlook) -> Shown:
    """Limits and the terms that a control moves: observed, predicted for it, predicted for the change."""
    seen = what.observed
    headers = ["", f"this start ({seen.origin})", "predicted as it was", "predicted with the change"]
    columns = len(headers) - (0 if after.changes else 1)
    rows: list[list[Value]] = [
        ["outcome", outcome_cell(seen.outcome), _verdict(before), _verdict(after)],
        ["requests asked", _asked(seen.asked), _asked(_wanted(before)), _asked(_wanted(after))],
    ]
    for limit, words in LIMITS.items():
        observed = Cell(text="", plain="-") if limit == "slots_per_request" else _seen(what, limit)
        rows.append([Cell(text=limit, title=words), observed, _limit(before, limit), _limit(after, limit)])
    for term in _TERMS:
        if before.term(term) or after.term(term):
            observed = amount_cell(seen.terms.get(term), "bytes")
            cells = [observed, _term(before, term), _term(after, term)]
            rows.append([Cell(text=f"{term}, per rank", title=TERMS[term]), *cells])
    return table(headers[:columns], [row[:columns] for row in rows])


def proven(what: WhatIf, after: Outlook, new: Study) -> Shown:
    """Old start, prediction of the change, and what the new record holds; whether they agree, within the log's
    rounding."""
    said = "recorded (replayed)" if new.record.origin == "recorded" else "measured"
    headers = ["", f"this start ({what.observed.origin})", "predicted", f"tried: {said}", "proven"]
    rows: list[list[Value]] = [
        [
            "outcome",
            outcome_cell(what.observed.outcome),
            _verdict(after),
            outcome_cell(new.outcome),
            _agrees(after, new),
        ],
        ["requests asked", _asked(what.observed.asked), _asked(_wanted(after)), _asked(new.asked), ""],
    ]
    joined_rows = (
        () if after.budget is None else reconcile({after.budget.basis: after.budget}, new.diagnosis.pools).rows
    )
    first = {row.term: row for row in reversed(joined_rows) if row.unit == "count"}
    for limit, words in LIMITS.items():
        row = first.get(limit)
        if limit == "slots_per_request" or row is None:
            continue
        rows.append(
            [
                Cell(text=limit, title=words),
                _seen(what, limit),
                _limit(after, limit),
                amount_cell(row.observed, "count"),
                verdict_cell(row.verdict),
            ]
        )
    head = paragraph(f"Tried, {said}: {new.name} {reached(new)}.")
    return joined([head, table(headers, rows, caption="Predicted → tried → proven.")])


def not_here(way: Way, command: str) -> Shown:
    """Why nothing was started, which recordings come nearest, and what to run where there is a GPU."""
    parts = [
        paragraph(f"Not tried: {way.why_no_engine}", tone="warn"),
        paragraph("No recording has this configuration; it needs a GPU. On a machine with one, start:"),
        Shown(f"<pre><code>{escape(command)}</code></pre>", command),
    ]
    if way.nearest:
        rows: list[list[Value]] = [
            [near.name, Cell(text=_differing(near.differences), wide=True)] for near in way.nearest
        ]
        parts.append(table(["nearest recordings", "what differs (recorded, here)"], rows))
    return joined(parts)


def _beside(after: Outlook) -> Iterator[str]:
    """What has to be known beside the verdict, which is of the pools alone."""
    budget = after.budget
    if budget is None or after.verdict == "refused":
        return
    yield from (text for text in (budget.fault, budget.out_of_memory) if text is not None)
    if budget.emulation is not None and budget.basis == "measured":
        left = slack_bytes(budget)
        stays = "an unknown amount" if left is None else format_gib(left)
        yield f"On {budget.emulation.card} itself {stays} would stay outside the pools (predicted)."


def _differing(differences: object) -> str:
    assert isinstance(differences, dict)
    told = [f"{key} {setting_text(there)}, here {setting_text(here)}" for key, (there, here) in differences.items()]
    more = f"; and {len(told) - 4} more" if len(told) > 4 else ""
    return "; ".join(told[:4]) + more if told else "nothing that both state"


def _agrees(after: Outlook, new: Study) -> Cell:
    """Whether the start went as predicted. A start to which nothing was sent has proven that it starts."""
    came = {"served": "serves", "started": "serves", "capped": "capped", "refused": "refused"}.get(new.outcome)
    if after.budget is None or came is None:
        return Cell(text="not comparable", tone="muted")
    if came in after.budget.verdicts:
        return verdict_cell("match")
    return Cell(text=f"off: {in_words(new.outcome)}", tone="bad")


def _seen(what: WhatIf, limit: Limit) -> Cell:
    return amount_cell(what.observed.resolved.get(limit), "count")


def _wanted(outlook: Outlook) -> int | None:
    return None if outlook.config is None else outlook.config.memory.max_running_requests


def _asked(count: int | None) -> Cell:
    return Cell(text="not given", tone="muted") if count is None else amount_cell(count, "count")


def _verdict(outlook: Outlook) -> Cell:
    return verdict_cell(outlook.verdict) if outlook.budget is not None else Cell(text=outlook.verdict, tone="warn")


def _limit(outlook: Outlook, limit: Limit) -> Cell:
    found = outlook.budget.limits.get(limit) if outlook.budget is not None else None
    return interval_cell(found.value if found is not None else None, "count")


def _term(outlook: Outlook, term: Term) -> Cell:
    found = outlook.budget.terms.get(term) if outlook.budget is not None else None
    return interval_cell(found.bytes if found is not None else None, "bytes", estimated=bool(found and found.estimated))
