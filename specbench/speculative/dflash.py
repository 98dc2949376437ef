"""DFLASH: a small draft proposes a whole block at once; the block, anchor included, is verified in one step.

The verify width is the block size: the flag, else the draft's config, else 16. Steps and top-k are always 1.
Source: SGLang 0.5.12 server_args.py, 0.5.16 arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import DEFAULT_REQUESTS, Complaint, DraftKv, Shape

_DEFAULT_BLOCK = 16


def one_block(name: str, section: SpeculativeSection) -> tuple[Complaint, ...]:
    """Steps and branches are those of other algorithms."""
    wrong = {"num_steps": section.num_steps, "eagle_topk": section.eagle_topk}
    return tuple(
        Complaint(
            key=key, value=value, reason=f"{name} drafts one block in one step; the engine overrides it", allowed="1"
        )
        for key, value in wrong.items()
        if value not in (None, 1)
    )


def block(section: SpeculativeSection, draft: ModelSpec | None, args: Mapping[str, Any]) -> int:
    """Tokens of a block, the anchor included: the flag, else the draft's config, else 16."""
    flag = args.get("speculative_dflash_block_size")
    asked = flag if isinstance(flag, int) and not isinstance(flag, bool) else section.num_draft_tokens
    return asked or (draft.block_size if draft is not None else None) or _DEFAULT_BLOCK


@dataclass(frozen=True, slots=True)
class BlockDraft:
    """What algorithms share whose draft proposes a whole block in one step."""

    name: str
    family: str = "dflash"
    draft_kv: DraftKv = "dflash"
    keeps_draft_kv: bool = True
    default_requests: int | None = DEFAULT_REQUESTS

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        return one_block(self.name, section)

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return given


@dataclass(frozen=True, slots=True)
class DFlash(BlockDraft):
    name: str = "DFLASH"

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        width = block(section, draft, args)
        return Shape(verify_width=width, steps=1, topk=1, longest_accept=width)


ALGORITHM = DFlash()
