"""Bytes, and how sure we are of them.

SGLang prints "GB" and means 2**30 bytes, rounded to two decimals; network and disk vendors mean 10**9.
Inside specbench memory is bytes (int); only text and plots use GiB, and they say GiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Quantity:
    """A size that was read from text: the printed figure is `bytes`, the truth lies within ± `resolution_bytes`."""

    bytes: int
    resolution_bytes: int = 0  # half of the last printed digit; 0: exact

    @property
    def interval(self) -> Interval:
        return Interval(self.bytes - self.resolution_bytes, self.bytes, self.bytes + self.resolution_bytes)

    @classmethod
    def total(cls, parts: Iterable[Quantity]) -> Quantity:
        """The sum, with the rounding of all. Of none: 0, exactly."""
        every = list(parts)
        return cls(sum(part.bytes for part in every), sum(part.resolution_bytes for part in every))

    def minus(self, other: Quantity) -> Quantity:
        """What is left of it, with the rounding of both."""
        return Quantity(self.bytes - other.bytes, self.resolution_bytes + other.resolution_bytes)


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its bounds: low <= point <= high. Exact when all three agree. The unit is the holder's."""

    low: int
    point: int
    high: int

    def __post_init__(self) -> None:
        if not self.low <= self.point <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.point} <= {self.high}")

    @classmethod
    def exact(cls, value: int) -> Interval:
        return cls(value, value, value)

    @classmethod
    def total(cls, parts: Iterable[Interval]) -> Interval:
        """The sum of figures, none of which tells anything of another. Of none: 0, exactly."""
        every = list(parts)
        return cls(sum(part.low for part in every), sum(part.point for part in every), sum(part.high for part in every))

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def contains(self, value: int, slop: int = 0) -> bool:
        """Whether `value` lies inside, bounds included, widened by `slop` on both sides."""
        return self.low - slop <= value <= self.high + slop

    def shifted(self, by: int) -> Interval:
        """More by a known figure."""
        return Interval(self.low + by, self.point + by, self.high + by)

    def plus(self, other: Interval) -> Interval:
        """The sum of two figures, neither of which tells anything of the other."""
        return Interval(self.low + other.low, self.point + other.point, self.high + other.high)

    def minus(self, other: Interval) -> Interval:
        """The difference of two such figures: the least is left of the least when the most is taken."""
        return Interval(self.low - other.high, self.point - other.point, self.high - other.low)


def gib_text_to_quantity(text: str) -> Quantity:
    """'17.16' (GiB as SGLang prints it) -> 18,425,409,044 B ± 5,368,710 B (half of 0.01 GiB).

    The resolution follows from the digits printed: '3' is ± 0.5 GiB, '3.141' is ± 0.0005 GiB.
    """
    return _scaled_text(text, GIB)


def mib_text_to_quantity(text: str) -> Quantity:
    """'146.81' (MiB) -> bytes ± half of the last digit."""
    return _scaled_text(text, MIB)


def _scaled_text(text: str, scale: int) -> Quantity:
    digits = len(text.partition(".")[2])
    return Quantity(round(float(text) * scale), math.ceil(0.5 * 10**-digits * scale))


def gib(size_bytes: float) -> float:
    """Bytes to GiB."""
    return size_bytes / GIB


def format_gib(size_bytes: float | None, *, unknown: str = "not logged", digits: int = 2) -> str:
    """'3.14 GiB', or the word for an unknown figure (never 0)."""
    return unknown if size_bytes is None else f"{size_bytes / GIB:z.{digits}f} GiB"


def format_count(value: int | None, *, unknown: str = "not logged") -> str:
    """'87,061', or the word for an unknown figure (never 0)."""
    return unknown if value is None else f"{value:,}"


def format_range(interval: Interval) -> str:
    """'33 to 34', or one figure where both ends are the same."""
    return f"{interval.point:,}" if interval.is_exact else f"{interval.low:,} to {interval.high:,}"


def format_spread(interval: Interval) -> str:
    """'87,061 (87,058 to 87,064)', or one figure where the ends are the same."""
    return f"{interval.point:,}" if interval.is_exact else f"{interval.point:,} ({format_range(interval)})"


def counted(count: int, noun: str) -> str:
    """'1 request', '2 requests', '1,024 tokens'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
