"""Tensors of the building blocks, per rank, in the order in which SGLang creates them.

In: dimensions. Out: `weights.Part`s. Shapes follow SGLang's parallel layers: column- and row-parallel projections are
split over the ranks, norms and routers are replicated, vocabularies are padded to a multiple of 64 and split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers import FullAttention, GatedDeltaNet, split
from ..weights import Part, RotaryTable, Tensor
from .hf import HfConfig

_VOCABULARY_ROUND = 64  # DEFAULT_VOCAB_PADDING_SIZE of SGLang's vocab_parallel_embedding.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the blocks of a decoder share."""

    hidden: int
    itemsize: int  # bytes of one weight
    tp: int

    def tensor(self, *shape: int) -> Tensor:
        elements = 1
        for size in shape:
            elements *= size
        return Tensor(elements * self.itemsize)


def vocabulary(sizes: Sizes, words: int) -> Tensor:
    """An embedding or a head over the vocabulary, split over the ranks."""
    padded = -(-words // _VOCABULARY_ROUND) * _VOCABULARY_ROUND
    return sizes.tensor(-(-padded // sizes.tp), sizes.hidden)


def attention(
    sizes: Sizes, layer: FullAttention, heads: int, *, gated: bool, qk_norm: bool, input_size: int | None = None
) -> Iterator[Part]:
    """q, k, v in one projection (a gated attention projects the gate beside q), and the output projection."""
    mine = split(heads, sizes.tp, "attention heads")
    query = mine * layer.head_dim * (2 if gated else 1)
    key_value = layer.kv_heads_per_rank(sizes.tp) * (layer.head_dim + layer.v_head_dim)
    yield sizes.tensor(query + key_value, input_size or sizes.hidden)
    yield sizes.tensor(mine * layer.v_head_dim, sizes.hidden)
    if qk_norm:
        yield sizes.tensor(layer.head_dim)
        yield sizes.tensor(layer.head_dim)


def linear_attention(sizes: Sizes, layer: GatedDeltaNet) -> Iterator[Part]:
    """Convolution, the two input projections, the decay parameters (float32 A_log), norm, output projection."""
    values = split(layer.v_heads, sizes.tp, "linear value heads")
    channels = layer.conv_channels(sizes.tp)
    yield sizes.tensor(channels, layer.kernel)
    yield sizes.tensor(channels + values * layer.v_dim, sizes.hidden)
    yield sizes.tensor(2 * values, sizes.hidden)
    yield sizes.tensor(values)
    yield Tensor(values * 4)
    yield sizes.tensor(layer.v_dim)
    yield sizes.tensor(values * layer.v_dim, sizes.hidden)


def mlp(sizes: Sizes, intermediate: int) -> Iterator[Part]:
    """Gate and up projection in one, and the down projection."""
    mine = split(intermediate, sizes.tp, "MLP rows")
    yield sizes.tensor(2 * mine, sizes.hidden)
    yield sizes.tensor(mine, sizes.hidden)


def experts(sizes: Sizes, config: HfConfig) -> Iterator[Part]:
    """Routed experts (each split over the ranks), router, and the shared expert with its gate."""
    number = config.integer("num_experts")
    width = split(config.integer("moe_intermediate_size"), sizes.tp, "expert rows")
    yield sizes.tensor(number, sizes.hidden)
    yield sizes.tensor(number, 2 * width, sizes.hidden)
    yield sizes.tensor(number, width, sizes.hidden)
    shared = config.integer_or("shared_expert_intermediate_size", 0)
    if shared:
        yield from mlp(sizes, shared)
        yield sizes.tensor(sizes.hidden)


def norms(sizes: Sizes, count: int) -> Iterator[Part]:
    for _ in range(count):
        yield sizes.tensor(sizes.hidden)


def rotary(config: HfConfig, head_dim: int) -> RotaryTable:
    """The table covers the model's own context, whatever the server's --context-length."""
    rope = config.section_or_none("rope_parameters")
    share = config.number_or("partial_rotary_factor", rope.number_or("partial_rotary_factor", 1.0) if rope else 1.0)
    return RotaryTable(config.integer("max_position_embeddings"), int(head_dim * share))


def vision_tower(vision: HfConfig, itemsize: int, tp: int) -> Iterator[Part]:
    """The image encoder of Qwen3-VL and its kin: patches, blocks, merger. Projections are split, norms replicated."""
    width, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    sizes = Sizes(hidden=width, itemsize=itemsize, tp=tp)
    patch = vision.integer("in_channels") * vision.integer("temporal_patch_size") * vision.integer("patch_size") ** 2
    yield sizes.tensor(width, patch)
    yield sizes.tensor(width)
    yield sizes.tensor(vision.integer("num_position_embeddings"), width)
    mine, inner_mine = -(-width // tp), -(-inner // tp)  # SGLang pads what does not divide
    for _ in range(vision.layers("depth")):
        yield from norms(sizes, 4)
        yield sizes.tensor(3 * mine, width)
        yield sizes.tensor(3 * mine)
        yield sizes.tensor(mine, width)
        yield sizes.tensor(width)
        yield sizes.tensor(inner_mine, width)
        yield sizes.tensor(inner_mine)
        yield sizes.tensor(inner_mine, width)
        yield sizes.tensor(width)
    merged = width * vision.integer("spatial_merge_size") ** 2
    merged_mine = -(-merged // tp)
    yield from norms(sizes, 2)
    yield sizes.tensor(merged_mine, merged)
    yield sizes.tensor(merged_mine)
    yield sizes.tensor(merged_mine, vision.integer("out_hidden_size"))
    yield sizes.tensor(vision.integer("out_hidden_size"))
