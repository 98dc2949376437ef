"""Thousands of candidates by the solver's own arithmetic, at the likely free memory: which reach, how near others come.

A frame is a configuration as far as the engine resolves it before it looks at memory; in it slots, ratio and fraction
vary at the cost of one solve each. What is shown of a candidate comes from `predict` itself, which also has the whole
interval of free memory; that both agree is tested.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pydantic import ValidationError

from ..budget.case import Case
from ..budget.freememory import Start, start
from ..budget.outside import outside
from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.demand import demand, rest_gib, units
from ..engines.sglang.resolve import Settings, settings
from ..engines.sglang.sizing.cell import Cell, Slot
from ..engines.sglang.sizing.contract import Demand
from ..engines.sglang.sizing.span import Solved, Span
from ..engines.sglang.sizing.steps import solve
from ..errors import SpecbenchError
from ..units import GIB, Interval
from .changes import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one data-parallel worker has to have, and each of its cards to spare."""

    requests: int
    tokens: int
    slack_bytes: int
    estimated: bool = True  # what graphs and a full prefill are estimated to take counts as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A configuration whose slots, ratio and fraction are open."""

    config: RunConfig
    changes: tuple[Change, ...]
    resolved: Settings
    slot: Slot
    cell: Cell
    demand: Demand
    begin: Start


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the engine does not take a candidate, before any memory is looked at."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one worker, at the likely free memory. A refused start has no request."""

    requests: int
    tokens: int
    slack_bytes: int | None  # None: refused, or not predicted
    left_bytes: int | None = None  # of the slack, less graphs and a full prefill, by estimate; None: not estimated


def changed(config: RunConfig, *changes: Change) -> RunConfig | None:
    """With the changes; None: a figure beyond what a params file may hold."""
    try:
        return config.replace({key: value for change in changes for key, value in change.set.items()})
    except ValidationError:
        return None


def frame(config: RunConfig, *changes: Change) -> Frame | Refused:
    """The configuration with the changes, resolved."""
    found = changed(config, *changes)
    if found is None:
        return Refused("a figure is beyond what a params file holds")
    try:
        for refusal in check(found):
            return Refused(f"{refusal.key}: {refusal.reason}")
        return unchecked(found, *changes)
    except SpecbenchError as error:
        return Refused(error.first_line)


def unchecked(config: RunConfig, *changes: Change) -> Frame:
    """The configuration itself, resolved, whatever the engine's arguments say of it. `changes`: those that are in it.

    ConfigError or SpecError when it cannot be sized.
    """
    resolved = settings(config)
    slot, cell = units(resolved)
    return Frame(
        config=config,
        changes=changes,
        resolved=resolved,
        slot=slot,
        cell=cell,
        demand=demand(resolved, slot, cell),
        begin=start(resolved, pre_bytes=None, post_bytes=None, free=None),
    )


def figures(frame: Frame, inner: tuple[Change, ...], need: Need | None = None) -> Figures:
    """What a candidate gets. `inner`: of the kinds slots, ratio and fraction.

    `need`: where requests or tokens fall short of it already, the slack is not computed (and None).
    """
    asked, resolved = _asked(frame, inner), frame.resolved
    fraction = next((float(change.value) for change in inner if change.kind == "fraction"), None)
    pre, post = frame.begin.free.pre.point, frame.begin.free.post.point
    rest = rest_gib(resolved, pre, post, fraction)
    pools = solve(resolved.rule, asked, rest)
    requests, tokens = pools.requests or 0, pools.tokens or 0
    if pools.refusal is not None or not pools.allocated:
        return Figures(requests=0, tokens=tokens, slack_bytes=None)
    draft = frame.begin.draft_weights
    enough = need is None or (requests >= need.requests and tokens >= need.tokens)
    if draft is None or resolved.gpu.is_host or not enough:
        return Figures(requests=requests, tokens=tokens, slack_bytes=None)
    if fraction is not None:
        resolved = dataclasses.replace(resolved, fraction=fraction)
    solved = Solved(rest_gib=rest, pools=pools)
    case = Case(
        settings=resolved,
        slot=frame.slot,
        cell=frame.cell,
        demand=asked,
        start=frame.begin,
        span=Span(point=solved, all=(solved,)),
    )
    slack = case.slack_bytes(solved, pre, draft.point)
    beside = outside(resolved, Interval.exact(slack), requests, tokens)
    left = None if beside is None else beside.left.point
    return Figures(requests=requests, tokens=tokens, slack_bytes=slack, left_bytes=left)


def could_be_sure(frame: Frame, inner: tuple[Change, ...], need: Need) -> bool:
    """False: not even with a little more than the least free memory does the candidate get slots and tokens.

    The least rest of another fraction is that of the frame's own, and the difference of the fractions of what is free
    before loading, of which the interval's better end is taken here.
    """
    least, before = frame.begin.rest.low_gib, frame.begin.free.pre
    asked = _asked(frame, inner)
    for change in inner:
        if change.kind == "fraction":
            step = float(change.value) - frame.resolved.fraction
            least += step * (before.high if step > 0 else before.low) / GIB
    pools = solve(frame.resolved.rule, asked, least)
    return pools.refusal is None and (pools.requests or 0) >= need.requests and (pools.tokens or 0) >= need.tokens


def _asked(frame: Frame, inner: tuple[Change, ...]) -> Demand:
    asked = frame.demand
    for change in inner:
        if change.kind == "slots":
            asked = dataclasses.replace(asked, explicit_slots=int(change.value))
        elif change.kind == "ratio":
            asked = dataclasses.replace(asked, ratio=float(change.value))
    return asked


def reaches(found: Figures, need: Need) -> bool:
    """Whether that is what is needed. A slack that is not predicted (a host) hinders nothing."""
    return found.requests >= need.requests and found.tokens >= need.tokens and roomy(found, need)


def roomy(found: Figures, need: Need) -> bool:
    """Whether enough stays outside the pools."""
    if need.estimated and found.left_bytes is not None and found.left_bytes < 0:
        return False
    return found.slack_bytes is None or found.slack_bytes >= need.slack_bytes


def shortfall(found: Figures, need: Need) -> tuple[float, float]:
    """How far a candidate is from the need, as comparable shares: the greatest lack first, then all of them."""
    lacks = [
        max(0.0, 1 - found.requests / need.requests),
        max(0.0, 1 - found.tokens / need.tokens) if need.tokens else 0.0,
    ]
    if found.slack_bytes is not None:
        taken = found.slack_bytes - found.left_bytes if need.estimated and found.left_bytes is not None else 0
        needed = max(need.slack_bytes, taken)
        lacks.append(max(0.0, 1 - found.slack_bytes / needed) if needed else 0.0)
    return max(lacks), sum(lacks)


def estimated_outside(budget: MemoryBudget) -> Interval | None:
    """What graphs and a full prefill take of what is outside the pools; None: not estimated."""
    graphs, running = (budget.details.get(f"estimated_{name}_bytes") for name in ("graphs", "activations"))
    if graphs is None or running is None:
        return None
    return graphs.plus(running)


def per_worker(config: RunConfig, requests: int) -> int:
    """Of requests of the whole server, those of each data-parallel worker, rounded up."""
    return -(-requests // config.parallel.dp_size)


def asked_of_server(config: RunConfig, each: int) -> int:
    """`--max-running-requests` of a server whose workers are to run `each`: workers of DP attention share it."""
    return each * config.parallel.attention_dp
