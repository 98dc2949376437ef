"""Kimi-Linear: Kimi Delta Attention with a latent-attention layer every so often, without positions, MoE.

Shapes from SGLang 0.5.12 and 0.5.23, models/kimi_linear.py. The lists of layers count from one. The rotary part of key
and query is there, without a rotation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import KimiDelta, LatentAttention, Layer
from ..weights import Part, Tensor
from . import blocks, kda, latent
from .contract import Architecture, text_section

_FLOAT = 4


def delta(decoder: HfConfig) -> KimiDelta:
    linear = decoder.section("linear_attn_config")
    return KimiDelta(
        heads=linear.integer("num_heads"),
        head_dim=linear.integer("head_dim"),
        kernel=linear.integer("short_conv_kernel_size"),
    )


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    number, linear = decoder.layers("num_hidden_layers"), decoder.section("linear_attn_config")
    listed = set(linear.integers("kda_layers"))
    outside = sorted(listed - set(range(1, number + 1)))
    if outside:
        raise SpecError(
            f"{linear.where}kda_layers: {outside[:3]} of {number} layers.\nExpected numbers from 1 to {number}."
        )
    recurrent, full = delta(decoder), latent.layer(decoder)
    return tuple(recurrent if i + 1 in listed else full for i in range(number))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    full: list[int] = []
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, KimiDelta):
            yield from kda.tensors(here, layer, "low")
        elif isinstance(layer, LatentAttention):
            yield from latent.tensors(here, decoder, layer)
            full.append(number)
        yield from _feed_forward(here, decoder, number)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not decoder.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, decoder.integer("vocab_size"))
    yield from latent.copies(sizes, decoder, full)


def is_sparse(decoder: HfConfig, number: int) -> bool:
    """Whether a layer has experts."""
    first, every = decoder.integer_or("first_k_dense_replace", 0), decoder.integer_or("moe_layer_freq", 1)
    return decoder.data.get("num_experts") is not None and number >= first and number % every == 0


def _feed_forward(sizes: blocks.Sizes, decoder: HfConfig, number: int) -> Iterator[Part]:
    """An MLP, or experts: router and correction, routed experts, the shared ones as one MLP."""
    if not is_sparse(decoder, number):
        yield from blocks.mlp(sizes, decoder.integer("intermediate_size"))
        return
    here, width, count = sizes.at("mlp"), decoder.integer("moe_intermediate_size"), decoder.integer("num_experts")
    yield here.at("gate").tensor(count, sizes.hidden)
    yield Tensor(count * sizes.itemsize, parameters=count, module=here.at("gate").module)
    yield from here.experts(count, width)
    shared = decoder.integer_or("num_shared_experts", 0)
    if shared:
        yield from blocks.mlp(here, shared * width, "shared_experts")


ARCHITECTURE = Architecture(family="kimi_linear", text=text_section, layers=layers, tensors=tensors)
