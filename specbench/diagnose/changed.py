"""The prediction of a configuration that differs from the one that was started: what of that start still holds.

In: both configurations and what the start told (free memory, the fraction on the command line). Out: a budget. Free
memory holds as long as every rank loads the same; other ranks, cards or another speculation load other weights, and
then only the configuration is left to go by.
"""

from __future__ import annotations

from ..budget.predict import predict
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig


def loads_otherwise(before: RunConfig, after: RunConfig) -> bool:
    """Whether a rank of the changed server has other weights, or another card."""
    return (before.parallel, before.gpu, before.speculative.algorithm) != (
        after.parallel,
        after.gpu,
        after.speculative.algorithm,
    )


def predict_changed(
    before: RunConfig,
    after: RunConfig,
    free: FreeMemory | None,
    passed_fraction: float | None,
    *,
    accepted: bool = False,
) -> MemoryBudget:
    """`predict` of `after`, on the free memory of the start of `before` where that holds. `accepted`, and errors, as of
    `predict`."""
    if free is None or loads_otherwise(before, after):
        return predict(after, accepted=accepted)
    passed = passed_after(before, after, passed_fraction)
    return predict(after, free=free, passed_fraction=passed, accepted=accepted)


def passed_after(before: RunConfig, after: RunConfig, passed_fraction: float | None) -> float | None:
    """What the changed server would be passed where a larger card stands for a smaller one: its own fraction is that of
    the emulated card, and the one on the command line grows with it."""
    was, will = before.memory.mem_fraction_static, after.memory.mem_fraction_static
    if passed_fraction is None or was is None or will is None:
        return passed_fraction if was == will else None
    return passed_fraction * will / was
