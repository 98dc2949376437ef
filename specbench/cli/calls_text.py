"""What a deadline has time for, in words and as JSON."""

from __future__ import annotations

import math
from typing import Any

from ..campaign.fitting import Calls


def sentences(calls: Calls) -> list[str]:
    """What a call of the deadline has time for, by the bill, and how many such calls the whole takes."""
    of = f"--deadline {calls.deadline_s:g}"
    later = [name for names in calls.runs[1:] for name in names]
    told = []
    if calls.runs:
        first = calls.runs[0]
        part = f"{len(first)} of {len(first + calls.never) + len(later)}, in this order: {', '.join(first)}"
        told.append(f"{of}: by the bill it has time for {part if later or calls.never else 'all'}.")
    if later:
        told.append(f"For further calls are left: {', '.join(later)}. {of} takes {len(calls.runs)} calls in all.")
    if calls.never and calls.least_s is not None:
        least = f"--deadline {math.ceil(calls.least_s / 10) * 10} does for all of them"
        told.append(f"Too long for any call of {of}: {', '.join(calls.never)}; {least}.")
    return told


def document(calls: Calls | None) -> dict[str, Any] | None:
    """The same for programs; None: there is no deadline, or nothing is to run."""
    if calls is None:
        return None
    return {"seconds": calls.deadline_s, "calls": [list(names) for names in calls.runs], "too_long": list(calls.never)}
