"""How a run is summed up in one word: the same word in progress lines, tables, pages and JSON.

In: how the server ended, what was asked and resolved, and the requests. Out: an `Outcome` (`terms.OUTCOMES` has their
meanings). The status alone says too little: a server that ran is called served only when it answered a request, and had
resolved as many at once as asked. How many it answered is said beside the word (`some_answered`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records.types import RequestTrace
from ..terms import Outcome, Status
from ..units import counted


def outcome_of(
    status: Status | None, *, asked: int | None, resolved: int | None, sent: int | None, answered: int | None
) -> Outcome:
    """`asked`, `resolved`: requests at once, in one unit; None: not given, not logged.

    `sent`, `answered`: requests; None: nothing is known of them (a bare log).
    """
    if status is None:
        return "unknown"
    if status != "served":
        return status
    if sent and not answered:
        return "unanswered"
    if asked is not None and resolved is not None and resolved < asked:
        return "capped"
    return "served" if answered else "started"


def tally(requests: Sequence[RequestTrace]) -> tuple[int, int]:
    """(sent, answered). A warm-up counts only where nothing else was sent: it is no part of what was asked."""
    counted = [request for request in requests if request.phase == "measured"] or list(requests)
    return len(counted), sum(request.ok for request in counted)


def some_answered(sent: int | None, answered: int | None) -> str:
    """'1 of 3 requests answered'; empty where all were, or none, or nothing is known of them."""
    return f"{answered:,} of {counted(sent, 'request')} answered" if sent and answered and answered < sent else ""


def in_words(outcome: Outcome) -> str:
    """'timed out'."""
    return outcome.replace("_", " ")
