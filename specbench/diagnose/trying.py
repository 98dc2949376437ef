"""One change of a server, tried by `predict` on the measured basis of the very log before it may be called a remedy.

In: a situation (configuration, budget, free memory of that start), a change, and what it has to reach. Out: a remedy,
or None. None also where this engine version would refuse the change, where not every free memory within the measured
interval would do, and where too little stays outside the pools for graphs and activations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.command import flags_for
from ..engines.sglang.per_worker import wanted_of_worker
from ..engines.sglang.verify_mask import AVOIDED_BY
from ..errors import SpecbenchError
from ..planning.changes import Change as Candidate
from ..planning.screen import estimated_outside
from ..planning.wishes import LEAST_SLACK_BYTES
from ..terms import Limit
from ..units import GIB, format_gib
from .changed import predict_changed
from .finding import Remedy

_SHOWN: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "max_input_tokens")
#: A default depends on the card's memory, which a log tells to about 1%.
_NEAR_DEFAULT = 0.02
#: Keys by which graphs become others than those that were logged.
_GRAPHS = ("memory.cuda_graph_max_bs", "engine.args.disable-cuda-graph", "engine.args.disable_cuda_graph")


_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What remedies start from."""

    config: RunConfig
    budget: MemoryBudget  # on the better basis that there is
    free: FreeMemory | None  # as logged, or as NVML measured it; None: only the configuration is known
    wanted_requests: int
    passed_fraction: float | None  # on the command line of a server that emulates a smaller card; else None
    graphs_bytes: int  # as logged; 0 when not logged (then LEAST_SLACK_BYTES stands for them)
    fraction_may_be_default: bool = False  # a bare log prints the engine's default like one that was given
    #: What was predicted already of this start, by change: rules ask for the same ones.
    predicted: dict[str, tuple[RunConfig, MemoryBudget] | None] = field(default_factory=dict, compare=False)


def before_start(config: RunConfig, budget: MemoryBudget) -> Situation:
    """Of a configuration that was only predicted."""
    return Situation(
        config=config,
        budget=budget,
        free=budget.free if budget.basis == "measured" else None,
        wanted_requests=wanted_of_worker(config),
        passed_fraction=None,
        graphs_bytes=0,
    )


