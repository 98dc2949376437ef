"""Granite-4.0-H: Mamba2 with an attention layer every so often, each with a shared MLP, experts, or both.

Shapes from SGLang 0.5.16, models/granitemoehybrid.py and granitemoe.py; served since 0.5.9.
Attention has no positions as a rule, and its heads divide the hidden size. The state is float32 or what a flag says:
this family's configuration reads no type of its own (its mamba2_cache_params passes none).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention, Layer, Mamba2
from ..weights import Part, RotaryTable
from . import blocks, kinds
from .contract import Architecture


def layers(config: HfConfig) -> tuple[Layer, ...]:
    return kinds.by_type(config, {"mamba": mamba2(config), "attention": attention(config)})


def attention(config: HfConfig) -> FullAttention:
    return kinds.full_attention(config, config.share("hidden_size", "num_attention_heads"))


def mamba2(config: HfConfig) -> Mamba2:
    return Mamba2(
        heads=config.integer("mamba_n_heads"),
        head_dim=config.integer("mamba_d_head"),
        state_size=config.integer("mamba_d_state"),
        groups=config.integer_or("mamba_n_groups", 1),
        kernel=config.integer("mamba_d_conv"),
    )


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    table = _rotary(config)
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, Mamba2):
            bias, conv_bias = config.flag("mamba_proj_bias", False), config.flag("mamba_conv_bias", True)
            yield from blocks.mamba2(here, layer, "mamba", bias=bias, conv_bias=conv_bias)
        elif isinstance(layer, FullAttention):
            heads = config.integer("num_attention_heads")
            yield from blocks.attention(here, layer, heads, gated=False, qk_norm=False)
            if table is not None:
                yield table
                table = None  # the other layers share it
        yield from _feed_forward(here, config)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not config.flag("tie_word_embeddings", True):
        yield from blocks.head(sizes, config.integer("vocab_size"))


def _rotary(config: HfConfig) -> RotaryTable | None:
    positions = config.text_or("position_embedding_type", "nope")
    return blocks.rotary(config, attention(config).head_dim) if positions == "rope" else None


def _feed_forward(sizes: blocks.Sizes, config: HfConfig) -> Iterator[Part]:
    number = config.integer_or("num_local_experts", 0)
    if number:
        here = sizes.at("block_sparse_moe")
        yield here.at("gate").tensor(number, sizes.hidden)
        yield from here.experts(number, config.integer("intermediate_size"))
    shared = config.integer_or("shared_intermediate_size", 0)
    if shared:
        yield from blocks.mlp(sizes, shared, "shared_mlp")


ARCHITECTURE = Architecture(family="granite_hybrid", layers=layers, tensors=tensors, reads_state_dtype=False)
