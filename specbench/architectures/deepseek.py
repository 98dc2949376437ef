"""DeepSeek V2, V3, R1, V3.2, Kimi-K2 and GLM-5: latent attention, with an indexer (V3.2, GLM-5) or without, and MoE.

Shapes from SGLang 0.5.12 and 0.5.23, models/deepseek_v2.py and deepseek_nextn.py. Every rank keeps the whole latent KV,
so more ranks leave more room and divide nothing. A layer with an indexer may reuse the selection of an earlier one
(GLM-5.3): which ones, the config tells in one of four ways (configs/model_config.py, dsa_layer_skips_topk).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import LatentAttention, Layer
from ..weights import Part, Tensor
from . import blocks, latent
from .contract import Architecture, text_section

_FLOAT = 4


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    return tuple(latent.layer(decoder, shared=one) for one in _shares(decoder, decoder.layers("num_hidden_layers")))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    kept = layers(config)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    for number, layer in enumerate(kept):
        assert isinstance(layer, LatentAttention)
        here = sizes.at("layers", number)
        yield from latent.tensors(here, decoder, layer)
        if number == 0:
            yield from _rotary(decoder, layer)
        yield from _feed_forward(here, decoder, dense=_is_dense(decoder, number))
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not decoder.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, decoder.integer("vocab_size"))
    yield from latent.copies(sizes, decoder, range(len(kept)))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    """The multi-token head is one decoder layer more, whose indexer is its own."""
    decoder = text_section(config)
    return (latent.layer(decoder),) * decoder.layers_or("num_nextn_predict_layers", 0)


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    sizes = replace(sizes, recipe=sizes.recipe.builtin_draft)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    yield from blocks.norms(sizes, 2)
    yield sizes.at("eh_proj").tensor(2 * sizes.hidden, sizes.hidden)
    heads = draft_layers(config)
    for layer in heads:
        assert isinstance(layer, LatentAttention)
        here = sizes.at("decoder")
        yield from latent.tensors(here, decoder, layer)
        yield from _feed_forward(here, decoder, dense=False)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    yield from blocks.head(sizes, decoder.integer("vocab_size"))
    yield from latent.copies(sizes, decoder, range(len(heads)))


def experts(sizes: blocks.Sizes, decoder: HfConfig, number: int, name: str = "mlp") -> Iterator[Part]:
    """Router with its correction (float32), routed experts, and the shared ones as one MLP.

    SGLang may fuse the shared experts with the routed ones, which takes as much.
    """
    here = sizes.at(name)
    width = decoder.integer("moe_intermediate_size")
    yield here.at("gate").tensor(number, sizes.hidden)
    if decoder.text_or("topk_method", None) == "noaux_tc":
        yield Tensor(number * _FLOAT, parameters=number, module=here.at("gate").module)
    yield from here.experts(number, width)
    shared = decoder.integer_or("n_shared_experts", 0)
    if shared:
        yield from blocks.mlp(here, shared * width, "shared_experts")


def _feed_forward(sizes: blocks.Sizes, decoder: HfConfig, *, dense: bool) -> Iterator[Part]:
    if dense:
        yield from blocks.mlp(sizes, decoder.integer("intermediate_size"))
    else:
        yield from experts(sizes, decoder, decoder.integer("n_routed_experts"))


def _is_dense(decoder: HfConfig, number: int) -> bool:
    first, every = decoder.integer_or("first_k_dense_replace", 0), decoder.integer_or("moe_layer_freq", 1)
    return number < first or number % every != 0 or decoder.data.get("n_routed_experts") is None


def _rotary(decoder: HfConfig, layer: LatentAttention) -> Iterator[Part]:
    """One table for the layers; the indexer's is another where it orders the channels differently."""
    if not layer.rope_dim:
        return
    yield blocks.rotary(decoder, layer.rope_dim)
    if layer.index_dim is not None and not decoder.flag("indexer_rope_interleave", False):
        yield blocks.rotary(decoder, layer.rope_dim)


def _shares(decoder: HfConfig, number: int) -> tuple[bool, ...]:
    """Whether each layer reuses an earlier selection of tokens. SpecError for an unknown kind of indexer."""
    if decoder.data.get("indexer_types") is not None:
        kinds = decoder.texts("indexer_types")
        unknown = sorted(set(kinds) - {"full", "shared"})
        if unknown:
            raise SpecError(f"{decoder.where}indexer_types: unknown kinds {unknown}.\nExpected full or shared.")
        return tuple(i < len(kinds) and kinds[i] == "shared" for i in range(number))
    pattern = decoder.text_or("index_topk_pattern", None)
    if pattern is not None:
        return tuple(i < len(pattern) and pattern[i] == "S" for i in range(number))
    every = decoder.integer_or("index_topk_freq", 1)
    offset = decoder.integer_or("index_skip_topk_offset", 0)
    if offset:
        return tuple(max(i - offset + 1, 0) % every != 0 for i in range(number))
    return tuple(max(i - 1, 0) % every != 0 for i in range(number))


ARCHITECTURE = Architecture(
    family="deepseek",
    text=text_section,
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
)