@dataclass(frozen=True, slots=True)
class Change:
    """Keys as `--set` takes them, and what they give up, in words."""

    set: Mapping[str, Any]
    note: str
    changes_results: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a change has to reach, per data-parallel worker and rank, to be a remedy."""

    requests: int  # running at once
    least: Literal["serves", "starts"] = "serves"  # "starts": capped below what is asked will do
    tokens: int = 0  # of the KV pool, where that is more than the workload needs
    workload: bool = True  # the KV pool holds the workload, all at once; False: where it does not now, it need not
    more_bytes: int = 0  # to stay free beyond what does now, graphs and a prefill taken (by estimate)
    also: Callable[[MemoryBudget], bool] | None = None  # what else the prediction has to show


def of_candidate(candidate: Candidate, extra: Mapping[str, Any] | None = None) -> Change:
    """A change of a plan as one that is tried: with what is wished beside it, where that is not stated yet."""
    return Change({**candidate.set, **(extra or {})}, candidate.note, candidate.changes_results)


def tried(situation: Situation, change: Change, goal: Goal) -> Remedy | None:
    """The change as a remedy, when the prediction says that it reaches the goal."""
    found = changed(situation, change)
    if found is None:
        return None
    config, budget = found
    running, tokens = _least(budget, "running_requests"), _least(budget, "kv_tokens")
    allowed = ("serves",) if goal.least == "serves" else ("serves", "capped")
    if not set(budget.verdicts) <= set(allowed):  # at every free memory within the interval
        return None
    if running is None or running < goal.requests:
        return None
    if tokens is None or tokens < max(goal.tokens, _least_tokens(situation, config, goal)):
        return None
    slack = slack_bytes(budget)
    if slack is None or slack < _needed_slack_bytes(situation, budget, change) or not _frees(situation, budget, goal):
        return None
    if goal.also is not None and not goal.also(budget):
        return None
    return Remedy(
        set=dict(change.set),
        flags=flags_for(dict(change.set), situation.config.engine.version),
        basis=budget.basis,
        rests_on=budget.free.rests_on,
        predicted={limit: point(budget, limit) for limit in _SHOWN},
        verdict=budget.verdict,
        note=(
            f"{change.note}; {format_gib(slack)} stay for graphs and activations (predicted)"
            + (f"; as on {budget.emulation.card}" if budget.emulation is not None else "")
            + (f"; --{AVOIDED_BY} as well, or it ends at its first full batch" if budget.fault is not None else "")
        ),
        changes_results=change.changes_results,
    )


def changed(situation: Situation, change: Change) -> tuple[RunConfig, MemoryBudget] | None:
    """The configuration with the change, and its prediction; None: refused, or not sized."""
    key = repr(sorted(change.set.items()))
    if key not in situation.predicted:
        situation.predicted[key] = _predicted(situation, change)
    return situation.predicted[key]


def _predicted(situation: Situation, change: Change) -> tuple[RunConfig, MemoryBudget] | None:
    try:
        config = situation.config.replace(change.set)
    except ValidationError:  # a figure beyond what a params file may hold
        return None
    try:
        if _refuses(situation, config):
            return None
        free, passed = situation.free, situation.passed_fraction
        return config, predict_changed(situation.config, config, free, passed, accepted=True)
    except SpecbenchError:
        return None


def _refuses(situation: Situation, config: RunConfig) -> bool:
    """Whether the engine refuses the changed arguments, or overrides one that it took as it was."""
    found = check(config)
    if not found:
        return False
    as_is = {refusal.key for refusal in check(situation.config) if refusal.tolerated}
    return any(not (refusal.tolerated and refusal.key in as_is) for refusal in found)


def point(budget: MemoryBudget, limit: Limit) -> int | None:
    """The likely value of a limit; None: not predicted."""
    predicted = budget.limits.get(limit)
    return predicted.value.point if predicted and predicted.value else None


def _least(budget: MemoryBudget, limit: Limit) -> int | None:
    """The least value of a limit at any free memory within the interval."""
    predicted = budget.limits.get(limit)
    return predicted.value.low if predicted and predicted.value else None


def slack_bytes(budget: MemoryBudget) -> int | None:
    """Left outside the pools. Measured memory is that of the real card; a remedy has to do on one that it emulates."""
    slack = budget.terms["slack"].bytes
    if slack is None or budget.emulation is None or budget.basis == "config":
        return None if slack is None else slack.point
    return slack.point - budget.emulation.room_bytes


def needed_tokens(config: RunConfig, requests: int) -> int:
    """KV tokens without which a remedy is none: every request of the workload at once, and one whole context.

    A pool of a thousand tokens "serves" eight requests to the letter and nobody in practice.
    """
    workload = config.workload
    at_once = 0
    if not workload.load_only:
        at_once = requests * (max(workload.input_tokens) + workload.output_tokens)
    return max(at_once, config.memory.context_length or 0)


def _least_tokens(situation: Situation, config: RunConfig, goal: Goal) -> int:
    needed, now = needed_tokens(config, goal.requests), point(situation.budget, "kv_tokens")
    return needed if goal.workload or now is None else min(needed, now)


def fraction_of(situation: Situation) -> float | None:
    """The static fraction: given, or what the engine resolves where it is left out."""
    given = situation.config.memory.mem_fraction_static
    if given is not None:
        return given
    resolved = next((one.value for one in situation.budget.resolved if one.name == "mem_fraction_static"), None)
    return resolved if isinstance(resolved, float) and situation.budget.emulation is None else None


def stated_fraction(situation: Situation) -> dict[str, Any]:
    """The fraction as it is, beside a change by which the engine's default would move; {}: it was given."""
    now = fraction_of(situation)
    given = situation.config.memory.mem_fraction_static is not None and not (
        situation.fraction_may_be_default and _may_be_default(situation, now)
    )
    return {} if now is None or given else {"memory.mem_fraction_static": round(now, 3)}


def _may_be_default(situation: Situation, fraction: float | None) -> bool:
    """Whether the engine may have chosen the fraction that a log prints; False: by the prediction its default is
    another, so it was given, and stays."""
    left_out = changed(situation, Change({"memory.mem_fraction_static": None}, ""))
    resolved = () if left_out is None else left_out[1].resolved
    default = next((one.value for one in resolved if one.name == "mem_fraction_static"), None)
    return fraction is None or not isinstance(default, float) or abs(default - fraction) < _NEAR_DEFAULT


def _needed_slack_bytes(situation: Situation, budget: MemoryBudget, change: Change) -> int:
    """What has to stay outside the pools: as a plan needs it; where graphs were logged, those and a prefill chunk."""
    if situation.graphs_bytes and not any(key in change.set for key in _GRAPHS):
        return max(LEAST_SLACK_BYTES, situation.graphs_bytes + GIB)
    taken = estimated_outside(budget)
    return max(LEAST_SLACK_BYTES, 0 if taken is None else taken.point)


def _frees(situation: Situation, budget: MemoryBudget, goal: Goal) -> bool:
    """Whether as much more is left as the goal says. A start that the prediction refuses as it is has nothing left."""
    if not goal.more_bytes:
        return True
    before, after = _left_bytes(situation.budget), _left_bytes(budget)
    return after is not None and (before is None or after - before >= goal.more_bytes)


def _left_bytes(budget: MemoryBudget) -> int | None:
    slack, taken = slack_bytes(budget), estimated_outside(budget)
    return None if slack is None else slack - (0 if taken is None else taken.point)


def largest(low: int, high: int, found: Callable[[int], _Found | None]) -> _Found | None:
    """What is found of the largest number from `low` to `high` of which anything is, by bisection: a log may ask for
    any number. None: of none.
    """
    best: _Found | None = None
    while low <= high:
        number = (low + high) // 2
        one = found(number)
        if one is None:
            high = number - 1
        else:
            best, low = one, number + 1
    return best
