"""MiniCPM-SALA: lightning attention and sparse softmax attention, spelled out layer by layer, dense.

Shapes from SGLang 0.5.23, models/minicpm.py and configs/minicpm.py. The softmax layers (minicpm4) keep key and value of
every token; what their sparse selection keeps besides is per request and in no pool. SGLang keeps no prefixes for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import FullAttention, Layer, LightningAttention, split
from ..weights import Part
from . import blocks, kinds
from .contract import Architecture

_KINDS = {
    **dict.fromkeys(("minicpm4", "minicpm", "standard", "attention", "attn"), "softmax"),
    **dict.fromkeys(("lightning", "lightning-attn", "lightning_attn"), "linear"),
}


def layers(config: HfConfig) -> tuple[Layer, ...]:
    """The list is repeated when it is shorter than the layers."""
    kinds, number = config.texts("mixer_types"), config.layers("num_hidden_layers")
    unknown = sorted(set(kinds) - set(_KINDS))
    if unknown or len(kinds) > number:
        raise SpecError(
            f"{config.where}mixer_types: {len(kinds)} entries, unknown kinds {unknown or 'none'}.\n"
            f"Expected at most {number} entries of minicpm4, lightning-attn."
        )
    linear, softmax = _lightning(config), _softmax(config)
    return tuple(linear if _KINDS[kinds[i % len(kinds)]] == "linear" else softmax for i in range(number))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    table = False
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        linear = isinstance(layer, LightningAttention)
        yield from (_linear_tensors if linear else _softmax_tensors)(here, config)
        if not table and config.flag("lightning_use_rope" if linear else "attn_use_rope", True):
            yield blocks.rotary(config, config.head_width())
            table = True
        yield from blocks.mlp(here, config.integer("intermediate_size"))
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not config.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, config.integer("vocab_size"))


def _softmax(config: HfConfig) -> FullAttention:
    return kinds.full_attention(config, config.head_width())


def _lightning(config: HfConfig) -> LightningAttention:
    """SpecError where queries and keys have not as many heads: SGLang's kernels know no groups."""
    heads = config.integer_or("lightning_nh", config.integer("num_attention_heads"))
    keys = config.integer_or("lightning_nkv", config.integer("num_key_value_heads"))
    if heads != keys:
        raise SpecError(
            f"{config.where}lightning_nkv: {keys} heads of keys for {heads} of queries.\n"
            "SGLang serves as many of both only."
        )
    return LightningAttention(heads=heads, head_dim=config.integer_or("lightning_head_dim", config.head_width()))


def _softmax_tensors(sizes: blocks.Sizes, config: HfConfig) -> Iterator[Part]:
    heads, layer = config.integer("num_attention_heads"), _softmax(config)
    yield from blocks.attention(sizes, layer, heads, gated=False, qk_norm=False)
    if config.flag("attn_use_output_gate", False):
        mine = split(heads, sizes.tp, "attention heads") * layer.head_dim
        yield from sizes.at("self_attn").linear("o_gate", mine, inp=sizes.hidden)


def _linear_tensors(sizes: blocks.Sizes, config: HfConfig) -> Iterator[Part]:
    here, layer = sizes.at("self_attn"), _lightning(config)
    mine, whole = split(layer.heads, sizes.tp, "linear heads") * layer.head_dim, layer.heads * layer.head_dim
    yield from here.linear("qkv_proj", mine, mine, mine, inp=sizes.hidden)
    yield from here.linear("o_proj", sizes.hidden, inp=mine, whole_inp=whole)
    if config.flag("use_output_norm", False):
        yield here.at("o_norm").tensor(mine)
    if config.flag("use_output_gate", False):
        yield from here.linear("z_proj", mine, inp=sizes.hidden)
    if config.flag("qk_norm", True):
        yield here.at("q_norm").tensor(layer.head_dim)
        yield here.at("k_norm").tensor(layer.head_dim)


ARCHITECTURE = Architecture(family="minicpm_sala", layers=layers, tensors=tensors)
