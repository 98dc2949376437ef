"""Tables and verdicts for notebooks and pages: `Shown` displays as HTML and prints as text, everything escaped."""

from __future__ import annotations

from .campaign import campaign, runs_table, runs_verdict
from .course import course
from .findings import findings, unread_lines
from .ledger import ledger
from .plan import plan_alternatives, plan_answer, plan_failures, plan_sizes, plan_verdict
from .predict import budget, budget_verdict, configuration, other_cards, what_if
from .reconciliation import reconciliation, reconciliation_verdict
from .run import headline, notes, overview, served_table
from .sending import questions, to_send
from .serving import latency, log_tail
from .shown import Cell, Shown, table
from .sides import four_sides
from .story import opening
from .time_spent import time_spent

__all__ = [
    "Cell",
    "Shown",
    "budget",
    "budget_verdict",
    "campaign",
    "configuration",
    "course",
    "findings",
    "four_sides",
    "headline",
    "latency",
    "ledger",
    "log_tail",
    "notes",
    "opening",
    "other_cards",
    "overview",
    "plan_alternatives",
    "plan_answer",
    "plan_failures",
    "plan_sizes",
    "plan_verdict",
    "questions",
    "reconciliation",
    "reconciliation_verdict",
    "runs_table",
    "runs_verdict",
    "served_table",
    "table",
    "time_spent",
    "to_send",
    "unread_lines",
    "what_if",
]
