"""FROZEN_KV_MTP: an assistant reads the target's KV and keeps none, from 0.5.12 (Gemma 4).

To the pool sizing it is EAGLE all the same: with a draft path its layers are charged from 0.5.14, although its own pool
is a stub of 64 tokens. The engine chooses no widths for it: steps, top-k and draft tokens have to be given. Source:
SGLang 0.5.16, arg_groups/speculative_hook.py (_handle_frozen_kv_mtp), speculative/frozen_kv_mtp_worker_v2.py,
spec_info.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import DEFAULT_REQUESTS, Complaint, DraftKv, Shape
from .eagle import CHAIN


@dataclass(frozen=True, slots=True)
class FrozenKvMtp:
    name: str = "FROZEN_KV_MTP"
    family: str = "frozen_kv_mtp"
    draft_kv: DraftKv = "eagle"
    keeps_draft_kv: bool = False
    default_requests: int | None = DEFAULT_REQUESTS

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        if section.draft_model_path is not None:
            return ()
        return (
            Complaint(
                key="draft_model_path",
                value=None,
                reason="the assistant that reads the target's KV is a model of its own",
                allowed="the draft's name or folder",
            ),
        )

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        """As given: the engine adjusts nothing. What is left out (and refused) is filled as EAGLE's chain."""
        steps = section.num_steps or CHAIN[0]
        return Shape(
            verify_width=section.num_draft_tokens or steps + 1,
            steps=steps,
            topk=section.eagle_topk or 1,
            longest_accept=steps + 1,
        )

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return given


ALGORITHM = FrozenKvMtp()
