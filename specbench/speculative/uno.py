"""UNO: the target drafts for itself through a LoRA adapter, from 0.5.20; no draft model, no draft KV.

The verify width has to be given; with a top-k above 1 it is a tree of steps + 1 levels. Neither a number of requests
nor one of draft tokens is chosen by the engine. The adapter's buffers are not modelled. Source: SGLang 0.5.20 and
0.5.23, arg_groups/speculative_hook.py, _handle_uno.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import Complaint, DraftKv, Shape


@dataclass(frozen=True, slots=True)
class Uno:
    name: str = "UNO"
    family: str = "uno"
    draft_kv: DraftKv = "none"
    keeps_draft_kv: bool = False
    default_requests: int | None = None

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        if (section.eagle_topk or 1) > 1 or section.num_steps in (None, 1):
            return ()
        return (
            Complaint(
                key="num_steps",
                value=section.num_steps,
                reason="without a tree (eagle_topk above 1) UNO drafts in one step; the engine overrides it",
                allowed="1",
            ),
        )

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        width, topk = section.num_draft_tokens or 1, section.eagle_topk or 1
        if topk == 1:
            return Shape(verify_width=width, steps=1, topk=1, longest_accept=width)
        steps = section.num_steps or 1
        return Shape(verify_width=width, steps=steps, topk=topk, longest_accept=min(width, steps + 1))

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return None


ALGORITHM = Uno()
