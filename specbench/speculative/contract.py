"""What an algorithm has to tell: quantities and inconsistencies, nothing about flags or pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec

#: Which of the engine's ways of charging a draft's KV applies: `is_eagle` and `is_standalone`, `is_dflash_family`.
DraftKv = Literal["none", "eagle", "dflash"]


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
    own_windows: bool = False  # every token keeps a convolution window of its own, whatever the top-k
    widest: int | None = None  # tokens for which the pools have room, when that is not `verify_width`

    @property
    def pool_width(self) -> int:
        return self.verify_width if self.widest is None else self.widest


class Algorithm(Protocol):
    """One speculative algorithm."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str:
        """Which of the engine's scheduling branches applies: "none", "eagle", "dflash", "ngram", "frozen_kv_mtp",
        "uno", "custom", or "synchronous" for one that never runs with overlap scheduling."""
        ...

    @property
    def draft_kv(self) -> DraftKv:
        """How the engine charges the draft's KV."""
        ...

    @property
    def keeps_draft_kv(self) -> bool:
        """Whether a draft model gets a KV pool of its own, of the target's token count."""
        ...

    @property
    def default_requests(self) -> int | None:
        """`max_running_requests` that the engine takes when none is given; None: it takes none."""
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


#: Every built-in algorithm but UNO.
DEFAULT_REQUESTS = 48
