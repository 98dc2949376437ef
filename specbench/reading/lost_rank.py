"""Which of several ranks was lost: the one that was killed says nothing, the first words are those of the others.

In: a log. Out: that rank and what is known of its end, in words. Nothing is said where it could be another.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from ..engines.contract import Failure, ServerLog
from ..rank_names import in_words
from .rank_progress import named_ranks, progress, waiting

#: Processes are named by their number (entrypoints/engine.py): of several, scheduler_3 is the fourth rank's.
_SCHEDULER = re.compile(r"scheduler_(\d{1,5})")


def lost_rank(log: ServerLog) -> str | None:
    """'TP3 was ended by SIGKILL'; None: no rank was lost, one rank alone, or the log does not tell which."""
    if not log.failures or len(every := named_ranks(log)) < 2:
        return None
    first = log.failures[0]
    if first.kind == "process_died":
        return _died(first, every)
    if first.kind == "communication_failed" and first.values.get("remote"):
        silent = silent_ranks(log, first)
        some = "says no error, and ended first or hung" if len(silent) == 1 else "say no error, and ended first or hung"
        return f"{in_words(silent)} alone {some}" if silent else None
    if first.kind == "rank_missing" and log.ready_line is None:
        who = waiting(progress(log)).hindmost
        return f"waited in vain for {who}" if who else None
    return None


def number_of(failure: Failure) -> int | None:
    """Whose scheduler died, as the parent process counts them; None: another process."""
    told = failure.values.get("rank")
    named = _SCHEDULER.fullmatch(str(failure.values.get("name")))
    return told if isinstance(told, int) else int(named[1]) if named is not None else None


def silent_ranks(log: ServerLog, failure: Failure) -> set[str]:
    """The ranks without an error of their own, where most have one, or where one of two lost the other; empty: too many
    of them, or none."""
    every = set(named_ranks(log))
    silent = every - {one.rank for one in log.failures}
    most = 2 * len(silent) < len(every)
    return silent if most or (len(every) == 2 and failure.values.get("remote")) else set()


def _died(failure: Failure, every: Sequence[str]) -> str | None:
    number, code = number_of(failure), failure.values.get("exit_code")
    if number is None or not isinstance(code, int):
        return None
    plain = all(re.fullmatch(r"TP\d{1,5}", rank) for rank in every)
    who = f"TP{number}" if plain and f"TP{number}" in every else f"rank {number}"
    return f"{who} was ended by {_signal(-code)}" if code < 0 else f"{who} ended with exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
