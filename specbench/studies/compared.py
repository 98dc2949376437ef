"""Figures that were predicted beside figures that were logged, and how exact they are. In: pairs. Out: `Compared` rows.

A row is "exact" when the point is the logged figure (of a size: within the rounding of the log), "inside" when only the
interval holds it, "off" when not. The non-obvious thing: what was known beforehand decides what a hit is worth, so each
row names its basis: the configuration alone; free memory as measured or logged in the start itself; the formula alone,
where the log tells a count and the size is computed for it; back-solved, where one figure was taken from the log to
find what it does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..units import Interval, Quantity

Figure = Literal[
    "state_slots",
    "slots_per_request",
    "running_requests",
    "kv_tokens",
    "weights",
    "draft_weights",
    "pool_size",
    "refusal",
]
Basis = Literal["configuration", "measured", "formula", "back-solved"]
Source = Literal["recording", "measured start", "public case"]
Verdict = Literal["exact", "inside", "off", "not predicted"]

#: In the order of the tables, with what a hit means.
FIGURES: dict[Figure, str] = {
    "state_slots": "state slots",
    "slots_per_request": "slots per request",
    "running_requests": "running requests",
    "kv_tokens": "KV tokens",
    "weights": "weights (exact: within the rounding of the log)",
    "draft_weights": "draft weights (exact: within the rounding of the log)",
    "pool_size": "sizes of pools at the logged counts (exact: within the rounding of the log)",
    "refusal": "refused or not",
}
BASES: dict[Basis, str] = {
    "configuration": "the configuration alone; free memory of the GPU table",
    "measured": "the configuration, and the free memory of that very start (NVML, or as its log rounds it)",
    "formula": "the configuration and a count that the log tells",
    "back-solved": "one figure of the log stands for what it does not tell",
}
#: Why a size by shapes, and a count from the GPU table, may miss.
BLOCKS = "PyTorch's allocator keeps small tensors in shared blocks: the size depends on their order in the model"
TABLE = "the free memory of the GPU table and the weights by shapes are known to 0.01 GiB"
#: Figures in bytes; the others are counts.
_SIZES: frozenset[Figure] = frozenset({"weights", "draft_weights", "pool_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Whose figures they are."""

    source: Source
    name: str
    version: str  # of the engine; "?": not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one start."""

    source: Source
    name: str
    version: str  # of the engine; "?": not told
    figure: Figure
    what: str  # the figure, or the pool
    basis: Basis
    unit: Literal["count", "bytes"]
    predicted: Interval | None
    logged: int
    tolerance: int  # rounding of the log
    verdict: Verdict
    why: str = ""  # where it is not exact


def compare(
    start: Start, figure: Figure, basis: Basis, predicted: Interval | None, logged: Quantity, *, what: str = ""
) -> Compared:
    """One row. `logged`: of a count its bytes are the count. `what`: the pool, where it is not the figure itself."""
    verdict: Verdict = "off"
    if predicted is None:
        verdict = "not predicted"
    elif abs(predicted.point - logged.bytes) <= logged.resolution_bytes:
        verdict = "exact"
    elif predicted.contains(logged.bytes, slop=logged.resolution_bytes):
        verdict = "inside"
    return Compared(
        source=start.source,
        name=start.name,
        version=start.version,
        figure=figure,
        what=what or figure,
        basis=basis,
        unit="bytes" if figure in _SIZES else "count",
        predicted=predicted,
        logged=logged.bytes,
        tolerance=logged.resolution_bytes,
        verdict=verdict,
    )


def shares(rows: Iterable[Compared]) -> dict[tuple[str, Basis, Figure], tuple[int, int, int, int]]:
    """(source, basis, figure) -> rows, exact, inside, off or not predicted."""
    found: dict[tuple[str, Basis, Figure], list[Compared]] = {}
    for row in rows:
        found.setdefault((row.source, row.basis, row.figure), []).append(row)
    return {
        key: (
            len(mine),
            sum(row.verdict == "exact" for row in mine),
            sum(row.verdict == "inside" for row in mine),
            sum(row.verdict in ("off", "not predicted") for row in mine),
        )
        for key, mine in found.items()
    }


def farthest(rows: Iterable[Compared]) -> tuple[Compared, Compared] | None:
    """The rows whose points miss by the most: in their unit, and as a share of what was logged. None: none misses."""
    apart = [row for row in rows if row.verdict != "exact" and row.predicted is not None]
    if not apart:
        return None
    return max(apart, key=missed_by), max(apart, key=lambda row: missed_by(row) / max(row.logged, 1))


def missed_by(row: Compared) -> int:
    """By how much a point misses, without its sign."""
    return 0 if row.predicted is None else abs(row.predicted.point - row.logged)
