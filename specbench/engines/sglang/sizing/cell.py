"""Bytes that one KV token and one state slot cost a rank: as the solver charges them, and as they are allocated.

The two differ. Up to 0.5.16 a DFLASH draft is charged by its share of layers, as if its heads were the target's; an
EAGLE draft is charged from 0.5.14, and only when a draft path is given. (A head of the target's own is charged when
the target's config itself has `num_nextn_predict_layers`, which Qwen3-Next and Qwen3.5 have not: seen with 0.5.16 and
0.5.23.) Pipeline stages differ in their layers; the stage with most of a kind is what counts. Sparse latent attention
in fp8 is allocated with its scales, which the solver counts only from 0.5.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ....errors import SpecError
from ....layers import KvLayer, LatentAttention, LatentLayout, Layer, StateLayer, parts
from ....specs import ModelSpec
from .contract import Rule

_Kind = TypeVar("_Kind", KvLayer, StateLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Bytes per token, per rank."""

    target_bytes: int  # allocated
    target_charged_bytes: int  # what the solver takes for the target
    draft_bytes: int  # allocated; 0 without a draft's KV
    draft_charged_bytes: int  # what the solver adds for the draft
    draft_words: str  # how it is charged

    @property
    def charged_bytes(self) -> int:
        return self.target_charged_bytes + self.draft_charged_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Bytes of one state slot, per rank and stage."""

    mine: tuple[StateLayer, ...]  # linear layers on this stage
    tp: int
    conv_itemsize: int
    conv_bytes: int  # all of them
    ssm_bytes: int
    charged_bytes: int  # p, as the solver takes it

    @property
    def layers(self) -> int:
        return len(self.mine)

    @property
    def windows_overlap(self) -> bool:
        """Whether the convolution windows of a chain can share columns in all layers."""
        return all(layer.windows_overlap for layer in self.mine)

    def conv_bytes_overlapping(self, windows: int) -> int:
        """`windows` successive convolution windows that share columns, all layers, bytes."""
        return sum(layer.conv_bytes_overlapping(self.tp, self.conv_itemsize, windows) for layer in self.mine)


def cell(
    rule: Rule,
    family: str,
    target: ModelSpec,
    draft: ModelSpec | None,
    tp: int,
    pp: int,
    itemsize: int,
    *,
    path: bool,
    bare_fp8: bool = False,
) -> Cell:
    """`path`: whether a draft path is given. The draft keeps KV for the target's token count in every version.

    `bare_fp8`: sparse latent attention keeps no scales (kernels that read none). SpecError for a target without full
    attention: it has no KV, and this engine's solver divides by its size.
    """
    layers = _most(
        [[part for part in parts(stage) if isinstance(part, KvLayer)] for stage in stage_layers(target.layers, pp)]
    )
    if not layers:
        raise SpecError(
            f"model: {target.name} has no full-attention layer, so there is no KV pool to size.\n"
            "Check layer_types and full_attention_interval of its config.json."
        )
    kept = LatentLayout(scaled_fp8=not bare_fp8, shares_index=rule.index_shared, pools_index=rule.index_pooled)
    counted = replace(kept, scaled_fp8=kept.scaled_fp8 and rule.latent_scales_charged)
    target_bytes = _bytes(layers, tp, itemsize, kept)
    target_charged = _bytes(layers, tp, itemsize, counted)
    draft_layers = draft.attention_layers if draft is not None else ()
    draft_bytes = _bytes(draft_layers, tp, itemsize, kept)
    charged, words = 0, "no draft KV"
    if draft_layers and family == "dflash":
        if rule.dflash_draft_kv == "geometry":
            charged, words = draft_bytes, "the draft's own geometry"
        else:
            scaled = -(-target_charged * (len(layers) + len(draft_layers)) // len(layers))
            charged = scaled - target_charged
            words = f"the target's bytes × {len(draft_layers)} / {len(layers)} layers"
    elif draft_layers and family == "eagle":
        if rule.eagle_draft_kv == "with_path" and path:
            charged = _by_layers(rule, layers, draft_layers, target_charged, counted)
            words = f"the target's bytes × {len(draft_layers)} / {len(layers)} layers"
        else:
            words = "the draft's KV is outside the budget"
    return Cell(
        target_bytes=target_bytes,
        target_charged_bytes=target_charged,
        draft_bytes=draft_bytes,
        draft_charged_bytes=charged,
        draft_words=words,
    )


def _bytes(layers: Sequence[KvLayer], tp: int, itemsize: int, layout: LatentLayout) -> int:
    """One token of all layers on one rank."""
    return sum(
        layer.bytes_laid_out(layout, itemsize)
        if isinstance(layer, LatentAttention)
        else layer.bytes_per_token(tp, itemsize)
        for layer in layers
    )


def _by_layers(
    rule: Rule, layers: Sequence[KvLayer], draft: Sequence[KvLayer], target_bytes: int, layout: LatentLayout
) -> int:
    """An EAGLE draft by its share of layers. Where layers share an index (0.5.18), the index keys are counted apart."""
    index, draft_index = 0, 0
    if rule.index_shared:
        index = sum(layer.index_bytes(layout) for layer in layers if isinstance(layer, LatentAttention))
        draft_index = sum(layer.index_bytes(layout) for layer in draft if isinstance(layer, LatentAttention))
    if rule.eagle_scale == "add" or index:
        return int((target_bytes - index) * len(draft) / len(layers)) + draft_index
    return int(target_bytes * (1 + len(draft) / len(layers))) - target_bytes


def slot(rule: Rule, target: ModelSpec, tp: int, pp: int, conv_itemsize: int, ssm_itemsize: int) -> Slot:
    """All zero for a model without state."""
    mine = _most(
        [[part for part in parts(stage) if isinstance(part, StateLayer)] for stage in stage_layers(target.layers, pp)]
    )
    conv = sum(layer.conv_bytes(tp, conv_itemsize) for layer in mine)
    ssm = sum(layer.ssm_bytes(tp, ssm_itemsize) for layer in mine)
    whole = sum(
        layer.conv_bytes(tp, conv_itemsize) + layer.ssm_bytes(tp, ssm_itemsize) for layer in target.state_layers
    )
    return Slot(
        mine=tuple(mine),
        tp=tp,
        conv_itemsize=conv_itemsize,
        conv_bytes=conv,
        ssm_bytes=ssm,
        charged_bytes=conv + ssm if rule.largest_stage_only else whole,
    )


def stage_layers(layers: Sequence[Layer], pp: int) -> list[Sequence[Layer]]:
    """Layers of each pipeline stage; what does not divide goes to the last stages (SGLang: get_pp_indices).

    Of more stages than layers the empty ones are left out.
    """
    pp = min(pp, max(1, len(layers)))
    base, extra = divmod(len(layers), pp)
    sizes = [base + (1 if stage >= pp - extra else 0) for stage in range(pp)]
    ends = [sum(sizes[: stage + 1]) for stage in range(pp)]
    return [layers[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _most(stages: list[list[_Kind]]) -> list[_Kind]:
    """The layers of a kind on the stage that has most of them."""
    return max(stages, key=len)
