"""The candidates of one number of ranks: configurations that a search may take, from the given one by changes.

In: a configuration and wishes. Out: combinations of changes with their figures by the solver's own arithmetic, and of
those that are worth it a `Plan` by `predict`. Nothing is remembered but what a configuration resolves to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..budget.predict import predict
from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..errors import SpecbenchError
from . import screen
from .changes import Change, fractions, without_graphs
from .costs import costs
from .grid import Kinds, combinations, inner_changes, outer_changes
from .halving import largest_below
from .reaching import certain
from .screen import Figures, Frame, Need, Refused, changed, figures, roomy, unchecked
from .types import Plan
from .wished import asking, one_request
from .wishes import LEAST_SLACK_BYTES, Wishes


@dataclass(slots=True)
class Count:
    """Candidates so far."""

    tried: int = 0
    refused: int = 0  # by the engine's arguments


@dataclass(slots=True)
class Candidates:
    """Those of one number of ranks."""

    base: RunConfig
    wishes: Wishes
    keep: frozenset[str]  # kinds of change that are not made
    reference: MemoryBudget | None  # as the settings are, on these ranks; None: not predicted
    count: Count = field(default_factory=Count)
    frames: dict[tuple[Any, ...], Frame | Refused] = field(default_factory=dict)

    def of(
        self, kinds: Kinds, each: int, *, whole: bool = False
    ) -> Iterator[tuple[Frame, tuple[Change, ...], Figures, Need]]:
        """Every candidate of a combination. `whole`: with the slack also of those that fall short without it."""
        start = self.frame(each)
        if isinstance(start, Refused):
            # what the engine refuses as it is may be taken with a change: the frame without it tells what to change
            self.count.refused += not kinds.all
        need = self.need(each)
        reference = start if isinstance(start, Frame) else unchecked(self.base)
        for outer in outer_changes(kinds, reference, self.wishes):
            one = self.frame(each, *outer) if outer else start
            if isinstance(one, Refused):
                self.count.refused += bool(outer)
                continue
            for inner in inner_changes(kinds, one, each):
                self.count.tried += 1
                yield one, inner, figures(one, inner, None if whole else need), need

    def frame(self, each: int, *outer: Change) -> Frame | Refused:
        """Resolved once: the same frame is met in several combinations."""
        key = (each, tuple((change.kind, change.value) for change in outer))
        if key not in self.frames:
            needed = asking(self.base, self.wishes, each, self._tokens(each))
            self.frames[key] = screen.frame(self.base, *needed, *outer)
        return self.frames[key]

    def need(self, each: int) -> Need:
        """What one worker has to have for so many requests of its own."""
        return self.wished(each, self._tokens(each))

    def wished(self, each: int, tokens: int) -> Need:
        """A stated slack is the word; else what is estimated counts, and no less than the least."""
        stated = self.wishes.slack_bytes
        slack = LEAST_SLACK_BYTES if stated is None else stated
        return Need(requests=each, tokens=tokens, slack_bytes=slack, estimated=stated is None)

    def _tokens(self, each: int) -> int:
        """Of one worker. Without a wish one whole request: less serves to the letter, and nobody in practice."""
        if self.wishes.kv_tokens is not None:
            return -(-self.wishes.kv_tokens // self.base.parallel.dp_size)
        return self.wishes.tokens(each, one_request(self.base))

    def widest(self, each: int, *, dearest_first: bool = False) -> Iterator[tuple[Frame, tuple[Change, ...]]]:
        """Candidates that hold the most: slots as they are or exactly as needed, and the largest fractions that leave
        enough outside the pools. With slots given, tokens rise with the fraction and the slack falls; where they are
        not, tokens may fall by a step, so the three largest fractions are yielded."""
        start = self.frame(each)
        reference = start if isinstance(start, Frame) else unchecked(self.base)
        every = combinations(self.wishes, self.keep)
        for kinds in reversed(every) if dearest_first else every:
            if kinds.inner not in ((), ("slots",)):
                continue
            for changes in outer_changes(kinds, reference, self.wishes):
                one = self.frame(each, *changes) if changes else start
                if isinstance(one, Refused):
                    continue
                for inner in inner_changes(kinds, one, each):
                    yield one, inner
                    if "fraction" not in self.keep:
                        yield from ((one, (*inner, step)) for step in self._largest_fractions(one, inner))

    def _largest_fractions(self, one: Frame, inner: tuple[Change, ...]) -> list[Change]:
        """The three largest that leave enough outside the pools, the largest first."""
        steps = sorted(fractions(one.resolved.fraction), key=lambda change: float(change.value))
        need = self.wished(1, 0)
        enough = largest_below(lambda count: roomy(figures(one, (*inner, steps[count - 1])), need), len(steps) + 1)
        return steps[max(0, enough - 3) : enough][::-1]

    def predicted(self, changes: tuple[Change, ...], need: Need) -> Plan | None:
        """The candidate by `predict`; None where that does not show it to reach at the likely point."""
        config = changed(self.base, *changes)
        if config is None:
            return None
        budget = budget_of(config)
        if budget is not None and budget.fault is not None and "graphs" not in self.keep:
            # Memory suffices and the server would still end at its first full batch: the way around it is in the plan.
            changes = (*changes, without_graphs(self.base))
            config = changed(self.base, *changes)
            budget = budget_of(config)
        if config is None:
            return None
        certainty = None if budget is None else certain(budget, need)
        if budget is None or certainty is None:
            return None
        return Plan(
            tp_size=config.parallel.tp_size,
            changes=changes,
            config=config,
            budget=budget,
            certainty=certainty,
            costs=costs(budget, self.reference, changes),
        )


def budget_of(config: RunConfig | None) -> MemoryBudget | None:
    """The prediction; None: there is no configuration, or it cannot be sized."""
    if config is None:
        return None
    try:
        return predict(config)
    except SpecbenchError:
        return None
