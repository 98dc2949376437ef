"""The most requests at once that some candidate reaches, and the longest context of so many. In: candidates.

What is looked for rises with what is moved: the asked number alone, state slots too, the static fraction too, and
everything that the wishes allow. Where a number of requests works, so do all below it: numbers are found by halving.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .candidates import Candidates
from .changes import Change, fractions, slots
from .halving import largest, largest_below
from .screen import Frame, Refused, could_be_sure, figures, reaches
from .types import MOST_REQUESTS, Certainty, Most, Plan


def most(candidates: Candidates, levels: tuple[str, ...]) -> tuple[Most, ...]:
    """The most requests at once of each level; a level holds what the one before it does."""
    found: list[Most] = []
    for level in levels:
        at_least = max((one.requests for one in found), default=0)
        likely = largest(partial(_reaches_at, candidates, level), MOST_REQUESTS, at_least)
        found.append(_most_of(candidates, level, likely, 0))
    return tuple(found)


def nearest(candidates: Candidates, each: int, known: Most) -> Most:
    """The most at once with everything that the wishes allow, where `each` are too many. `known`: of less."""
    likely = largest_below(partial(_reaches_at, candidates, "any"), min(each, MOST_REQUESTS + 1), known.requests)
    return _most_of(candidates, "any", likely, known.sure)


def longest(candidates: Candidates, each: int) -> int | None:
    """The most tokens that each of so many requests can have at once, over the grid; None: they do not run."""
    tokens = 0
    for one, inner in candidates.widest(each):
        need = candidates.wished(each, tokens + 1)
        found = figures(one, inner, need)
        tokens = found.tokens if reaches(found, need) else tokens
    return tokens // each or None


def _most_of(candidates: Candidates, level: str, likely: int, surely: int) -> Most:
    """`surely`: a number that is known to be reached surely."""
    plan = _plan_at(candidates, level, likely, "likely")
    sure = likely
    if plan is None or plan.certainty != "sure":
        sure = largest_below(partial(_surely_at, candidates, level), likely, min(surely, likely))
    return Most(
        level=level,
        requests=0 if plan is None else likely,
        sure=sure,
        plan=plan,
        sure_plan=_plan_at(candidates, level, sure, "sure"),
    )


def _plan_at(candidates: Candidates, level: str, each: int, least: Certainty) -> Plan | None:
    """The first candidate of a level that reaches so many, sure before likely."""
    if not each:
        return None
    second = None
    for one, inner in _of_level(candidates, level, each):
        need = candidates.need(each)
        found = figures(one, inner, need)
        if not reaches(found, need):
            continue
        if (second is not None or least == "sure") and not could_be_sure(one, inner, need):
            continue
        plan = candidates.predicted((*one.changes, *inner), need)
        if plan is not None and plan.certainty == "sure":
            return plan
        second = second or plan
    return second if least == "likely" else None


def _reaches_at(candidates: Candidates, level: str, each: int) -> bool:
    """Whether a candidate of a level reaches so many at the likely free memory."""
    need = candidates.need(each)
    # the dearest first: if any does, these do
    every = _of_level(candidates, level, each, dearest_first=True)
    return any(reaches(figures(one, inner, need), need) for one, inner in every)


def _surely_at(candidates: Candidates, level: str, each: int) -> bool:
    return _plan_at(candidates, level, each, "sure") is not None


def _of_level(
    candidates: Candidates, level: str, each: int, *, dearest_first: bool = False
) -> Iterator[tuple[Frame, tuple[Change, ...]]]:
    """Candidates whose settings are moved as far as a level allows."""
    if level == "any":
        yield from candidates.widest(each, dearest_first=dearest_first)
        return
    start = candidates.frame(each)
    if isinstance(start, Refused):
        return
    steps: list[tuple[Change, ...]] = [()]
    if level in ("slots", "fraction") and "slots" not in candidates.keep:
        exact = slots(start.resolved.slots_per_request, each, workers=start.resolved.attention_dp)
        if start.resolved.target.state_layers and start.resolved.radix:
            steps.append((exact,))
    if level == "fraction" and "fraction" not in candidates.keep:
        steps += [(*step, change) for change in fractions(start.resolved.fraction) for step in steps[:2]]
    yield from ((start, inner) for inner in steps)
