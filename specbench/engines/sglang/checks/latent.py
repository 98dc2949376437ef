"""Drafting with models of latent and sparse attention: pages that are fixed, heads that are not there.

In: a configuration and its target. Out: refusals. The non-obvious thing: NGRAM drafts a tree by default, and no tree
works over the pages that sparse attention fixes. Sources: arg_groups/speculative_hook.py (server_args.py up to 0.5.12),
models/deepseek_common/deepseek_weight_loader.py, models/bailing_moe_linear.py and bailing_moe_v3.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ....versions import at_least
from ..families import fixed_page_size, is_sparse_latent
from ..resolve import server_args
from ..sizing.contract import Rule
from .refusal import Refusal

_BREADTH = 10  # --speculative-ngram-max-bfs-breadth

#: Architectures whose loader looks for the head in the checkpoint and asserts that there is one.
_LOADS_HEAD = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
    },
)


def refusals(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    name = speculative.canonical(config.speculative.algorithm)
    page = fixed_page_size(target, rule)
    if page is not None and name == "NGRAM":
        yield from _branches(config, page)
    elif page is not None and name in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") and is_sparse_latent(target):
        yield from _tree(config, version)
    if name in ("EAGLE", "NEXTN"):
        yield from _own_head(config, target)
    yield from _rotary(version, target)


def _branches(config: RunConfig, page: int) -> Iterator[Refusal]:
    breadth = server_args(config).get("speculative_ngram_max_bfs_breadth", _BREADTH)
    if isinstance(breadth, int) and breadth > 1:
        yield Refusal(
            key="engine.args.speculative-ngram-max-bfs-breadth",
            value=breadth,
            reason=f"a tree does not work over pages of {page} tokens, which sparse attention fixes",
            allowed="1",
            engine_error=(
                f"ValueError: speculative_eagle_topk({breadth}) > 1 with page_size({page}) > 1 is unstable and "
                "produces incorrect results for paged attention backends. This combination is only supported for the "
                "'flashinfer' backend."
            ),
        )


def _tree(config: RunConfig, version: str) -> Iterator[Refusal]:
    topk = config.speculative.eagle_topk or 1
    if topk > 1:
        yield Refusal(
            key="speculative.eagle_topk",
            value=topk,
            reason="a tree does not work over the pages that sparse attention fixes",
            allowed="1",
            engine_error=(
                "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', "
                "'triton'); got attention_backend='dsa'. Use page_size == 1 or one of those backends."
                if at_least(version, "0.5.13")
                else "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect "
                "results for paged attention backends. This combination is only supported for the 'flashinfer' backend."
            ),
        )


def _own_head(config: RunConfig, target: ModelSpec) -> Iterator[Refusal]:
    """A target that is to be its own draft (always when no other is named) and was published without a head."""
    if target.architecture not in _LOADS_HEAD or config.speculative.draft_model_path not in (None, config.model):
        return
    if target.builtin_draft() is None:
        yield Refusal(
            key="speculative.draft_model_path",
            value=config.speculative.draft_model_path,
            reason=f"{target.name} has no head of its own that could draft",
            allowed="a draft's name or folder",
            engine_error="AssertionError: Only 1 nextn layer is supported",
        )


def _rotary(version: str, target: ModelSpec) -> Iterator[Refusal]:
    """The transformers of 0.5.11 and 0.5.12 read GLM's `head_dim` as the rotary width: GLM-5.3 then does not load."""
    if target.architecture != "GlmMoeDsaForCausalLM" or not at_least(version, "0.5.11") or at_least(version, "0.5.13"):
        return
    width = target.config.data.get("head_dim")
    if width not in (None, target.config.data.get("qk_rope_head_dim")):
        yield Refusal(
            key="engine.version",
            value=version,
            reason=f"it takes the head_dim of {target.name}, {width}, for the width of its rotary keys",
            allowed="0.5.13 or later",
        )
