"""The weights against the static fraction, by the log's own figures. In: a case. Out: both, in bytes and words."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import GIB, format_gib, gib
from .case import Case

#: From this share of the predicted weights on (and from 1 GiB on) something is missing.
_FAR = 0.1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LightWeights:
    """Loading that took far less than the model's shapes: memory came back meanwhile, in bytes of one rank."""

    used_bytes: int  # by the log
    expected_bytes: int  # the lower end of the prediction
    line: int

    @property
    def missing_bytes(self) -> int:
        return self.expected_bytes - self.used_bytes


def light_weights(case: Case) -> LightWeights | None:
    """Of the target, on the rank with least free memory; None: nothing is missing, or not predicted."""
    term = case.budget.terms.get("weights") if case.budget is not None else None
    rank = case.pools.deciding_rank
    load = next((one for one in case.log.weights if one.role == "target" and one.rank == rank), None)
    if term is None or term.bytes is None or load is None or load.used is None or load.used.bytes <= 0:
        return None
    missing = term.bytes.low - (load.used.bytes + load.used.resolution_bytes)
    if missing < max(GIB, _FAR * term.bytes.low):
        return None
    return LightWeights(used_bytes=load.used.bytes, expected_bytes=term.bytes.low, line=load.line)


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
