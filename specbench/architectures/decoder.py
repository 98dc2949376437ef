"""Plain full-attention decoders (Llama, Qwen2, Qwen3, dense) and the EAGLE3 drafts built from one such layer.

An EAGLE3 draft has no embedding of its own until SGLang shares the target's; its first projection reads the embedding
and the hidden state side by side, and `fc` joins three of the target's hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention, Layer
from ..weights import Doubt, Part, Tensor
from . import blocks
from .contract import Architecture, text_section

_EAGLE3_FEATURES = 3  # hidden states of a low, a middle and a high layer of the target


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    return (_layer(decoder),) * decoder.layers("num_hidden_layers")


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    yield from _stack(decoder, sizes)
    if not decoder.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, decoder.integer("vocab_size"))


def eagle3_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    target_hidden = decoder.integer_or("target_hidden_size", sizes.hidden)
    yield sizes.at("fc").tensor(_EAGLE3_FEATURES * target_hidden, sizes.hidden)
    yield from _stack(decoder, sizes, input_size=2 * sizes.hidden)
    yield from blocks.head(sizes, decoder.integer_or("draft_vocab_size", decoder.integer("vocab_size")))
    # made as a layer of Llama first, then anew: the former stay until Python collects them, which up to 0.5.18 nothing
    # makes it do (2.14 GiB were taken of a draft of 1.83, less a rotary table that was the target's)
    replaced = sum(part.bytes for part in _stack(decoder, sizes) if isinstance(part, Tensor) and _made_twice(part))
    yield Doubt(replaced, module=sizes.at("layers", 0).module)


def _made_twice(part: Tensor) -> bool:
    return "mlp" in part.module or "qkv_proj" in part.module


def _stack(decoder: HfConfig, sizes: blocks.Sizes, input_size: int | None = None) -> Iterator[Part]:
    layer = _layer(decoder)
    qk_norm = decoder.text_or("model_type", "") == "qwen3"
    for number in range(decoder.layers("num_hidden_layers")):
        here = sizes.at("layers", number)
        heads = decoder.integer("num_attention_heads")
        yield from blocks.attention(here, layer, heads, gated=False, qk_norm=qk_norm, input_size=input_size)
        if number == 0:
            yield blocks.rotary(decoder, layer.head_dim)
        yield from blocks.mlp(here, decoder.integer("intermediate_size"))
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)


def _layer(decoder: HfConfig) -> FullAttention:
    heads = decoder.integer("num_attention_heads")
    head_dim = decoder.head_width()
    return FullAttention(
        kv_heads=decoder.integer_or("num_key_value_heads", heads), head_dim=head_dim, v_head_dim=head_dim
    )


ARCHITECTURE = Architecture(family="decoder", text=text_section, layers=layers, tensors=tensors)
EAGLE3 = Architecture(family="eagle3", text=text_section, layers=layers, tensors=eagle3_tensors)
