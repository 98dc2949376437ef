"""What an algorithm has to tell: quantities and inconsistencies, nothing about flags or pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A key of the speculative section that does not fit the algorithm."""

    key: str  # of the section, e.g. num_draft_tokens
    value: Any
    reason: str
    allowed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How far the engine drafts and verifies per step."""

    verify_width: int  # D: tokens verified per request and step, 0 without speculation
    steps: int  # draft steps
    topk: int  # branches per step; above 1 the draft is a tree
    longest_accept: int  # most tokens one step can yield, the bonus token included


class Algorithm(Protocol):
    """One speculative algorithm."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str:
        """ "none", "eagle", "dflash" or "ngram": which of the engine's sizing branches applies."""
        ...

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        """Keys that contradict the algorithm, whatever the engine's version."""
        ...

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        """Widths with the engine's defaults filled in. `args`: further server flags by underscored name."""
        ...

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        """The model that drafts: the given one, a head of the target's own, or none."""
        ...
