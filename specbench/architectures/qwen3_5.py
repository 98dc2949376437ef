"""Qwen3.5, Qwen3.6 and Qwen3.8: Gated DeltaNet with a full-attention layer every so often, dense or MoE, with vision.

Shapes from SGLang 0.5.16, models/qwen3_5.py and qwen3_5_mtp.py; the built-in MTP head is one full-attention layer that
loads its own copies of embedding and head and gives them back only after the pools stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..hf import HfConfig
from ..layers import FullAttention, GatedDeltaNet, Layer
from ..weights import Part, RotaryTable
from . import blocks, kinds
from .contract import Architecture, text_section


def full_attention(decoder: HfConfig) -> FullAttention:
    return kinds.full_attention(decoder, decoder.integer("head_dim"))


def gated_delta_net(decoder: HfConfig) -> GatedDeltaNet:
    return GatedDeltaNet(
        v_heads=decoder.integer("linear_num_value_heads"),
        k_heads=decoder.integer("linear_num_key_heads"),
        v_dim=decoder.integer("linear_value_head_dim"),
        k_dim=decoder.integer("linear_key_head_dim"),
        kernel=decoder.integer("linear_conv_kernel_dim"),
    )


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    full, linear = full_attention(decoder), gated_delta_net(decoder)
    if decoder.data.get("layer_types") is None:
        return kinds.by_interval(decoder, linear, full)
    return kinds.by_type(decoder, {"full_attention": full, "linear_attention": linear})


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    vision = config.section_or_none("vision_config")
    if vision is not None:
        yield from blocks.vision_tower(vision, sizes.itemsize, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    table: RotaryTable | None = _rotary(decoder)
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, FullAttention):
            if table is not None:
                yield table
                table = None  # the other layers share it
            yield from _attention(here, layer, decoder)
        elif isinstance(layer, GatedDeltaNet):
            yield from blocks.linear_attention(here, layer)
        yield from _feed_forward(here, decoder)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not tied(config):
        yield from blocks.head(sizes, decoder.integer("vocab_size"))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    return (full_attention(decoder),) * decoder.layers_or("mtp_num_hidden_layers", 0)


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    """The head's rotary table is the target's: SGLang keeps one per geometry in a process."""
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    sizes = replace(sizes, module="mtp", recipe=sizes.recipe.builtin_draft)
    yield sizes.at("fc").tensor(2 * sizes.hidden, sizes.hidden)
    yield from blocks.norms(sizes, 3)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    for number, layer in enumerate(draft_layers(config)):
        assert isinstance(layer, FullAttention)
        here = sizes.at("layers", number)
        yield from _attention(here, layer, decoder)
        yield from _feed_forward(here, decoder)
        yield from blocks.norms(here, 2)
    yield from blocks.head(sizes, decoder.integer("vocab_size"))


def tied(config: HfConfig) -> bool:
    """Whether head and embedding are one tensor: the section with the decoder's numbers decides."""
    return text_section(config).flag("tie_word_embeddings", config.flag("tie_word_embeddings", False))


def _rotary(decoder: HfConfig) -> RotaryTable:
    return blocks.rotary(decoder, decoder.integer("head_dim"))


def _attention(sizes: blocks.Sizes, layer: FullAttention, decoder: HfConfig) -> Iterator[Part]:
    heads = decoder.integer("num_attention_heads")
    yield from blocks.attention(sizes, layer, heads, gated=decoder.flag("attn_output_gate", True), qk_norm=True)


def _feed_forward(sizes: blocks.Sizes, decoder: HfConfig) -> Iterator[Part]:
    if decoder.data.get("num_experts"):
        yield from blocks.experts(sizes, decoder)
    else:
        yield from blocks.mlp(sizes, decoder.integer("intermediate_size"))


ARCHITECTURE = Architecture(
    family="qwen3_5",
    text=text_section,
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
)
