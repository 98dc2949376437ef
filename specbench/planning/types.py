"""Plans: what to set, what it reaches by `predict`, what it costs. Figures are those of one data-parallel worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from .changes import Change
from .wishes import Wishes

#: sure: over the whole interval of free memory. likely: at its likely point, and not at every other.
Certainty = Literal["sure", "likely"]

#: The most at once that is looked for. It was the engine's own bound; with a number given, later versions have none.
MOST_REQUESTS = 4096

#: How far the settings are moved for the most requests at once, in words.
LEVELS: Mapping[str, str] = {
    "asked": "settings as they are, only the asked number",
    "slots": "and state slots given exactly",
    "fraction": "and another static fraction",
    "any": "everything that the wishes allow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings that reach the wishes on so many ranks."""

    tp_size: int
    changes: tuple[Change, ...]  # against the configuration that was given; without the number of ranks
    config: RunConfig  # with all of them
    budget: MemoryBudget  # predicted
    certainty: Certainty
    costs: tuple[str, ...]  # a sentence with figures each

    @property
    def changes_results(self) -> bool:
        return any(change.changes_results for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A plain change that does not do, at its best."""

    kind: str  # of Change, or "none": nothing but what is wished
    tried: str  # 'nothing changed', 'mem_fraction_static up to 0.9'
    why: str  # with figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    """The most requests at once, with settings moved so far. A plan of its own: the settings are in it."""

    level: str
    requests: int  # of one worker, at the likely free memory; 0: not even one; MOST_REQUESTS: no more were tried
    sure: int  # over its whole interval
    plan: Plan | None  # of `requests`; None: there is none
    sure_plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One number of tensor-parallel ranks."""

    tp_size: int
    gpus: int  # that the server takes
    impossible: str | None = None  # why the model or the engine does not take this number; None: it does
    plans: tuple[Plan, ...] = ()  # cheapest first; empty: none of the grid reaches
    tried: int = 0  # candidates that were predicted
    refused: int = 0  # candidates that the engine's arguments refuse
    grid: str = ""  # what was gone through, in words; "": nothing was
    complete: bool = True  # whether the whole grid was gone through (always where there is no plan)
    failures: tuple[Failure, ...] = ()
    most: tuple[Most, ...] = ()  # by level
    longest_context: int | None = None  # tokens of each of the wished requests, where the wish is out of reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All sizes, and the plan to take."""

    given: RunConfig
    wishes: Wishes
    gpus: int  # that there are
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]

    @property
    def owned(self) -> tuple[Size, ...]:
        """Sizes for which there are cards enough: the one that was given, then those of more ranks, then of fewer."""
        owned, asked = [size for size in self.sizes if size.gpus <= self.gpus], self.given.parallel.tp_size
        return tuple(sorted(owned, key=lambda size: (size.tp_size != asked, size.tp_size < asked, size.tp_size)))

    @property
    def best(self) -> Plan | None:
        """The first on the cards that there are, in the order of `owned`; sure first."""
        every = [plan for size in self.owned for plan in size.plans]
        return next((plan for plan in every if plan.certainty == "sure"), next(iter(every), None))

    @property
    def beyond(self) -> Plan | None:
        """The first on more cards than there are."""
        more = sorted((size for size in self.sizes if size.gpus > self.gpus), key=lambda size: size.tp_size)
        return next((plan for size in more for plan in size.plans), None)
