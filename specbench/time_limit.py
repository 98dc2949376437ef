"""A time at which a run must have ended, for a run in another process: Unix seconds in SPECBENCH_UNTIL.

A campaign with a deadline sets it for the notebook that runs one configuration; `run` ends its server then, keeps the
record of what was seen, and marks it as cut short.
"""

from __future__ import annotations

import os
import time

VARIABLE = "SPECBENCH_UNTIL"
#: `RunStatus.cut_short` of a run that was ended for it.
DEADLINE = "deadline"


def until_unix_s() -> float | None:
    """When this run must have ended; None: no limit (or none that can be read)."""
    try:
        return float(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return None


def left_s(until: float | None) -> float:
    """Seconds that are left, 0 when it is over; infinite without a limit."""
    return float("inf") if until is None else max(0.0, until - time.time())
