"""Rules about what stands beside the pools: CUDA graphs, and figures that something else has changed.

In: a case. Out: findings about memory that no pool has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..engines.contract import GraphCapture
from ..units import GIB, Quantity, counted, format_gib
from .case import Case
from .finding import Finding
from .rules_limits import stands
from .rules_pools import out_of_memory

#: Graphs are told where they take this much, and this share of what was free when the pools stood.
_LARGE_GRAPHS_BYTES, _LARGE_SHARE = 2 * GIB, 0.5


def graphs_above_estimate(case: Case) -> tuple[Finding, ...]:
    """CUDA graphs that took more than the estimate's upper end, or most of what the pools left."""
    if not (stands(case) or out_of_memory(case)):
        return ()
    captures = max(_captures(case).values(), key=_taken, default=[])
    taken, left = _taken(captures), _left_by_pools(case, captures)
    if not captures or taken <= 0:
        return ()
    estimate = case.budget.details.get("estimated_graphs_bytes") if case.budget is not None else None
    above = estimate is not None and estimate.high > 0 and taken > max(estimate.high, GIB)
    most = left is not None and taken >= _LARGE_GRAPHS_BYTES and taken >= _LARGE_SHARE * left
    if not (above or most):
        return ()
    costs = out_of_memory(case)
    parts = ", ".join(f"{one.role} {one.kind} {format_gib(one.used.bytes)}" for one in captures if one.used is not None)
    of_it = "" if not left else f" of the {format_gib(left)} that were free when the pools stood ({taken / left:.0%})"
    usual = (
        f"; {format_gib(estimate.low)} to {format_gib(estimate.high)} were estimated" if estimate is not None else ""
    )
    return (
        Finding(
            id="graphs-above-estimate",
            cause=f"CUDA graphs took {format_gib(taken)}{of_it}: {parts}{usual}.{_largest_batch(captures)}",
            severity="costly" if costs else "notice",
            evidence=tuple(line for one in captures for line in case.line(one.line)),
            remedies=case.less_memory(),
            lost=min(1.0, taken / left) if costs and left else None,
        ),
    )


def _captures(case: Case) -> Mapping[str, list[GraphCapture]]:
    found: dict[str, list[GraphCapture]] = {}
    for capture in case.log.graphs:
        if capture.used is not None and capture.used.bytes > 0:
            found.setdefault(capture.rank, []).append(capture)
    return found


def _taken(captures: list[GraphCapture]) -> int:
    return sum(one.used.bytes for one in captures if one.used is not None)


def _left_by_pools(case: Case, captures: list[GraphCapture]) -> int | None:
    """Free on that rank after its last pool and before its first graph."""
    if not captures:
        return None
    first = min(one.line for one in captures)
    ends = [end for end in case.log.pool_ends if end.rank == captures[0].rank and end.line < first]
    return max(ends, key=lambda end: end.line).available.bytes if ends else None


def _largest_batch(captures: list[GraphCapture]) -> str:
    sizes = [size for one in captures for size in one.batch_sizes or ()]
    return f" They were captured for batches of up to {max(sizes)}." if sizes else ""


def negative_figures(case: Case) -> tuple[Finding, ...]:
    """Memory "used" that is below zero: something else gave memory back meanwhile."""
    found = [
        (what, used, line)
        for what, used, line in _used(case)
        if used is not None and used.bytes + used.resolution_bytes < 0
    ]
    if not found:
        return ()
    what, used, _ = found[0]
    more = "" if len(found) == 1 else f" (and {counted(len(found) - 1, 'figure')} more)"
    return (
        Finding(
            id="negative-figures",
            cause=(
                f"By the log, {what} used {format_gib(used.bytes)}{more}: a difference of free memory before and "
                "after, so another program (or the engine itself) gave memory back meanwhile. Figures of free memory "
                "around it are not of this step alone."
            ),
            severity="notice",
            evidence=tuple(shown for _, _, number in found[:3] for shown in case.line(number)),
        ),
    )


def _used(case: Case) -> Iterator[tuple[str, Quantity | None, int]]:
    for load in case.log.weights:
        yield f"the weights of the {load.role}", load.used, load.line
    for capture in case.log.graphs:
        yield f"the {capture.role}'s {capture.kind} graphs", capture.used, capture.line
    for notice in case.log.notices:
        used = notice.values.get("used")
        if isinstance(used, Quantity):
            yield "the start of the ranks", used, notice.line
