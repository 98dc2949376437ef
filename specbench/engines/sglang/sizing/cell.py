"""Bytes that one KV token and one state slot cost a rank: as the solver charges them, and as they are allocated.

The two differ. Up to 0.5.16 a DFLASH draft is charged by its share of layers, as if its heads were the target's; an
EAGLE draft is charged so from 0.5.14 on, and only when there is a draft path, given or the engine's own. (From 0.5.20 a
head of the target's own is charged when the target's config itself has `num_nextn_predict_layers`, which Qwen3-Next and
Qwen3.5 have not: seen with 0.5.16 and 0.5.23.) Pipeline stages differ in their layers: what counts is the stage whose
tokens cost most, and the one with most linear layers. Sparse latent attention in fp8 is allocated with its scales,
which the solver counts only from 0.5.18.

Sources: model_executor/pool_configurator.py (DefaultPoolConfigurator), model_runner.py of 0.5.14,
model_runner_components/spec_aux_hidden_state.py from 0.5.16, configs/model_config.py (_config_draft_model).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....errors import SpecError
from ....layers import KvLayer, LatentAttention, LatentLayout, Layer, StateLayer, parts
from ....ranks import even_stages
from ....specs import ModelSpec
from ....speculative.contract import DraftKv
from ....versions import at_least
from .contract import Rule

_OUTSIDE = "the draft's KV is outside the budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Bytes per token, per rank."""

    target_bytes: int  # allocated
    target_charged_bytes: int  # what the solver takes for the target
    draft_bytes: int  # allocated; 0 without a draft's KV
    draft_charged_bytes: int  # what the solver adds for the draft
    draft_words: str  # how it is charged
    window_bytes: int = 0  # of a token in the layers that look back over a window; they are in no figure above
    window_tokens: int = 0  # that these layers look back

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
    conv_column_bytes: int  # one column of a convolution window, all layers that have one
    windows_overlap: bool  # whether the convolution windows of a chain can share columns in all layers
    ssm_bytes: int
    charged_bytes: int  # p, as the solver takes it

    @property
    def layers(self) -> int:
        return len(self.mine)

    def conv_bytes_overlapping(self, windows: int) -> int:
        """`windows` successive convolution windows that share columns, all layers, bytes: a column more for each."""
        return self.conv_bytes + (windows - 1) * self.conv_column_bytes


def cell(
    rule: Rule,
    charge: DraftKv,
    target: ModelSpec,
    draft: ModelSpec | None,
    tp: int,
    pp: int,
    itemsize: int,
    *,
    path: bool,
    bare_fp8: bool = False,
    pool: bool = True,
    draft_itemsize: int | None = None,
    partition: tuple[int, ...] | None = None,
    windows: bool = True,
    window_ratio: float = 1.0,
) -> Cell:
    """`charge`: the engine's way for the algorithm. `path`: whether the draft has a path. `pool`: whether it keeps KV
    of its own; it does so for the target's token count in every version. `draft_itemsize`: None: the target's.

    `windows`: whether layers that look back over a window have a pool of their own, `window_ratio`: of its tokens to
    those of the other. `bare_fp8`: sparse latent attention keeps no scales (kernels that read none). SpecError for a
    target without full attention: it has no KV, and this engine's solver divides by its size.
    """
    stages = stage_layers(target.layers, pp, partition)
    kept = LatentLayout(scaled_fp8=not bare_fp8, shares_index=rule.index_shared, pools_index=rule.index_pooled)
    counted = replace(kept, scaled_fp8=kept.scaled_fp8 and rule.latent_scales_charged)

    def cost(stage: Sequence[KvLayer]) -> float:
        """Of a token: the stage with the largest has the fewest, and all stages take its number."""
        looking_back = [layer for layer in stage if layer.window is not None and windows]
        others = [layer for layer in stage if layer.window is None or not windows]
        return _bytes(others, tp, itemsize, counted) + window_ratio * _bytes(looking_back, tp, itemsize, counted)

    everything = max(_counted(rule, stages, windows=windows), key=cost)
    layers = [layer for layer in everything if layer.window is None or not windows]
    apart = [layer for layer in everything if layer.window is not None and windows]
    if not layers:
        raise SpecError(
            f"model: {target.name} has no full-attention layer, so there is no KV pool to size.\n"
            "Check layer_types and full_attention_interval of its config.json."
        )
    target_bytes = _bytes(layers, tp, itemsize, kept)
    target_charged = _bytes(layers, tp, itemsize, counted)
    draft_layers = draft.attention_layers if draft is not None else ()
    draft_bytes = _bytes(draft_layers, tp, draft_itemsize or itemsize, kept)
    charged, words = 0, _OUTSIDE if draft_layers and pool else "no draft KV"
    if apart and draft_layers and not _charged_beside_windows(rule, charge):
        words = _OUTSIDE
    elif draft_layers and charge == "dflash":
        charged, words = _dflash_charge(rule, target_charged, len(layers), draft_bytes, len(draft_layers))
    elif charge == "eagle" and (number := eagle_layers(rule, target, draft, path=path)):
        charged = _by_layers(rule, layers, number, target_charged, counted)
        words = f"the target's bytes × {number} / {len(layers)} layers"
    return Cell(
        target_bytes=target_bytes,
        target_charged_bytes=target_charged,
        draft_bytes=draft_bytes if pool else 0,
        draft_charged_bytes=charged,
        draft_words=words,
        window_bytes=_bytes(apart, tp, itemsize, kept),
        window_tokens=max((layer.window or 0 for layer in apart), default=0),
    )


