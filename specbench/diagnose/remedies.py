"""Changes that reach what was asked, each checked by `predict` before it is named.

In: a configuration, the budget that fell short, and what is wanted. Out: remedies, ordered as `ORDER` says. A change
that the prediction does not show to serve is never offered; neither is one that this engine version would refuse, or
that leaves no room for graphs and activations (`trying.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from ..budget_types import MemoryBudget
from ..planning import changes as candidates
from ..planning.wishes import LEAST_SLACK_BYTES
from ..terms import Limit
from .finding import Remedy
from .trying import (
    Change,
    Goal,
    Situation,
    changed,
    fraction_of,
    largest,
    of_candidate,
    point,
    slack_bytes,
    stated_fraction,
    tried,
)

__all__ = ["Situation", "at_most", "longer_requests", "remedies", "shortage", "working"]

#: Changes of one kind, the smallest first: of each ladder the first that reaches the goal is named.
Ladder = tuple[Change, ...]


def remedies(situation: Situation, *, most: int = 6) -> tuple[Remedy, ...]:
    """At most `most`: changes of the server, more GPUs, pairs of changes to fill up, and at last asking for less."""
    goal = Goal(requests=situation.wanted_requests)
    less = _ask_less(situation)
    ask_less = () if less is None else (less,)
    found: list[Remedy] = []
    for group in (_server_changes(situation), more_gpus(situation), _pairs(situation)):
        if len(found) + len(ask_less) < most:
            found.extend(working(situation, group, goal))
    return (*found[: most - len(ask_less)], *ask_less)


def working(situation: Situation, ladders: Iterable[Ladder], goal: Goal) -> Iterator[Remedy]:
    """Of each ladder of ever larger changes, the first that reaches the goal."""
    for ladder in ladders:
        for change in ladder:
            remedy = tried(situation, change, goal)
            if remedy is not None:
                yield remedy
                break


def longer_requests(situation: Situation, input_tokens: int, output_tokens: int) -> tuple[Remedy, ...]:
    """Changes by which a request of that length fits: a longer context, or a shorter request."""
    total = input_tokens + output_tokens
    goal = Goal(requests=situation.wanted_requests, least="starts")
    found: list[Remedy] = []
    # SGLang wants room for one more token than input and output together (max_req_len = context - 1).
    context = _round_up(total + 1, 1024)
    change = Change({"memory.context_length": context}, "a longer context, up to the model's own")
    remedy = tried(situation, change, goal)
    longest = _point_of(remedy, "max_input_tokens")
    if remedy is not None and longest is not None and longest > input_tokens:
        found.append(remedy)
    limit = situation.config.memory.context_length
    if limit is not None and limit - output_tokens > 1:
        fits = [limit - output_tokens - 1]
        shorter = Change({"workload.input_tokens": fits}, f"prompts of {fits[0]:,} tokens at most")
        remedy = tried(situation, shorter, goal)
        found += [remedy] if remedy is not None else []
    return tuple(found)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _point_of(remedy: Remedy | None, limit: Limit) -> int | None:
    return None if remedy is None else remedy.predicted.get(limit)


def shortage(situation: Situation) -> str:
    """Why so many requests at once do not fit, as a sentence."""
    wanted = situation.wanted_requests
    found = changed(situation, Change({"memory.max_running_requests": wanted}, ""))
    if found is not None and found[1].verdict != "serves":
        return found[1].reason
    return f"{wanted:,} would leave too little for graphs and activations, or for their prompts."


# ── what can be changed ──────────────────────────────────────────────────────────────────────────────────────────────


def _server_changes(situation: Situation) -> Iterator[Ladder]:
    config, wanted = situation.config, situation.wanted_requests
    memory = config.memory
    # Nothing asked means that the engine's own default (48 with speculation) applies: then the wish is stated too.
    extra: dict[str, Any] = {} if memory.max_running_requests == wanted else {"memory.max_running_requests": wanted}
    per_request = point(situation.budget, "slots_per_request")
    if per_request and not memory.disable_radix_cache:
        yield (of_candidate(candidates.slots(per_request, wanted), extra),)
    ratio = candidates.ratio_of(config)
    yield tuple(of_candidate(change, extra) for change in candidates.ratios(config) if float(change.value) > ratio)
    fraction = memory.mem_fraction_static
    if fraction is not None:
        yield other_fractions(situation, extra, larger=not _short_of_slack(situation.budget))
    yield tuple(of_candidate(change, extra) for change in candidates.no_radix(config))
    yield fewer_drafts(situation, extra)
    if memory.mamba_ssm_dtype in (None, "float32"):
        yield (of_candidate(candidates.half_state(), extra),)


def other_fractions(situation: Situation, extra: dict[str, Any] | None = None, *, larger: bool) -> Ladder:
    """Larger or smaller static fractions, the nearest first; none where the present one is not known."""
    now = fraction_of(situation)
    if now is None:
        return ()
    return tuple(
        of_candidate(change, extra) for change in candidates.fractions(now) if (float(change.value) > now) == larger
    )


def fewer_drafts(situation: Situation, extra: dict[str, Any] | None = None) -> Ladder:
    """Fewer tokens verified per step."""
    now = situation.budget.details.get("draft_tokens")
    width = now.point if now is not None else situation.config.speculative.num_draft_tokens
    return tuple(of_candidate(change, extra) for change in candidates.draft_widths(situation.config, width))


def more_gpus(situation: Situation) -> Iterator[Ladder]:
    """More tensor-parallel ranks."""
    parallel = situation.config.parallel
    stated = stated_fraction(situation) if situation.fraction_may_be_default else {}
    yield tuple(
        Change(
            {"parallel.tp_size": size, "gpu.count": parallel.model_copy(update={"tp_size": size}).gpus, **stated},
            f"{size} GPUs: weights, state and scratch are split",
        )
        for size in candidates.TP_SIZES
        if size > parallel.tp_size
    )


def _short_of_slack(budget: MemoryBudget) -> bool:
    """Whether the pools leave too little, so that a larger fraction would make it worse."""
    slack = slack_bytes(budget)
    return slack is not None and slack < LEAST_SLACK_BYTES


def _ask_less(situation: Situation) -> Remedy | None:
    """The largest number below the asked one that serves."""
    return at_most(situation, 1, situation.wanted_requests - 1)


def at_most(situation: Situation, low: int, high: int, goal: Goal | None = None) -> Remedy | None:
    """The largest number of requests from `low` to `high` that serves, by bisection: a log may ask for any number.

    `goal`: what else is to be reached.
    """

    def asking(number: int) -> Remedy | None:
        note = f"asks for {number:,} instead of {situation.wanted_requests:,}: the rest waits at the client"
        asked = Goal(requests=number) if goal is None else dataclasses.replace(goal, requests=number)
        return tried(situation, Change({"memory.max_running_requests": number}, note), asked)

    return largest(low, high, asking)


def _pairs(situation: Situation) -> Iterator[Ladder]:
    singles = [change for ladder in _server_changes(situation) for change in ladder]
    radix = [c for c in singles if "memory.disable_radix_cache" in c.set]
    half = [c for c in singles if "memory.mamba_ssm_dtype" in c.set]
    drafts = [c for c in singles if "speculative.num_draft_tokens" in c.set]
    for first, second in ((radix, drafts), (half, drafts), (radix, half)):
        yield tuple(
            Change({**a.set, **b.set}, f"{a.note}; {b.note}", a.changes_results or b.changes_results)
            for a in first
            for b in second
        )
