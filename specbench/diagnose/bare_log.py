"""What a record knows of itself, told by a bare log: how the server ended, and how many requests it saw."""

from __future__ import annotations

import itertools

from ..engines.contract import ServerLog
from ..lifecycle.ending import classify
from ..terms import Status
from .fault import STOP_ASKED, until_stopped, while_serving


def under_way(log: ServerLog) -> int | None:
    """Requests that a bare log sees: running in a decode line; else begun when the server was ready, and gone when the
    next ones began: a prompt that is under way is no answer. The prefill of one token is its own health check's.
    """
    running = max((count for count in log.decode.get("running_requests", ()) if count), default=0)
    columns = (log.prefill.get(name, ()) for name in ("line", "new_requests", "new_tokens", "running_requests"))
    begun = [
        (new, already)
        for line, new, tokens, already in zip(*columns, strict=True)
        if log.ready_line is not None and line > log.ready_line and new and tokens and tokens > 1
    ]
    ended = (new for (new, _), (_, already) in itertools.pairwise(begun) if already == 0)
    return max(running, *ended, 0) or None


def status_of(log: ServerLog) -> Status | None:
    """How a bare log ended. None: neither ready nor failed (it is cut off, or still running)."""
    if log.failures:
        failure = log.failures[0]
        if while_serving(log, failure):
            return "crashed"
        return classify(ready=False, ended_by_itself=True, exit_code=None, failures=log.failures).status
    # What a process says when its child has failed; where the failure itself is not in the log.
    kinds = {notice.kind for notice in until_stopped(log)}
    if "ended_by_signal" in kinds or (STOP_ASKED in kinds and log.ready_line is None):
        return "crashed"
    return "served" if log.ready_line is not None else None
