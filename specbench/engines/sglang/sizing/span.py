"""Pools over an interval of free memory. In: the least, the likely and the most that may be left. Out: all that can be.

Slots grow with free memory, tokens do not: they drop whenever a slot (with its scratch) is gained, a sawtooth. The
extremes therefore lie at the slot steps, which are found by bisection; the ends alone would miss them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .contract import Demand, Pools, Rule
from .steps import solve

#: Half a byte, in GiB: two rests this close cannot differ by a token.
_CLOSE_GIB = 2.0**-31


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Pools for one amount of memory."""

    rest_gib: float  # f × pre - weights, before state and scratch
    pools: Pools


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Pools at the likely point, and at every place where an extreme can lie (the point included)."""

    point: Solved
    all: tuple[Solved, ...]


def span(rule: Rule, demand: Demand, low_gib: float, point_gib: float, high_gib: float) -> Span:
    """Solve over the rest in [low, high], GiB."""

    def solved(rest_gib: float) -> Solved:
        return Solved(rest_gib=rest_gib, pools=solve(rule, demand, rest_gib))

    point = solved(point_gib)
    if low_gib >= high_gib:
        return Span(point=point, all=(point,))
    low, high = solved(low_gib), solved(high_gib)
    steps = (solved(rest) for rest in _around_steps(rule, demand, low, high))
    return Span(point=point, all=(point, low, high, *steps))


def ends(rule: Rule, demand: Demand, low_gib: float, point_gib: float, high_gib: float) -> Span:
    """The likely point and the two ends alone, in this order (point, low, high): what lies between is not looked at."""
    point, low, high = (
        Solved(rest_gib=rest, pools=solve(rule, demand, rest)) for rest in (point_gib, low_gib, high_gib)
    )
    return Span(point=point, all=(point, low, high))


def _around_steps(rule: Rule, demand: Demand, low: Solved, high: Solved) -> Iterator[float]:
    """Just before and just at each slot step.

    Teeth repeat with the slots of a request, on a rising trend: two rounds at each end hold the extremes.
    """
    # Fewer slots than none are no pools, however many they are; the steps that count begin behind them.
    counts = range(max(low.pools.slots, 0) + 1, high.pools.slots + 1)
    near = 2 * demand.slots_per_request + 2
    few = counts.stop - counts.start <= 2 * near  # `len` ends at 64 bits
    for slots in counts if few else (*counts[:near], *counts[-near:]):
        yield from _first(low, high, _with(rule, demand, slots))
    if high.pools.allocated and not low.pools.allocated:  # the first token of the first pools, of a start refused later
        yield from _first(low, high, lambda rest_gib: solve(rule, demand, rest_gib).allocated)


def _with(rule: Rule, demand: Demand, slots: int) -> Callable[[float], bool]:
    """Whether so many slots fit. The state alone tells."""
    return lambda rest_gib: rule.state(rule, demand, rest_gib).slots >= slots


def _first(low: Solved, high: Solved, reached: Callable[[float], bool]) -> tuple[float, float]:
    """Just before and just where it is reached; at the low end it is not, at the high end it is."""
    below, above = low.rest_gib, high.rest_gib
    while above - below > _CLOSE_GIB:
        middle = (below + above) / 2
        if middle in (below, above):  # figures so large that no number lies between
            break
        if reached(middle):
            above = middle
        else:
            below = middle
    return below, above
