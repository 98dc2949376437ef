"""Frames of the cliff: a configuration, or that of a run, over the number of requests asked. All of it is predicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
import pandas as pd

from ..budget.grid import predict_grid
from ..budget.predict import predict
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..errors import SpecbenchError
from ..judging.judge import as_resolved, passed
from ..studies.seen import Seen
from ..terms import Limit
from .columns import build
from .grids import grid

_AT_LEAST, _MOST_POINTS, _MOST_BOUNDS = 12, 400, 48
#: Where the most that are served lie farther out than this, a picture of them would show nothing of what is asked.
_FARTHEST = 256
#: What a curve is drawn of.
_BOUNDED: tuple[Limit, ...] = ("state_slots", "running_requests", "kv_tokens")


class _Given(TypedDict):
    free: FreeMemory | None
    passed_fraction: float | None


def requests_curve(
    config: RunConfig, *, free: FreeMemory | None = None, passed_fraction: float | None = None
) -> pd.DataFrame:
    """Columns of `grid` for every number of requests up to twice as many as are asked, and a quarter beyond the most
    that are served as asked (`_FARTHEST` at most), everything else unchanged; a few hundred at most. Below them
    (`bound`) the ends of the predicted intervals, where they are wider than a point.

    `free`: the free memory that a run measured; not given: from the GPU table. `passed_fraction`: of a run that
    emulates a smaller card. Nothing (no row) where the configuration cannot be sized.
    """
    return _curve(config, config.memory.max_running_requests, free, passed_fraction, beyond=True)


def requests_curve_of(study: Seen) -> pd.DataFrame:
    """The curve of a run's configuration, with the free memory that the run itself logged where it did."""
    if study.config is None:
        return build("grid", ())
    budget, pools = study.diagnosis.budgets.get(study.basis), study.diagnosis.pools
    free = budget.free if budget is not None and study.basis == "measured" else None
    config = as_resolved(study.config, pools)
    return _curve(config, study.asked or study.resolved, free, passed(config, pools))


def around(asked: int, most: int = 0) -> list[int]:
    """Every number from 1 to twice what is asked (or to `most`, if that is more), or evenly so many of them, with the
    asked one among them."""
    last = max(_AT_LEAST, 2 * asked, most)
    return sorted({1, asked, *range(1, last + 1, -(-last // _MOST_POINTS))})


def _curve(
    config: RunConfig,
    asked: int | None,
    free: FreeMemory | None,
    passed_fraction: float | None,
    *,
    beyond: bool = False,
) -> pd.DataFrame:
    known: _Given = {"free": free, "passed_fraction": passed_fraction}
    try:
        running = predict(config, **known).limits["running_requests"].value
        middle = asked or (running.point if running is not None else 0) or 1
        most = _beyond_the_most(config, 2 * middle, known) if beyond else 0
        points = grid(predict_grid(config, {"memory.max_running_requests": around(middle, most)}, **known))
        return pd.concat([points, *_bounds(points, config, known)], ignore_index=True)
    except SpecbenchError:
        return build("grid", ())


def _beyond_the_most(config: RunConfig, served: int, known: _Given) -> int:
    """A quarter beyond the most requests that are served as asked; 0: they are fewer than `served`, or too many."""
    if served > _FARTHEST:
        return 0
    every = predict_grid(config, {"memory.max_running_requests": list(range(served, _FARTHEST + 1))}, **known)
    short = np.flatnonzero(~every.verdict.are("serves").reshape(-1))
    if not len(short) or short[0] == 0:
        return 0
    return -(-(served + int(short[0]) - 1) * 5 // 4)


def _bounds(points: pd.DataFrame, config: RunConfig, known: _Given) -> Iterator[pd.DataFrame]:
    """The ends of the predicted intervals, of a few dozen of the points that stand. Nothing where all are exact.

    The ends of the free memory would miss them: tokens drop where a slot is gained (see `sizing.span`).
    """
    stand = points[points["verdict"].isin(["serves", "capped"])]
    some = stand.iloc[:: -(-len(stand) // _MOST_BOUNDS) or 1]
    asked = [int(count) for count in some["asked_requests"]]
    budgets = [predict(config.replace({"memory.max_running_requests": count}), **known) for count in asked]
    for bound in ("low", "high"):
        figures = {
            limit: pd.array([_end(budget, limit, bound) for budget in budgets], dtype="Int64") for limit in _BOUNDED
        }
        rows = some.assign(bound=pd.array([bound] * len(some), dtype="string"), **figures)
        if not rows[list(_BOUNDED)].equals(some[list(_BOUNDED)]):
            yield rows


def _end(budget: MemoryBudget, limit: Limit, bound: str) -> int | None:
    value = budget.limits[limit].value if limit in budget.limits else None
    return None if value is None else value.low if bound == "low" else value.high
