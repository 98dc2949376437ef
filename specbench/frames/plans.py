"""Pictures' frames of an answer: where the given settings fall off and the plan holds, and what fits on more ranks."""

from __future__ import annotations

import pandas as pd

from ..budget.grid import predict_grid
from ..budget.grid_types import Grid
from ..configuration.config import RunConfig
from ..engines.sglang.resolve import settings
from ..errors import SpecbenchError
from ..planning.screen import asked_of_server
from ..planning.types import Answer, Plan
from ..planning.wished import on_ranks
from .columns import build
from .grids import grid

_AT_LEAST, _AT_MOST = 12, 64


def plan_curve(answer: Answer) -> pd.DataFrame:
    """Columns of `grid` over the requests asked, on the ranks of the plan: the settings as given, and the plan's.

    Without a plan the ranks are the given ones, and there is one line.
    """
    best = answer.best or answer.beyond
    ranks = answer.given.parallel.tp_size if best is None else best.tp_size
    configs = {f"as given, TP{ranks}": on_ranks(answer.given, ranks)}
    if best is not None and changes_more_than_asked(best):
        configs[f"the plan, TP{ranks}"] = best.config
    return _over_requests(answer, configs)


def plan_region(answer: Answer) -> pd.DataFrame:
    """The same for every number of ranks: the settings as given but for the context, and the plan's.

    The context is the model's own, so that the tokens alone bound it; where another was given the name says so.
    """
    but = "" if answer.given.memory.context_length is None else " but for the context"
    configs = {
        f"as given{but}, TP{size.tp_size}": _with_own_context(on_ranks(answer.given, size.tp_size))
        for size in answer.sizes
        if size.impossible is None
    }
    best = answer.best or answer.beyond
    if best is not None and changes_more_than_asked(best):
        configs[f"the plan, TP{best.tp_size}"] = _with_own_context(best.config)
    return _over_requests(answer, configs)


def changes_more_than_asked(plan: Plan) -> bool:
    return any(change.kind not in ("requests", "context") for change in plan.changes)


def asked_here(answer: Answer) -> int:
    """The requests that are wished, or the most of the plan."""
    if answer.wishes.running_requests is not None:
        return answer.wishes.running_requests
    running = None if answer.best is None else answer.best.budget.limits["running_requests"].value
    return 1 if running is None else max(1, running.point)


def wished_here(answer: Answer) -> tuple[int, int] | None:
    """Requests and tokens of each that are wished; None: no context is wished."""
    wishes = answer.wishes
    if wishes.context is not None:
        return asked_here(answer), wishes.context
    if wishes.kv_tokens is not None:
        return asked_here(answer), max(1, wishes.kv_tokens // asked_here(answer))
    return None


def _over_requests(answer: Answer, configs: dict[str, RunConfig]) -> pd.DataFrame:
    last = min(max(_AT_LEAST, asked_here(answer) * 2), max(_AT_MOST, asked_here(answer) + 8))
    found: dict[str, Grid] = {}
    for name, config in configs.items():
        each = range(1, last + 1)
        try:
            asked = [asked_of_server(config, requests) for requests in each]
            found[name] = predict_grid(config, {"memory.max_running_requests": asked})
        except SpecbenchError:  # not to be sized on these ranks: no line
            continue
    return grid(found) if found else build("grid", ())


def _with_own_context(config: RunConfig) -> RunConfig:
    """Up to the model's context, the fraction as it was: a default may depend on the context."""
    try:
        fraction = settings(config).fraction
    except SpecbenchError:
        return config
    return config.replace({"memory.context_length": None, "memory.mem_fraction_static": fraction})
