"""The grid of candidates of one number of ranks, in the order of what they cost.

A candidate is as dear as its dearest change; of equally dear ones the next dearest decides, then fewer changes, then
the smaller step. Every combination of the kinds is in the grid: slots as they are, given exactly, or another ratio
(alone and with one further change only: exactly the slots that are needed leave more tokens than any ratio); fraction;
types; draft tokens; strategy or no prefix cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .changes import (
    COSTS,
    Change,
    Kind,
    cache_dtypes,
    draft_widths,
    fractions,
    no_radix,
    ratios,
    slots,
    state_dtypes,
    strategies,
)
from .screen import Frame
from .wishes import Wishes

_RANK: Mapping[Kind, int] = {kind: rank for rank, kind in enumerate(COSTS)}
#: Kinds that are settled before memory is looked at; each makes another frame.
_OUTER: tuple[tuple[Kind | None, ...], ...] = (
    (None, "state_dtype"),
    (None, "kv_dtype"),
    (None, "draft_tokens"),
    (None, "strategy", "radix"),
)
_INNER: tuple[tuple[Kind | None, ...], ...] = ((None, "slots", "ratio"), (None, "fraction"))
_MOST_WITH_RATIO = 2

#: What is gone through, for the words of a proof.
WORDS = (
    "slots as set, exactly as many as needed, or a ratio of 0.1 to 8; fractions of 0.05 to 0.97 in hundredths; state "
    "in bfloat16; KV in fp8_e4m3; 3/4, 1/2 and 1/4 of the draft tokens; every strategy of the prefix cache, and none"
)


@dataclass(frozen=True, slots=True)
class Kinds:
    """One combination of kinds."""

    outer: tuple[Kind, ...]
    inner: tuple[Kind, ...]

    @property
    def all(self) -> frozenset[Kind]:
        return frozenset((*self.outer, *self.inner))

    @property
    def cost(self) -> tuple[int, ...]:
        return tuple(sorted((_RANK[kind] for kind in self.all), reverse=True))


def combinations(wishes: Wishes, keep: frozenset[str]) -> list[Kinds]:
    """Every combination, cheapest first. `keep`: kinds that are not touched."""
    barred = set(keep)
    barred |= {"state_dtype"} if wishes.state_dtype is not None else set()
    barred |= {"kv_dtype"} if wishes.kv_dtype is not None else set()
    barred |= {"radix"} if wishes.prefix_cache else set()
    found = []
    for outer in itertools.product(*_OUTER):
        for inner in itertools.product(*_INNER):
            kinds = Kinds(tuple(k for k in outer if k is not None), tuple(k for k in inner if k is not None))
            if kinds.all & barred or ("ratio" in kinds.inner and len(kinds.all) > _MOST_WITH_RATIO):
                continue
            found.append(kinds)
    return sorted(found, key=lambda kinds: kinds.cost)


def outer_changes(kinds: Kinds, base: Frame, wishes: Wishes) -> Iterator[tuple[Change, ...]]:
    """Changes that make the frames of a combination, the dearest kind slowest, smallest steps first."""
    resolved = base.resolved
    values: dict[Kind, list[Change]] = {
        "state_dtype": list(state_dtypes(resolved)),
        "kv_dtype": list(cache_dtypes(resolved)),
        "draft_tokens": list(draft_widths(base.config, resolved.shape.verify_width, wishes.draft_tokens or 0)),
        "strategy": list(strategies(resolved)),
        "radix": list(no_radix(base.config)),
    }
    yield from itertools.product(*(values[kind] for kind in _dearest_first(kinds.outer)))


def inner_changes(kinds: Kinds, frame: Frame, requests: int) -> Iterator[tuple[Change, ...]]:
    """What varies within a frame. `requests`: of one worker."""
    resolved = frame.resolved
    values: dict[Kind, list[Change]] = {}
    if "slots" in kinds.inner:
        one = slots(resolved.slots_per_request, requests, workers=resolved.attention_dp)
        given = frame.config.memory.max_mamba_cache_size
        # Without a prefix cache every request asked has its slot already, unless another number is given.
        useful = one.value != given and (resolved.radix or given is not None)
        values["slots"] = [one] if resolved.target.state_layers and useful else []
    if "ratio" in kinds.inner:
        values["ratio"] = list(ratios(frame.config)) if resolved.target.state_layers else []
    if "fraction" in kinds.inner:
        values["fraction"] = list(fractions(resolved.fraction))
    yield from itertools.product(*(values[kind] for kind in _dearest_first(kinds.inner)))


def _dearest_first(kinds: tuple[Kind, ...]) -> list[Kind]:
    return sorted(kinds, key=lambda kind: -_RANK[kind])
