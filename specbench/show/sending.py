"""What to send to a maintainer, and what to tell so that a diagnosis knows more. In: a `Seen`. Out: `Shown`."""

from __future__ import annotations

from ..diagnose.maintainer import report
from ..diagnose.outgoing import safe
from ..studies.seen import Seen
from .shown import Cell, Shown, Value, code_lines, joined, paragraph, table


def questions(study: Seen) -> Shown:
    """What the log does not tell, and the option that tells it; nothing where nothing is missing."""
    asked = study.diagnosis.questions
    if not asked:
        return Shown("", "")
    rows: list[list[Value]] = [
        [safe(one.missing), Cell(text=safe(one.why), wide=True), Cell(text=safe(one.answer), code=True)]
        for one in asked
    ]
    return table(["not in the log", "what is not known without it", "tell it by"], rows)


def to_send(study: Seen) -> Shown:
    """Whose fault it is, and the text of a report as it can be filed: Markdown, without secrets and home folders."""
    found = report(study.diagnosis)
    whose = paragraph(f"For {found.project}. {found.why}" if found.project else found.why)
    lines = found.text.rstrip("\n").split("\n")
    text = code_lines([(None, line) for line in lines], label="what to send to a maintainer")
    said = f"The text to send ({len(lines)} lines of Markdown); read it before"
    html = f"<details><summary>{said}</summary>{text.html}</details>"
    return joined([whose, Shown(html, text.text)])
