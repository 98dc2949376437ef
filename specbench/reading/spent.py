"""Where the time of a run went: the engine's start and end, warm-up, measured phase, and what specbench itself took.

In: a run folder, with its record and its executed notebooks. Out: a `Spent`. The phases are timed while they pass (they
are in the record), the whole by the notebook; specbench's own time is the difference. Unknown is None: a record without
its notebook, or an imported one, does not tell.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from ..records.record import RunRecord

RUN, DIAGNOSIS = "2_run.ipynb", "3_diagnose.ipynb"
_WARM_UP = "warmup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Wall seconds of one run on this machine; of a replay not the recorded ones."""

    start_s: float | None  # the engine's process, until it was ready or had ended
    warmup_s: float | None  # requests that are in no figure
    measured_s: float | None
    stop_s: float | None  # the engine's end, until its GPU memory was back
    run_s: float | None  # the run notebook, from the start of its kernel
    diagnosis_s: float | None  # the diagnosis notebook; None also: not executed yet

    @property
    def engine_s(self) -> float | None:
        """What a run takes without specbench."""
        parts = (self.start_s, self.warmup_s, self.measured_s, self.stop_s)
        return math.fsum(part for part in parts if part is not None) if any(p is not None for p in parts) else None

    @property
    def own_s(self) -> float | None:
        """Of the run notebook, what is not the engine's: kernel, imports, prediction, captures, tables."""
        if self.run_s is None or self.engine_s is None:
            return None
        return max(0.0, self.run_s - self.engine_s)

    @property
    def own_share(self) -> float | None:
        """specbench's own time / the time of the run."""
        return self.own_s / self.run_s if self.own_s is not None and self.run_s else None


def spent(folder: Path, record: RunRecord) -> Spent:
    """Of the run in `folder`."""
    phases = dict(record.status.phases)
    start_s, stop_s = phases.get("start"), phases.get("stop")
    steps = {trace.step: trace.phase for trace in record.requests()}
    warm = [seconds for name, seconds in phases.items() if steps.get(name, name) == _WARM_UP]
    measured = [seconds for name, seconds in phases.items() if steps.get(name) == "measured"]
    return Spent(
        start_s=start_s,
        warmup_s=math.fsum(warm) if warm else None,
        measured_s=math.fsum(measured) if measured else None,
        stop_s=stop_s,
        run_s=_notebook_s(folder / RUN),
        diagnosis_s=_notebook_s(folder / DIAGNOSIS),
    )


def _notebook_s(path: Path) -> float | None:
    """How long papermill says that a notebook took."""
    try:
        seconds = json.loads(path.read_text("utf-8"))["metadata"]["papermill"]["duration"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return float(seconds) if is_number and 0 <= seconds < math.inf else None
