"""STANDALONE: a whole small model drafts token by token, with embedding, head and KV of its own.

The engine treats it as EAGLE but for its defaults, which are (steps, top-k, D) = (3, 1, 4) whatever the target is, and
for what up to 0.5.13 the default fraction keeps back. Source: SGLang 0.5.8 server_args.py, 0.5.16
arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import DEFAULT_REQUESTS, Complaint, DraftKv, Shape
from .eagle import CHAIN, drafted, steps_and_branches


@dataclass(frozen=True, slots=True)
class Standalone:
    name: str = "STANDALONE"
    family: str = "eagle"
    draft_kv: DraftKv = "eagle"
    keeps_draft_kv: bool = True
    default_requests: int | None = DEFAULT_REQUESTS

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        if section.draft_model_path is not None:
            return steps_and_branches(section)
        missing = Complaint(
            key="draft_model_path",
            value=None,
            reason="a STANDALONE draft is a model of its own",
            allowed="the draft's name or folder",
        )
        return (missing, *steps_and_branches(section))

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        return drafted(section, CHAIN)

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        """The given model as a whole, also when it has a multi-token head."""
        return given


ALGORITHM = Standalone()
