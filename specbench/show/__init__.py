"""Tables and verdicts for notebooks and pages: `Shown` displays as HTML and prints as text, everything escaped."""

from __future__ import annotations

from .campaign import campaign, runs_table, runs_verdict, story
from .findings import findings, unread_lines
from .predict import budget, budget_verdict, configuration, what_if
from .run import headline, notes, overview, reconciliation, reconciliation_verdict, served_table
from .serving import latency, log_tail
from .shown import Cell, Shown, table

__all__ = [
    "Cell",
    "Shown",
    "budget",
    "budget_verdict",
    "campaign",
    "configuration",
    "findings",
    "headline",
    "latency",
    "log_tail",
    "notes",
    "overview",
    "reconciliation",
    "reconciliation_verdict",
    "runs_table",
    "runs_verdict",
    "served_table",
    "story",
    "table",
    "unread_lines",
    "what_if",
]
