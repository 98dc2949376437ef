"""DDTREE: a tree of likely continuations from one DFLASH block, verified at once. In no release up to 0.5.23.

As the open pull request sgl-project/sglang#29907 has it: `--speculative-ddtree-budget` nodes beside the root (block - 1
when left out), so that max(block, budget + 1) tokens are verified; every node has its own ancestors and so its own
convolution window; no overlap scheduling, pages of one token. A fork or a patched engine is sized by the release that
it was made from (`engine.sizing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import Shape
from .dflash import BlockDraft, block


@dataclass(frozen=True, slots=True)
class DDTree(BlockDraft):
    name: str = "DDTREE"
    family: str = "synchronous"

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        size = block(section, draft, args)
        budget = args.get("speculative_ddtree_budget")
        nodes = budget + 1 if isinstance(budget, int) and not isinstance(budget, bool) else size
        # no path of the tree is longer than the block that it is made from
        return Shape(verify_width=max(size, nodes), steps=1, topk=1, longest_accept=min(size, nodes), own_windows=True)


ALGORITHM = DDTree()
