"""The grid of candidates of one number of ranks, in the order of what they cost.

A candidate is as dear as its dearest change; of equally dear ones the next dearest decides, then fewer changes, then
the smaller step. Every combination of the kinds is in the grid: slots as they are, given exactly, or another ratio
(alone and with one further change only, unless slots are kept: exactly the slots that are needed leave more tokens than
any ratio); fraction; types; draft tokens; strategy or no prefix cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .changes import (
    COSTS,
    FRACTIONS,
    RATIOS,
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

#: What is gone through of each kind, for the words of a proof; {}: the values.
_WORDS: Mapping[Kind, str] = {
    "slots": "exactly as many slots as needed",
    "ratio": f"ratios of {RATIOS[0]:g} to {RATIOS[-1]:g}",
    "fraction": f"fractions of {FRACTIONS[0]:g} to {FRACTIONS[-1]:g} in hundredths",
    "state_dtype": "state in {}",
    "kv_dtype": "KV in {}",
    "draft_tokens": "{} draft tokens",
    "strategy": "prefix cache by {}",
    "radix": "prefix cache {}",
}


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


def _barred(wishes: Wishes, keep: frozenset[str]) -> set[str]:
    barred = set(keep)
    barred |= {"state_dtype"} if wishes.state_dtype is not None else set()
    barred |= {"kv_dtype"} if wishes.kv_dtype is not None else set()
    barred |= {"radix"} if wishes.prefix_cache else set()
    return barred


def combinations(wishes: Wishes, keep: frozenset[str]) -> list[Kinds]:
    """Every combination, cheapest first. `keep`: kinds that are not touched."""
    barred, found = _barred(wishes, keep), []
    most_with_ratio = _MOST_WITH_RATIO if "slots" not in barred else len(COSTS)
    for outer in itertools.product(*_OUTER):
        for inner in itertools.product(*_INNER):
            kinds = Kinds(tuple(k for k in outer if k is not None), tuple(k for k in inner if k is not None))
            if kinds.all & barred or ("ratio" in kinds.inner and len(kinds.all) > most_with_ratio):
                continue
            found.append(kinds)
    return sorted(found, key=lambda kinds: kinds.cost)


def described(wishes: Wishes, keep: frozenset[str], base: Frame) -> str:
    """What is gone through, in words: of the kinds that neither a wish nor `keep` bars and that this server has."""
    barred, stateful = _barred(wishes, keep), bool(base.resolved.target.state_layers)
    parts = []
    for kind, words in _WORDS.items():
        values = _outer_values(base, wishes).get(kind, [])
        there = kind == "fraction" or stateful if kind in ("slots", "ratio", "fraction") else bool(values)
        if there and kind not in barred:
            parts.append(words.format(", ".join(str(change.value) for change in values)))
    both = stateful and not {"slots", "ratio"} & barred
    ratio = " (a ratio with one other at most: exact slots leave more tokens)" if both else ""
    return "; ".join(["the settings as they are", *parts, f"and every combination of these{ratio}"])


def _outer_values(base: Frame, wishes: Wishes) -> dict[Kind, list[Change]]:
    resolved = base.resolved
    return {
        "state_dtype": list(state_dtypes(resolved)),
        "kv_dtype": list(cache_dtypes(resolved)),
        "draft_tokens": list(draft_widths(base.config, resolved.shape.verify_width, wishes.draft_tokens or 0)),
        "strategy": list(strategies(resolved)),
        "radix": list(no_radix(base.config)),
    }


def outer_changes(kinds: Kinds, base: Frame, wishes: Wishes) -> Iterator[tuple[Change, ...]]:
    """Changes that make the frames of a combination, the dearest kind slowest, smallest steps first."""
    values = _outer_values(base, wishes)
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
