"""EAGLE, EAGLE3 and NEXTN: a draft of one or a few layers runs step by step, as a chain (top-k 1) or a tree.

NEXTN (SGLang's alias of EAGLE for built-in heads) without a draft path uses the target's own multi-token head. When
nothing is given SGLang takes (steps, top-k, D) = (3, 1, 4), for Llama and Grok (5, 4, 8); with top-k 1 the width is
always steps + 1. (Up to 0.5.7 SGLang has its own list: engines/sglang/widths.py.) Source: SGLang 0.5.16,
arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import SpeculativeSection
from ..specs import ModelSpec
from .contract import DEFAULT_REQUESTS, Complaint, DraftKv, Shape

CHAIN = (3, 1, 4)
TREE = (5, 4, 8)
_TREE_ARCHITECTURES = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")


def default_widths(architecture: str) -> tuple[int, int, int]:
    """Steps, top-k and width where none is given."""
    return TREE if architecture in _TREE_ARCHITECTURES else CHAIN


def drafted(section: SpeculativeSection, defaults: tuple[int, int, int]) -> Shape:
    """Steps, top-k and width as given; all three of `defaults` when no steps are. A chain's width is steps + 1."""
    if section.num_steps is None:
        steps, topk, width = defaults
    else:
        steps, topk = section.num_steps, section.eagle_topk or 1
        width = section.num_draft_tokens or steps + 1
    if topk == 1:
        width = steps + 1
    return Shape(verify_width=width, steps=steps, topk=topk, longest_accept=steps + 1)


def steps_and_branches(section: SpeculativeSection) -> tuple[Complaint, ...]:
    """A width that the steps and branches do not make."""
    steps, topk, width = section.num_steps, section.eagle_topk, section.num_draft_tokens
    complaints = []
    if steps is not None and topk == 1 and width not in (None, steps + 1):
        complaints.append(
            Complaint(
                key="num_draft_tokens",
                value=width,
                reason=f"a chain of {steps} steps verifies {steps + 1} tokens; the engine overrides it",
                allowed=str(steps + 1),
            )
        )
    if steps is not None and topk is not None and topk > 1 and width is not None:
        most = 1 + topk + (steps - 1) * topk * topk
        if width > most:
            complaints.append(
                Complaint(
                    key="num_draft_tokens",
                    value=width,
                    reason=f"{steps} steps of top-k {topk} draft {most - 1} tokens",
                    allowed=f"at most {most}",
                )
            )
    return tuple(complaints)


@dataclass(frozen=True, slots=True)
class Eagle:
    name: str
    family: str = "eagle"
    draft_kv: DraftKv = "eagle"
    keeps_draft_kv: bool = True
    default_requests: int | None = DEFAULT_REQUESTS

    def check(self, section: SpeculativeSection) -> tuple[Complaint, ...]:
        complaints = []
        if self.name == "EAGLE3" and section.draft_model_path is None:
            complaints.append(
                Complaint(
                    key="draft_model_path",
                    value=None,
                    reason="an EAGLE3 draft is a model of its own",
                    allowed="the draft's name or folder",
                )
            )
        return (*complaints, *steps_and_branches(section))

    def shape(
        self, section: SpeculativeSection, target: ModelSpec, draft: ModelSpec | None, args: Mapping[str, Any]
    ) -> Shape:
        return drafted(section, default_widths(target.architecture))

    def draft(self, target: ModelSpec, given: ModelSpec | None) -> ModelSpec | None:
        """The given model (its own head when it is a target-like model), else the target's head."""
        if given is None:
            return target.builtin_draft()
        return given.as_draft()


EAGLE = Eagle("EAGLE")
EAGLE3 = Eagle("EAGLE3")
NEXTN = Eagle("NEXTN")
