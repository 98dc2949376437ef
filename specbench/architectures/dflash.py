"""DFlash drafts: a few decoder layers without embedding or head, fed with hidden states of some target layers.

DFlash2 adds a candidate selector and convolutions, whose ranks its config tells and whose tensors are not modelled.
Shapes from SGLang 0.5.16 and 0.5.23, models/dflash.py. Sliding-window layers keep as many tokens as full ones: SGLang
gives the draft's pool the target's token count whatever the window.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention, Layer
from ..weights import Part
from . import blocks, kinds
from .contract import Architecture


def layers(config: HfConfig) -> tuple[Layer, ...]:
    layer = kinds.full_attention(config, config.head_width())
    return (layer,) * config.layers("num_hidden_layers")


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    heads = config.integer("num_attention_heads")
    for number, layer in enumerate(layers(config)):
        assert isinstance(layer, FullAttention)
        here = sizes.at("layers", number)
        yield from blocks.norms(here, 1)
        yield from blocks.attention(here, layer, heads, gated=False, qk_norm=True)
        if number == 0:
            yield blocks.rotary(config, layer.head_dim)
        yield from blocks.norms(here, 1)
        yield from blocks.mlp(here, config.integer("intermediate_size"))
    yield from blocks.norms(sizes, 2)
    yield sizes.at("fc").tensor(len(target_layers(config)), sizes.hidden, sizes.hidden)  # replicated


def target_layers(config: HfConfig) -> tuple[int, ...]:
    """The target layers whose hidden states feed the draft."""
    return config.section("dflash_config").integers("target_layer_ids")


def block_size(config: HfConfig) -> int | None:
    """Tokens of a block, the anchor included; None when the config does not say (SGLang then takes 16)."""
    section = config.section_or_none("dflash_config")
    inner = section.integer_or("block_size", 0) if section else 0
    return inner or config.integer_or("block_size", 0) or None


ARCHITECTURE = Architecture(family="dflash", layers=layers, tensors=tensors, block_size=block_size)
SELECTOR = Architecture(
    family="dflash2",
    layers=layers,
    tensors=tensors,
    tensors_unknown="the candidate selector and the convolutions of a DFlash2 draft are not modelled",
    block_size=block_size,
)
