"""Arithmetic of figures that are known to within bounds, and how such a figure is printed."""

from __future__ import annotations

import pytest

from specbench.units import Interval, Quantity, format_range, format_spread, gib_text_to_quantity


def test_intervals_add_and_subtract_their_worst_cases() -> None:
    free, taken = Interval(90, 100, 105), Interval(8, 10, 13)
    assert free.plus(taken) == Interval(98, 110, 118)
    assert free.minus(taken) == Interval(77, 90, 97)  # 90 - 13 at the least, 105 - 8 at the most
    assert free.shifted(-100) == Interval(-10, 0, 5)
    assert Interval.total([free, taken, taken]) == Interval(106, 120, 131)
    assert Interval.total([]) == Interval.exact(0)


def test_printed_sizes_add_their_rounding() -> None:
    """'2.71' is 2,909,840,343 B ± 5,368,710 (half of 0.01 GiB, rounded up)."""
    k = gib_text_to_quantity("2.71")
    assert k == Quantity(2_909_840_343, 5_368_710)
    assert Quantity.total([k, k]) == Quantity(5_819_680_686, 10_737_420)
    assert Quantity.total([k, k]).minus(k) == Quantity(2_909_840_343, 16_106_130)
    assert Quantity.total([]) == Quantity(0, 0)


@pytest.mark.parametrize(
    ("interval", "as_range", "as_spread"),
    [
        (Interval.exact(87_061), "87,061", "87,061"),
        (Interval(87_058, 87_061, 87_064), "87,058 to 87,064", "87,061 (87,058 to 87,064)"),
    ],
)
def test_how_a_count_is_printed(interval: Interval, as_range: str, as_spread: str) -> None:
    assert (format_range(interval), format_spread(interval)) == (as_range, as_spread)
