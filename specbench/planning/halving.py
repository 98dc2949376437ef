"""The largest number that works, where with a number all below it work too."""

from __future__ import annotations

from collections.abc import Callable


def largest_below(works: Callable[[int], bool], high: int, low: int = 0) -> int:
    """The largest number below `high` that works, by halving. `low`: one that does, and is not asked again; 0: none."""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def largest(works: Callable[[int], bool], most: int, at_least: int = 0) -> int:
    """The largest number up to `most` that works, by doubling and halving; 0: none. `at_least`: where to begin."""
    low = at_least if at_least and works(at_least) else 0
    if low >= most or not works(low + 1):
        return low
    low += 1
    high = low * 2
    while high <= most and works(high):
        low, high = high, high * 2
    return largest_below(works, min(high, most + 1), low)
