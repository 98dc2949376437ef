"""NGRAM: drafts from n-grams of the text so far; no draft model, no draft KV. A tree: convolution windows stay dense.

Width 12 unless given; top-k is the breadth of the search, 10 unless given. Source: SGLang 0.5.16,
arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import DEFAULT_REQUESTS, Complaint, DraftKv, Shape

_DEFAULT_WIDTH = 12
DEFAULT_BREADTH = 10  # --speculative-ngram-max-bfs-breadth


@dataclass(frozen=True, slots=True)
class Ngram:
    name: str = "NGRAM"
    family: str = "ngram"
    draft_kv: DraftKv = "none"
    keeps_draft_kv: bool = False
    default_requests: int | None = DEFAULT_REQUESTS

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        complaints = []
        if section.draft_model_path is not None:
            complaints.append(
                Complaint(
                    key="draft_model_path",
                    value=section.draft_model_path,
                    reason="NGRAM drafts without a model",
                    allowed="leave it out",
                )
            )
        if section.eagle_topk is not None:
            complaints.append(
                Complaint(
                    key="eagle_topk",
                    value=section.eagle_topk,
                    reason="NGRAM takes its breadth from --speculative-ngram-max-bfs-breadth",
                    allowed="leave it out; engine.args.speculative_ngram_max_bfs_breadth",
                )
            )
        return tuple(complaints)

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        width = section.num_draft_tokens or _DEFAULT_WIDTH
        breadth = args.get("speculative_ngram_max_bfs_breadth", DEFAULT_BREADTH)
        topk = breadth if isinstance(breadth, int) else DEFAULT_BREADTH
        return Shape(verify_width=width, steps=max(1, width // topk), topk=topk, longest_accept=width)

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        return None


ALGORITHM = Ngram()
