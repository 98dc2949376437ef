"""LFM2 and LFM2-MoE: short convolutions with an attention layer every so often. No recurrent state.

Shapes from SGLang 0.5.16, models/lfm2.py and lfm2_moe.py; served since 0.5.9 (a public log of 0.5.6 is from a pull
request). A slot is the last columns of each convolution, so slots are many and cheap: the ratio gives them as much
memory as any other model's. The head is allocated beside the embedding even where the two are one: the loader copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention, Layer, ShortConvolution, split
from ..weights import Part, Tensor
from . import blocks, kinds
from .contract import Architecture

_MULTIPLE_OF = 256  # transformers' default of block_multiple_of


def layers(config: HfConfig) -> tuple[Layer, ...]:
    convolution = ShortConvolution(channels=config.integer("hidden_size"), kernel=config.integer("conv_L_cache"))
    known: dict[str, Layer] = {"conv": convolution, "short_conv": convolution, "full_attention": attention(config)}
    if config.data.get("layer_types") is None and config.data.get("full_attn_idxs") is not None:
        full = config.integers("full_attn_idxs")  # as the first releases were published
        return tuple(
            known["full_attention"] if number in full else convolution
            for number in range(config.layers("num_hidden_layers"))
        )
    return kinds.by_type(config, known)


def attention(config: HfConfig) -> FullAttention:
    return kinds.full_attention(config, config.head_width())


def intermediate(config: HfConfig) -> int:
    """Rows of the dense MLP: two thirds of what the config says, rounded up, when it asks for that adjustment.

    `block_ff_dim` is the older name of the width, and wins (transformers, models/lfm2/configuration_lfm2.py).
    """
    width = config.integer_or("block_ff_dim", 0) or config.integer("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    scaled = int(config.number_or("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    step = config.integer_or("block_multiple_of", _MULTIPLE_OF)
    return -(-scaled // step) * step


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    yield from _tensors(config, tp, experts=False)


def moe_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    yield from _tensors(config, tp, experts=True)


def _tensors(config: HfConfig, tp: int, *, experts: bool) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    first_attention = True
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        yield from blocks.norms(here, 2)
        if isinstance(layer, FullAttention):
            if first_attention:
                yield blocks.rotary(config, layer.head_dim)
                first_attention = False
            yield from blocks.attention(here, layer, config.integer("num_attention_heads"), gated=False, qk_norm=True)
        elif isinstance(layer, ShortConvolution):
            yield from blocks.short_convolution(here, layer, bias=config.flag("conv_bias", False))
        if not experts:
            yield from _mlp(here, intermediate(config))
        elif number < config.integer_or("num_dense_layers", 0):
            yield from blocks.mlp(here, config.integer("intermediate_size"), "feed_forward")
        else:
            yield from _experts(here.at("feed_forward"), config)
    yield from blocks.norms(sizes, 1)
    yield from blocks.head(sizes, config.integer("vocab_size"))


def _mlp(sizes: blocks.Sizes, rows: int) -> Iterator[Part]:
    """Gate and up projection are two tensors here."""
    here, mine = sizes.at("feed_forward"), split(rows, sizes.tp, "MLP rows")
    yield from here.linear("w1", mine, inp=sizes.hidden)
    yield from here.linear("w3", mine, inp=sizes.hidden)
    yield from here.linear("w2", sizes.hidden, inp=mine, whole_inp=rows)


def _experts(sizes: blocks.Sizes, config: HfConfig) -> Iterator[Part]:
    number = config.integer("num_experts")
    yield sizes.at("gate").tensor(number, sizes.hidden)
    if config.flag("use_expert_bias", True):
        yield Tensor(number * 4, parameters=number, module=sizes.at("expert_bias").module)
    yield from sizes.experts(number, config.integer("moe_intermediate_size"))


ARCHITECTURE = Architecture(family="lfm2", layers=layers, tensors=tensors)
MOE = Architecture(family="lfm2_moe", layers=layers, tensors=moe_tensors)
