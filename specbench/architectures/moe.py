"""Full-attention decoders with routed experts: Qwen3 MoE and Mixtral. They keep KV and no state.

Shapes from SGLang 0.5.16, models/qwen3_moe.py (Qwen3MoeSparseMoeBlock: no shared expert; dense layers are listed) and
models/mixtral.py (MixtralMoE: every layer; the head is never quantized).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention
from ..weights import Part
from . import blocks, decoder
from .contract import Architecture, text_section


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    numbers = text_section(config)
    sizes = blocks.sizes(numbers, config, tp)
    mixtral = numbers.data.get("num_local_experts") is not None
    words = numbers.integer("vocab_size")
    yield blocks.vocabulary(sizes, words)
    for number, layer in enumerate(decoder.layers(config)):
        assert isinstance(layer, FullAttention)
        here = sizes.at("layers", number)
        heads = numbers.integer("num_attention_heads")
        yield from blocks.attention(here, layer, heads, gated=False, qk_norm=not mixtral)
        if number == 0:
            yield blocks.rotary(numbers, layer.head_dim)
        if mixtral:
            yield from _mixtral(here, numbers)
        elif _dense(numbers, number):
            yield from blocks.mlp(here, numbers.integer("intermediate_size"))
        else:
            yield from _qwen3(here, numbers)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not numbers.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes.unquantized() if mixtral else sizes, words)


def _qwen3(sizes: blocks.Sizes, numbers: HfConfig) -> Iterator[Part]:
    here, number = sizes.at("mlp"), numbers.integer("num_experts")
    yield from here.experts(number, numbers.integer("moe_intermediate_size"))
    yield here.at("gate").tensor(number, sizes.hidden)


def _mixtral(sizes: blocks.Sizes, numbers: HfConfig) -> Iterator[Part]:
    here, number = sizes.at("block_sparse_moe"), numbers.integer("num_local_experts")
    yield here.at("gate").tensor(number, sizes.hidden)
    yield from here.experts(number, numbers.integer("intermediate_size"))


def _dense(numbers: HfConfig, number: int) -> bool:
    """Layers with a plain MLP: the listed ones, and those between sparse steps."""
    listed = numbers.integers("mlp_only_layers") if numbers.data.get("mlp_only_layers") else ()
    return number in listed or (number + 1) % numbers.integer_or("decoder_sparse_step", 1) != 0


ARCHITECTURE = Architecture(family="moe", text=text_section, layers=decoder.layers, tensors=tensors)
