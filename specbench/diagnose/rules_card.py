"""Rules about what stands beside the pools: CUDA graphs, and figures that something else has changed.

In: a case. Out: findings about memory that no pool has.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..engines.contract import GraphCapture
from ..units import GIB, Quantity, counted, format_gib
from .case import Case
from .finding import Finding
from .logged_memory import LARGE_SHARE, graph_captures, graphs_bytes, left_by_pools
from .rules_limits import stands
from .weight_share import light_weights

#: Graphs are told where they take this much, and a large share of what was free when the pools stood.
_LARGE_GRAPHS_BYTES = 2 * GIB


def graphs_above_estimate(case: Case) -> tuple[Finding, ...]:
    """CUDA graphs that took more than the estimate's upper end, or most of what the pools left."""
    if not stands(case):  # where memory ran out, that finding names what graphs took (`logged_memory`)
        return ()
    captures = max(graph_captures(case).values(), key=graphs_bytes, default=[])
    taken, left = graphs_bytes(captures), left_by_pools(case, captures)
    if not captures or taken <= 0:
        return ()
    estimate = case.budget.details.get("estimated_graphs_bytes") if case.budget is not None else None
    above = estimate is not None and estimate.high > 0 and taken > max(estimate.high, GIB)
    most = left is not None and taken >= _LARGE_GRAPHS_BYTES and taken >= LARGE_SHARE * left
    if not (above or most):
        return ()
    parts = ", ".join(f"{one.role} {one.kind} {format_gib(one.used.bytes)}" for one in captures if one.used is not None)
    of_it = "" if not left else f" of the {format_gib(left)} that were free when the pools stood ({taken / left:.0%})"
    usual = (
        f"; {format_gib(estimate.low)} to {format_gib(estimate.high)} were estimated" if estimate is not None else ""
    )
    return (
        Finding(
            id="graphs-above-estimate",
            cause=f"CUDA graphs took {format_gib(taken)}{of_it}: {parts}{usual}.{_largest_batch(captures)}",
            severity="notice",
            evidence=tuple(line for one in captures for line in case.line(one.line)),
            remedies=case.less_memory(),
        ),
    )


def _largest_batch(captures: list[GraphCapture]) -> str:
    sizes = [size for one in captures for size in one.batch_sizes or ()]
    return f" They were captured for batches of up to {max(sizes)}." if sizes else ""


def negative_figures(case: Case) -> tuple[Finding, ...]:
    """Memory "used" that is below zero, or far below what was loaded: something else gave memory back meanwhile."""
    found = [
        (what, used, line)
        for what, used, line in _used(case)
        if used is not None and used.bytes + used.resolution_bytes < 0
    ]
    if not found:
        return _light(case)
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


def _light(case: Case) -> tuple[Finding, ...]:
    """Weights that took far less than the model's shapes are."""
    light = light_weights(case)
    if light is None:
        return ()
    return (
        Finding(
            id="negative-figures",
            cause=(
                f"By the log, the weights of the target used {format_gib(light.used_bytes)}, and by the model's shapes "
                f"they take {format_gib(light.expected_bytes)} at least: a difference of free memory before and after, "
                f"so another program gave about {format_gib(light.missing_bytes)} back meanwhile (or these are not "
                "the model's whole weights). The pools were sized by what was free then: the next start with these "
                "flags may get others."
            ),
            severity="notice",
            evidence=case.line(light.line),
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
