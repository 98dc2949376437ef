"""Falcon-H1: every decoder layer has attention and Mamba2 side by side, and an MLP.

Shapes from SGLang 0.5.16, models/falcon_h1.py; served since 0.5.6 and earlier. One group of the state's B and C, which
is copied to every rank. SGLang turns the output projection into float32 once it is built, and with it the embedding
where the two are one. Each layer keeps the scales of its input projection as a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import FullAttention, Layer, Mamba2, Together
from ..weights import Part, Repacked, Tensor
from . import blocks
from .contract import Architecture

_EXPAND = 2


def layers(config: HfConfig) -> tuple[Layer, ...]:
    both = Together(parts=(attention(config), mamba2(config)))
    return (both,) * config.layers("num_hidden_layers")


def attention(config: HfConfig) -> FullAttention:
    heads = config.integer("num_attention_heads")
    head_dim = config.head_width()
    return FullAttention(
        kv_heads=config.integer_or("num_key_value_heads", heads), head_dim=head_dim, v_head_dim=head_dim
    )


def mamba2(config: HfConfig) -> Mamba2:
    heads = config.integer("mamba_n_heads")
    expanded = config.integer_or("mamba_expand", _EXPAND) * config.integer("hidden_size")
    inner = config.integer_or("mamba_d_ssm", expanded)
    head_dim = inner // heads if config.data.get("mamba_d_head") == "auto" else config.integer("mamba_d_head")
    if heads * head_dim != inner:
        raise SpecError(
            f"{config.where}mamba_d_ssm: {inner:,} is not {heads} heads of {head_dim}.\n"
            "Compare with the published config.json."
        )
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state_size=config.integer("mamba_d_state"),
        groups=config.integer_or("mamba_n_groups", 1),
        kernel=config.integer("mamba_d_conv"),
    )


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    words, tied = config.integer("vocab_size"), config.flag("tie_word_embeddings", False)
    embedding = blocks.vocabulary(sizes, words)
    yield _in_float32(embedding) if tied else embedding
    for number in range(config.layers("num_hidden_layers")):
        yield from _layer(sizes.at("layers", number), config, first=number == 0)
    yield from blocks.norms(sizes, 1)
    if not tied:
        yield from (_in_float32(part) if isinstance(part, Tensor) else part for part in blocks.head(sizes, words))


def _layer(sizes: blocks.Sizes, config: HfConfig, *, first: bool) -> Iterator[Part]:
    layer, mamba = attention(config), mamba2(config)
    if first:
        yield blocks.rotary(config, layer.head_dim)
    yield from blocks.attention(sizes, layer, config.integer("num_attention_heads"), gated=False, qk_norm=False)
    yield from blocks.mamba2(
        sizes.unquantized(),  # SGLang gives the mixer no quantization
        mamba,
        "mamba",
        bias=config.flag("mamba_proj_bias", False),
        conv_bias=config.flag("mamba_conv_bias", True),
        norm=config.flag("mamba_rms_norm", False),
    )
    yield from blocks.mlp(sizes, config.integer("intermediate_size"), "feed_forward")
    yield from blocks.norms(sizes, 2)
    for name in ("q_norm", "k_norm"):
        yield sizes.at(name).tensor(layer.head_dim)
    heads = mamba.heads // sizes.tp
    yield Tensor((heads * mamba.head_dim + mamba.conv_channels(sizes.tp) + heads) * sizes.itemsize)  # the scales


def _in_float32(part: Tensor) -> Repacked:
    return Repacked(before=part.bytes, bytes=part.parameters * 4, parameters=part.parameters, module=part.module)


ARCHITECTURE = Architecture(family="falcon_h1", layers=layers, tensors=tensors)
