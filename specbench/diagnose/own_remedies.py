"""Remedies for the start of a model that specbench does not know, each tried on the log's own figures.

In: `OwnStart`, and how many requests are to run. Out: remedies, the cheapest first. None is offered that does not serve
over the whole of what the log's rounding leaves open. Changes that need more than the log tells (what further GPUs
split, what of the state is float32, another type of KV) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.command import flags_for
from ..errors import SpecbenchError
from ..planning import changes as candidates
from ..planning.wishes import LEAST_SLACK_BYTES
from ..units import GIB, format_gib
from .finding import Remedy
from .own_prediction import OwnPrediction, likely, predicted
from .own_start import OwnStart
from .trying import Change, largest, needed_tokens, of_candidate

_MOST = 6
#: To stay outside the pools where no graphs are logged: what the engine's default fraction leaves on a card of more
#: than 60 GiB (server_args.py), since the prefill of an unknown model is not estimated.
_UNKNOWN_OUTSIDE_BYTES = 10 * GIB


def own_remedies(start: OwnStart, wanted: int) -> tuple[Remedy, ...]:
    """Changes by which `wanted` requests run at once; at last the most that run without another change."""
    less = _most_requests(start, wanted - 1)
    found: list[Remedy] = []
    for ladder in _ladders(start, wanted):
        if len(found) + (less is not None) >= _MOST:
            break
        remedy = next((one for change in ladder if (one := own_tried(start, change, wanted)) is not None), None)
        if remedy is not None:
            found.append(remedy)
    return (*found, *(() if less is None else (less,)))


def own_changed(start: OwnStart, change: Change) -> tuple[RunConfig, OwnPrediction] | None:
    """The arguments with a change, and what they give; None: no memory within the interval does, or not understood."""
    try:
        config = start.config.replace(change.set)
        found = predicted(start, config)
    except (ValidationError, SpecbenchError):
        return None
    return None if found is None else (config, found)


def _may_serve(start: OwnStart, change: Change, wanted: int) -> bool:
    """Whether it does at the likely point: without that there is nothing to look at further."""
    try:
        config = start.config.replace(change.set)
        pools = likely(start, config)
    except (ValidationError, SpecbenchError):
        return False
    return pools is not None and (pools.requests or 0) >= wanted


def _refuses(start: OwnStart, config: RunConfig) -> bool:
    """Whether the engine refuses the changed arguments, or overrides one that it took as it was, whatever the model."""
    found = check(config)
    as_is = {refusal.key for refusal in check(start.config) if refusal.tolerated} if found else set()
    return any(not (refusal.tolerated and refusal.key in as_is) for refusal in found)


def own_tried(start: OwnStart, change: Change, wanted: int) -> Remedy | None:
    """The change as a remedy, where it serves `wanted` requests whatever the log's rounding hides."""
    if not _may_serve(start, change, wanted):
        return None
    found = own_changed(start, change)
    if found is None:
        return None
    config, prediction = found
    limits, left = prediction.limits, prediction.left
    if not prediction.serves or limits["running_requests"].low < wanted:
        return None
    if limits["kv_tokens"].low < needed_tokens(config, wanted):
        return None
    needed = max(LEAST_SLACK_BYTES, start.graphs_bytes + GIB) if start.graphs_bytes else _UNKNOWN_OUTSIDE_BYTES
    if left.low < needed or _refuses(start, config):
        return None
    return Remedy(
        set=dict(change.set),
        flags=flags_for(dict(change.set), start.version),
        basis="own figures",
        predicted={name: value.point for name, value in limits.items()},
        spans=limits,
        verdict="serves",
        note=f"{change.note}; at least {format_gib(left.low)} stay for graphs and activations (computed)",
        changes_results=False,
    )


def _most_requests(start: OwnStart, high: int) -> Remedy | None:
    """Asking for less: the largest number that serves, by bisection."""

    def asking(number: int) -> Remedy | None:
        note = f"asks for {number:,} instead of {_asked_text(start)}: the rest waits at the client"
        return own_tried(start, Change({"memory.max_running_requests": number}, note), number)

    return largest(1, high, asking)


def _asked_text(start: OwnStart) -> str:
    asked = start.config.memory.max_running_requests
    return "the engine's default" if asked is None else f"{asked:,}"


def _ladders(start: OwnStart, wanted: int) -> Iterator[Iterable[Change]]:
    """The smallest step first."""
    config, memory = start.config, start.config.memory
    extra: dict[str, Any] = {} if memory.max_running_requests == wanted else {"memory.max_running_requests": wanted}
    per_request = max(start.per_request(config, way) for way in start.ways)
    if not memory.disable_radix_cache:
        yield (of_candidate(candidates.slots(per_request, wanted), extra),)
    ratio = candidates.ratio_of(config)
    yield (of_candidate(one, extra) for one in candidates.ratios(config) if float(one.value) > ratio)
    yield (
        of_candidate(one, extra) for one in candidates.fractions(start.fraction) if float(one.value) > start.fraction
    )
    yield (of_candidate(one, extra) for one in candidates.no_radix(config))
    drafts = [of_candidate(one, extra) for one in candidates.draft_widths(config, start.draft_tokens or None)]
    yield drafts
    yield (
        Change({**first.set, **second.set}, f"{first.note}; {second.note}")
        for first in (of_candidate(one, extra) for one in candidates.no_radix(config))
        for second in drafts
    )
