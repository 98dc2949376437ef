"""What a rank loads of a model: by the headers of its safetensors files where there are some, else by its config.json.

In: a `ModelSpec` and how it is split. Out: tensors in load order, and their bytes as PyTorch's allocator reserves them.
Each is computed once for a spec.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import quantization
from ..checkpoint.loaded import Loaded, loaded
from ..errors import SpecError
from ..hf import HfConfig
from ..layers import UnevenSplitError
from ..ranks import HEAD_ON_EVERY_STAGE, embedding_bytes, of_attention_ranks, of_stage
from ..units import Interval
from ..weights import Part, reserved

if TYPE_CHECKING:
    from .spec import ModelSpec


@functools.lru_cache(maxsize=256)
def weights_bytes(spec: ModelSpec, tp: int, attention_tp: int, stages: tuple[int, ...], fp4: bool) -> Interval | None:
    """See `ModelSpec.weights_bytes`; `stages`: of several pipeline stages, else empty."""
    mine = _of_rank(spec, tp)
    if mine is None:
        return None
    doubt = 0
    if attention_tp != tp:
        attention = tuple(_of_rank(spec, attention_tp) or ())
        mine = of_attention_ranks(mine, attention)
        if mine is None:
            return None
        # some versions split the embedding over the ranks of one attention, others keep it whole
        doubt = embedding_bytes(_of_rank(spec, 1) or ()) - embedding_bytes(attention)
    if not stages:
        size = reserved(mine, fp4=fp4)
        return Interval(size.low, size.point, size.high + doubt)
    everywhere = spec.architecture in HEAD_ON_EVERY_STAGE
    mine = tuple(mine)
    parts_of = (of_stage(mine, stages, stage, head_everywhere=everywhere) for stage in range(len(stages)))
    sizes = [reserved(one, fp4=fp4) for one in parts_of]
    heaviest = max(sizes, key=lambda size: size.point)
    return Interval(heaviest.low, heaviest.point, heaviest.high + doubt)


def _of_rank(spec: ModelSpec, tp: int) -> Iterable[Part] | None:
    """Under tensor parallelism alone: by the files where there are some, else by the config."""
    found = _stored(spec, tp)
    if found is not None and found.recognised:
        return found.parts
    return None if spec.why_no_weights else tensors(spec, tp)


@functools.lru_cache(maxsize=16)
def tensors(spec: ModelSpec, tp: int) -> tuple[Part, ...]:
    """By the config. Of a quantization that is not known, as if there were none."""
    config = spec.config
    if spec.why_no_weights:
        config = HfConfig(where=config.where, data=quantization.without(config.data))
    return tuple(_by_config(spec, config, tp))


def _by_config(spec: ModelSpec, config: HfConfig, tp: int) -> Iterable[Part]:
    if spec.is_builtin_draft and spec.family.draft_tensors is not None:
        return spec.family.draft_tensors(config, tp)
    return spec.family.tensors(config, tp)


@functools.lru_cache(maxsize=256)
def _stored(spec: ModelSpec, tp: int) -> Loaded | None:
    """By the files. None: there are none."""
    if spec.checkpoint is None:
        return None
    return loaded(
        spec.checkpoint,
        tensors(spec, 1),
        tensors(spec, tp),
        layers=spec.family.text(spec.config).layers("num_hidden_layers"),
        head=spec.is_builtin_draft,
    )


def weights_words(spec: ModelSpec, tp: int) -> str:
    """Where the bytes come from, and how far they can be relied on."""
    shapes = "tensor shapes of config.json × type, split over ranks, as PyTorch's allocator rounds them"
    found = _stored(spec, tp)
    if found is None:
        return shapes
    if not found.recognised:
        return f"{shapes}; the names in the safetensors files are not those of the family, so their sizes are not used"
    assert spec.checkpoint is not None
    words = [
        f"sizes in the headers of {spec.checkpoint.files} safetensors files (exact: {found.stored_bytes:,} B stored)",
        "split over ranks and repacked as config.json's shapes are, as PyTorch's allocator rounds them",
    ]
    if found.unknown:
        words.append(
            f"{len(found.unknown)} tensors of names that the family does not have ({found.unknown_bytes:,} B, "
            f"{found.unknown[0]!r:.60}) are counted whole on every rank"
        )
    return ", ".join(words)


@functools.lru_cache(maxsize=256)
def why_not_split(spec: ModelSpec, tp: int, attention_tp: int) -> UnevenSplitError | None:
    """What does not divide over the ranks. `attention_tp`: ranks that share one attention."""
    try:
        for layer in spec.layers:
            layer.split_over(attention_tp)
        if attention_tp == tp:
            for _ in _by_config(spec, spec.config, tp) if spec.why_no_weights else tensors(spec, tp):
                pass
    except UnevenSplitError as error:
        return error
    except SpecError:  # the config tells too little of its tensors: the weights will say so
        return None
    return None
