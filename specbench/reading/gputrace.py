"""Free memory of one GPU over a start, as a step function: what stood at which moment, and for how long.

In: NVML samples that were taken every few milliseconds and of which changes were kept, each with the sample before it.
Out: levels. Between two samples that differ memory changed at some moment in between, so both levels may have stood.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ..records.types import GpuSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Memory that stood still, from the first to the last sample that saw it."""

    free_bytes: int
    begin_s: float
    end_s: float

    @property
    def held_s(self) -> float:
        return self.end_s - self.begin_s


class Trace:
    """Levels in the order of time."""

    def __init__(self, samples: Iterable[GpuSample], gpu: int) -> None:
        self.levels = _levels([sample for sample in samples if sample.gpu == gpu])

    def between(self, begin_s: float, end_s: float) -> tuple[Level, ...]:
        """The levels that may have stood at some moment of this time. Empty where nothing was sampled."""
        if not self.levels or end_s < self.levels[0].begin_s or begin_s > self.levels[-1].end_s:
            return ()
        before = (None, *self.levels)
        after = (*self.levels[1:], None)
        return tuple(
            level
            for earlier, level, later in zip(before, self.levels, after, strict=False)
            if (earlier is None or earlier.end_s < end_s) and (later is None or later.begin_s > begin_s)
        )

    def widest_gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time in which a change of this span is not placed more exactly; 0: nothing changed."""
        levels = self.between(begin_s, end_s)
        return max((later.begin_s - level.end_s for level, later in pairwise(levels)), default=0.0)


def _levels(samples: list[GpuSample]) -> tuple[Level, ...]:
    found: list[Level] = []
    for sample in samples:
        if found and found[-1].free_bytes == sample.free_bytes:
            found[-1] = Level(free_bytes=sample.free_bytes, begin_s=found[-1].begin_s, end_s=sample.t_s)
        else:
            found.append(Level(free_bytes=sample.free_bytes, begin_s=sample.t_s, end_s=sample.t_s))
    return tuple(found)
