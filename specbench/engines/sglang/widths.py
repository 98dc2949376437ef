"""Steps, branches and width of EAGLE drafts that a release takes where none are given. In: a section. Out: it, filled.

Up to 0.5.7 they draft trees for every architecture but some, later chains but for some (`speculative/eagle.py`).
Source: auto_choose_speculative_params in server_args.py of 0.5.6.post2, 0.5.7 and 0.5.8.
"""

from __future__ import annotations

from ... import speculative
from ...configuration.config import SpeculativeSection
from ...specs import ModelSpec
from ...speculative.eagle import CHAIN, TREE, default_widths
from .sizing.contract import Rule

_EAGLE = ("EAGLE", "EAGLE3", "NEXTN")
#: The architectures of 0.5.6.post2 that draft a chain; all others draft a tree.
_CHAINS_OF_0_5_6 = (
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV2ForCausalLM",
    "GptOssForCausalLM",
    "Glm4MoeForCausalLM",
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
    "MiMoV2FlashForCausalLM",  # from 0.5.7, which is the first that serves it
)


def with_default_widths(section: SpeculativeSection, rule: Rule, target: ModelSpec) -> SpeculativeSection:
    """The section as the release completes it; unchanged with another algorithm, or when any width is given."""
    given = (section.num_steps, section.eagle_topk, section.num_draft_tokens)
    if speculative.canonical(section.algorithm) not in _EAGLE or section.custom is not None or any(given):
        return section
    if rule.trees_by_default:
        steps, topk, width = CHAIN if target.architecture in _CHAINS_OF_0_5_6 else TREE
    else:
        steps, topk, width = default_widths(target.architecture)
    return section.model_copy(update={"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": width})
