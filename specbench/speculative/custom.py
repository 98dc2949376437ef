"""An algorithm that a plug-in registers (from 0.5.12), as `speculative.custom` describes it.

What SGLang knows of such an algorithm is what its class answers: whether it is to be charged as EAGLE or as DFLASH, and
whether it runs with overlap scheduling. Of the widths it reads the flags, or what the plug-in sets in their place; and
it takes no number of requests by itself. Source: SGLang 0.5.12 and 0.5.23, speculative/spec_registry.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import CustomAlgorithm, SpeculativeSection
from ..specs import ModelSpec
from .contract import Complaint, DraftKv, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    name: str
    described: CustomAlgorithm

    @property
    def family(self) -> str:
        return "custom" if self.described.overlap else "synchronous"

    @property
    def draft_kv(self) -> DraftKv:
        return self.described.draft_kv

    @property
    def keeps_draft_kv(self) -> bool:
        return self.described.draft_pool

    @property
    def default_requests(self) -> int | None:
        return self.described.default_requests

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        if section.num_draft_tokens is not None or self.described.verify_width is not None:
            return ()
        return (
            Complaint(
                key="num_draft_tokens",
                value=None,
                reason="the solver sizes the scratch by it, and no default is known",
                allowed="the tokens verified per step; custom.verify_width where the plug-in sets it itself",
            ),
        )

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        width = self.described.verify_width or section.num_draft_tokens or 1
        topk = section.eagle_topk or 1
        return Shape(
            verify_width=width,
            steps=section.num_steps or 1,
            topk=topk,
            longest_accept=self.described.longest_accept or width,
        )

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return given
