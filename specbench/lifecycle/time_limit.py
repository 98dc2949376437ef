"""A time at which a run must have ended, for a run in another process: SPECBENCH_UNTIL, by the monotonic clock.

A campaign with a deadline sets it for the notebook that runs one configuration; `run` ends its server then, keeps the
record of what was seen, and marks it as cut short. The non-obvious thing: the monotonic clock is one for all processes
of a machine, and nobody sets it; the time of day may jump by an hour while a server starts.
"""

from __future__ import annotations

import math
import os
import time
from typing import Final

from ..errors import LaunchError

VARIABLE = "SPECBENCH_UNTIL"
#: `RunStatus.cut_short` of a run that was ended for it.
DEADLINE: Final = "deadline"


def until_s() -> float | None:
    """When this run must have ended, as `time.monotonic` tells it; None: no limit (or none that can be read)."""
    try:
        until = float(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return None
    return until if math.isfinite(until) else None


def left_s(until: float | None) -> float:
    """Seconds that are left, 0 when it is over; infinite without a limit."""
    return float("inf") if until is None else max(0.0, until - time.monotonic())


def check(until: float | None) -> None:
    """LaunchError (two lines) when it is over, before there is a server."""
    if left_s(until) == 0:
        raise LaunchError(
            "the deadline of the campaign came before a server was started.\nIt is to run again, with more time "
            "(--resume, a longer --deadline)."
        )
