"""DSPARK: a block draft as DFLASH's, with a Markov head that lets its tokens see each other; from 0.5.16.

What counts as its block is gamma, the drafted tokens without the anchor, so that gamma + 1 are verified: the flag, else
`block_size` of the draft's config (a bundled head: `dspark_block_size`), else what `num_draft_tokens` says, else 7.
Source: SGLang 0.5.16 and 0.5.23, arg_groups/speculative_hook.py (_handle_dspark),
speculative/dspark_components/dspark_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import Shape
from .dflash import BlockDraft

_DEFAULT_GAMMA = 7


def gamma(draft: ModelSpec | None, args: Mapping[str, Any]) -> int | None:
    """Drafted tokens of a step, by the flag or the draft's config; None: neither says."""
    flag = args.get("speculative_dspark_block_size")
    if isinstance(flag, int) and not isinstance(flag, bool):
        return flag
    return draft.block_size if draft is not None else None


@dataclass(frozen=True, slots=True)
class DSpark(BlockDraft):
    name: str = "DSPARK"

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        told = gamma(draft, args)
        width = told + 1 if told is not None else section.num_draft_tokens or _DEFAULT_GAMMA + 1
        return Shape(verify_width=width, steps=1, topk=1, longest_accept=width)


ALGORITHM = DSpark()
