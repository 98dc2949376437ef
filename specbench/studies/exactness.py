"""How exact predictions are: figure by figure, against recorded starts and what others logged.

In: recordings, and cases (see `cases`). Out: `Compared` rows (see `compared`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..budget_types import MemoryBudget
from ..diagnose.types import Diagnosis
from ..judging.reconcile import SHARED
from ..units import Interval, Quantity
from .cases import Case, of_case
from .compared import BLOCKS, TABLE, Basis, Compared, Figure, Start, compare


def compared(recordings: Iterable[Diagnosis], cases: Iterable[Case]) -> tuple[Compared, ...]:
    """Every figure of every start. A recording that logged none has no row."""
    rows = [row for found in recordings for row in of_recording(found)]
    rows += [row for case in cases for row in of_case(case)]
    return tuple(rows)


def of_recording(found: Diagnosis) -> Iterator[Compared]:
    """A row per figure; where ranks logged different ones, each its own."""
    if found.config is None:
        return
    start = Start(source="recording", name=found.name, version=found.config.engine.version)
    for basis, budget in found.budgets.items():
        named: Basis = "configuration" if basis == "config" else "measured"
        seen: set[tuple[str, int]] = set()
        for row in found.reconciliation.rows:
            if row.basis != basis or row.observed is None or (row.term, row.observed) in seen:
                continue
            seen.add((row.term, row.observed))
            figure = _FIGURE_OF.get(row.term)
            if figure is None or (row.unit == "bytes" and named == "measured"):
                continue
            logged = Quantity(row.observed, 0 if row.unit == "count" else row.tolerance)
            one = compare(start, figure, named, row.predicted, logged)
            yield one if one.verdict == "exact" else replace(one, why=_why(one, budget))
        yield from _recorded_limits(start, found, budget, named)


_FIGURE_OF: Mapping[str, Figure] = {
    "state_slots": "state_slots",
    "running_requests": "running_requests",
    "kv_tokens": "kv_tokens",
    "weights": "weights",
    "draft_weights": "draft_weights",
}


def _why(row: Compared, budget: MemoryBudget) -> str:
    """Why a recording's figure is not exact: what its basis leaves open."""
    if row.unit == "bytes":
        return SHARED if budget.shared_card else BLOCKS
    if row.basis == "measured" and budget.free.watched:
        return "NVML leaves an interval of the free memory: a level between two samples passed unseen"
    if row.basis == "measured":
        return "not watched by NVML: the log rounds the free memory, and its offset was fitted to several starts"
    if budget.emulation is not None:
        return (
            "emulated: the fraction was passed by an earlier free-memory table (0.0034 GiB off with 0.5.12 on two GPUs)"
        )
    return TABLE


def _recorded_limits(start: Start, found: Diagnosis, budget: MemoryBudget, basis: Basis) -> Iterator[Compared]:
    """What only a notice tells: slots per request; and whether the start was refused."""
    if basis == "configuration":
        said = [*(one.values for one in found.log.notices), *(one.values for one in found.log.failures)]
        for count in {values["slots_per_request"] for values in said if "slots_per_request" in values}:
            each = budget.limits["slots_per_request"].value
            yield compare(start, "slots_per_request", basis, each, Quantity(count))
    if found.status is not None:
        refused = found.status == "refused"
        expected, what = Interval.exact(int(budget.verdict == "refused")), "refused" if refused else "not refused"
        one = compare(start, "refusal", basis, expected, Quantity(int(refused)), what=what)
        why = next((failure.text for failure in found.log.failures), "")
        yield one if one.verdict == "exact" else replace(one, why=f"the engine's own words: {why}")