def _dflash_charge(rule: Rule, target_bytes: int, layers: int, draft_bytes: int, draft_layers: int) -> tuple[int, str]:
    """Bytes of a token that the solver keeps for the draft's KV, and by what: its own shapes, or the target's bytes in
    proportion to the layers, rounded up."""
    if rule.dflash_draft_kv == "geometry":
        return draft_bytes, "the draft's own geometry"
    scaled = -(-target_bytes * (layers + draft_layers) // layers)
    return scaled - target_bytes, f"the target's bytes × {draft_layers} / {layers} layers"


def _counted(rule: Rule, stages: Sequence[Sequence[Layer]], *, windows: bool) -> list[list[KvLayer]]:
    """Layers with KV of each pipeline stage, as they are counted and allocated.

    Up to 0.5.20 a stage counts the first layer of the next one too, where windows have a pool of their own
    (model_runner.py, adjust_hybrid_swa_layers_for_pp: `range(start_layer, end_layer + 1)`).
    """
    found = [[part for part in parts(stage) if isinstance(part, KvLayer)] for stage in stages]
    split = windows and any(layer.window is not None for stage in found for layer in stage)
    if not split or at_least(rule.version, "0.5.21"):
        return found
    return [[*stage, *after[:1]] for stage, after in zip(found, [*found[1:], []], strict=True)]


def _charged_beside_windows(rule: Rule, charge: DraftKv) -> bool:
    """Whether the solver of sliding-window models counts the draft's KV."""
    return at_least(rule.version, "0.5.18" if charge == "dflash" else "0.5.15")


def _bytes(layers: Sequence[KvLayer], tp: int, itemsize: int, layout: LatentLayout) -> int:
    """One token of all layers on one rank."""
    return sum(
        layer.bytes_laid_out(layout, itemsize)
        if isinstance(layer, LatentAttention)
        else layer.bytes_per_token(tp, itemsize)
        for layer in layers
    )


def eagle_layers(rule: Rule, target: ModelSpec, draft: ModelSpec | None, *, path: bool) -> int:
    """Draft layers that the solver counts (`eagle_draft_num_layers`); 0: none.

    Of a checkpoint that is read as its own draft the engine writes 1 into the outer config, and reads the inner one,
    where up to 0.5.16 nothing stands for a model with a vision tower: all its layers then count.
    """
    if rule.eagle_draft_kv == "outside" or not path:
        return 0
    spec = target if draft is None else draft
    own = spec.family.text(spec.config)
    if own.data.get("num_nextn_predict_layers") is not None or draft is None:
        return own.integer_or("num_nextn_predict_layers", 0)
    nested = spec.config.section_or_none("text_config") is not None
    if draft.is_builtin_draft and (rule.counts_nested_head or not nested):
        return 1
    return own.layers("num_hidden_layers")


def _by_layers(
    rule: Rule,
    layers: Sequence[KvLayer],
    number: int,
    target_bytes: int,
    layout: LatentLayout,
) -> int:
    """An EAGLE draft by its share of layers, `number` of them.

    Where layers can share an index (0.5.18), the index keys are counted apart, and each draft layer has its own: also
    one of a draft that has no index at all.
    """
    index, draft_index = 0, 0
    if rule.index_shared:
        kept = [layer.index_bytes(layout) for layer in layers if isinstance(layer, LatentAttention)]
        index, draft_index = sum(kept), number * max(kept, default=0)
    if rule.eagle_scale == "add" or index:
        return int((target_bytes - index) * number / len(layers)) + draft_index
    return int(target_bytes * (1 + number / len(layers))) - target_bytes


def slot(
    rule: Rule,
    target: ModelSpec,
    tp: int,
    pp: int,
    conv_itemsize: int,
    ssm_itemsize: int,
    *,
    partition: tuple[int, ...] | None = None,
) -> Slot:
    """All zero for a model without state."""
    return _slot(target, tp, pp, conv_itemsize, ssm_itemsize, partition, rule.largest_stage_only)


@functools.lru_cache(maxsize=64)  # layers are many, and changes of a configuration mostly have the same
def _slot(
    target: ModelSpec,
    tp: int,
    pp: int,
    conv_itemsize: int,
    ssm_itemsize: int,
    partition: tuple[int, ...] | None,
    largest_stage_only: bool,
) -> Slot:
    stages = stage_layers(target.layers, pp, partition)
    mine = max(([part for part in parts(stage) if isinstance(part, StateLayer)] for stage in stages), key=len)
    conv = sum(layer.conv_bytes(tp, conv_itemsize) for layer in mine)
    ssm = sum(layer.ssm_bytes(tp, ssm_itemsize) for layer in mine)
    everything = target.state_layers
    whole = sum(layer.conv_bytes(tp, conv_itemsize) + layer.ssm_bytes(tp, ssm_itemsize) for layer in everything)
    share = len(mine) / max(len(everything), 1) if largest_stage_only else 1.0
    return Slot(
        mine=tuple(mine),
        tp=tp,
        conv_itemsize=conv_itemsize,
        conv_bytes=conv,
        conv_column_bytes=sum(
            layer.conv_bytes_overlapping(tp, conv_itemsize, 2) - layer.conv_bytes_overlapping(tp, conv_itemsize, 1)
            for layer in mine
        ),
        windows_overlap=all(layer.windows_overlap for layer in mine),
        ssm_bytes=ssm,
        charged_bytes=int(whole * share),
    )


def stage_layers(layers: Sequence[Layer], pp: int, partition: tuple[int, ...] | None = None) -> list[Sequence[Layer]]:
    """Layers of each pipeline stage; what does not divide goes to the last stages (SGLang: get_pp_indices).

    Of more stages than layers the empty ones are left out. `partition`: layers of each stage, when the user says so.
    """
    sizes = partition or even_stages(len(layers), pp)
    ends = [sum(sizes[: stage + 1]) for stage in range(len(sizes))]
    return [layers[end - size : end] for size, end in zip(sizes, ends, strict=True)]
