"""The weights against the static fraction, by the log's own figures. In: a case. Out: both, in bytes and words."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import format_gib, gib
from .case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShare:
    """What the static fraction allows against what loading took, by the log of the rank with least free memory."""

    fraction: float
    free_bytes: int  # before loading
    loads: tuple[tuple[str, int], ...]  # role, bytes

    @property
    def exceeded(self) -> bool:
        """Whether loading alone took more than the fraction allows."""
        return sum(size for _, size in self.loads) > self.fraction * self.free_bytes

    @property
    def words(self) -> str:
        """As a sentence."""
        took = " and ".join(
            f"{format_gib(size)}{' of the draft' if role == 'draft' else ''}" for role, size in self.loads
        )
        allowed = format_gib(round(self.fraction * self.free_bytes))
        return (
            f" The static fraction allows {self.fraction:g} × {gib(self.free_bytes):.2f} = {allowed}, and loading the "
            f"weights took {took}."
        )


def weight_share(case: Case) -> WeightShare | None:
    """None where the log lacks one of the figures."""
    rank = case.pools.deciding_rank
    free = None if rank is None else case.pools.pre.get(rank)
    loads = tuple(
        (load.role, load.used.bytes) for load in case.log.weights if load.rank == rank and load.used is not None
    )
    if free is None or case.asked_fraction is None or not loads:
        return None
    return WeightShare(fraction=case.asked_fraction, free_bytes=free.bytes, loads=loads)
