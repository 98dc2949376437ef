"""No speculation: the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import Complaint, DraftKv, Shape


@dataclass(frozen=True, slots=True)
class NoSpeculation:
    name: str = "none"
    family: str = "none"
    draft_kv: DraftKv = "none"
    keeps_draft_kv: bool = False
    default_requests: int | None = None

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        given = {key: value for key, value in section if key != "algorithm" and value is not None}
        return tuple(
            Complaint(
                key=key,
                value=value,
                reason="the algorithm is none, which drafts nothing",
                allowed="leave it out, or name an algorithm",
            )
            for key, value in given.items()
        )

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        return Shape(verify_width=0, steps=0, topk=1, longest_accept=1)

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return None


ALGORITHM = NoSpeculation()
