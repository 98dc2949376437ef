"""Bytes, and how sure we are of them.

SGLang prints "GB" and means 2**30 bytes, rounded to two decimals; network and disk vendors mean 10**9.
Inside specbench memory is bytes (int); only text and plots use GiB, and they say GiB.
"""

from __future__ import annotations

import math
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

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def contains(self, value: int, slop: int = 0) -> bool:
        """Whether `value` lies inside, bounds included, widened by `slop` on both sides."""
        return self.low - slop <= value <= self.high + slop


def gib_text_to_quantity(text: str) -> Quantity:
    """'17.16' (GiB as SGLang prints it) -> 18,425,409,044 B ± 5,368,709 B (half of 0.01 GiB).

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


def counted(count: int, noun: str) -> str:
    """'1 request', '2 requests', '1,024 tokens'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
