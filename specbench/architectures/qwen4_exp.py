"""Qwen3.8-Flash-Next: Gated DeltaNet and indexed full attention (QSA), MoE, hyper-connections, per-layer embeddings.

Shapes from SGLang 0.5.23, models/qwen4_exp.py and qwen4_exp_mtp.py, layers/hyperconnection.py, configs/qwen4_exp.py.
Four residual streams replace the norms of a layer: before each of its halves a low-rank mixer reads them. One layer
adds an embedding of the last tokens, hashed; its table (51 billion numbers) stays in the host's memory, which is the
engine's default for a bf16 model (--ple-offload-embedding), and is not counted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..hf import HfConfig
from ..layers import FullAttention, GatedDeltaNet, IndexedAttention, Layer
from ..layers.side import SideState
from ..weights import Part
from . import blocks, kinds, qwen3_5
from .contract import Architecture, text_section

_FULL = ("full_attention", "qwen_sparse_attention", "indexed_attention")
_INDEX = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_compress_ratio")


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    linear, full = qwen3_5.gated_delta_net(decoder), full_attention(decoder)
    if decoder.data.get("layer_types") is None:
        return kinds.by_interval(decoder, linear, full)
    return kinds.by_type(decoder, {**dict.fromkeys(_FULL, full), "linear_attention": linear})


def full_attention(decoder: HfConfig) -> FullAttention:
    """With an index when the config has one."""
    plain = qwen3_5.full_attention(decoder)
    if all(decoder.data.get(key) is None for key in _INDEX):
        return plain
    return IndexedAttention(
        kv_heads=plain.kv_heads,
        head_dim=plain.head_dim,
        v_head_dim=plain.v_head_dim,
        index_heads=decoder.integer("indexer_kv_heads"),
        index_dim=decoder.integer("indexer_head_dim"),
        compress_ratio=decoder.integer("indexer_compress_ratio"),
    )


def side_state(config: HfConfig) -> SideState | None:
    """Of the layers with an embedding of their own; the dilation is the number of tokens that are hashed."""
    decoder = text_section(config)
    numbers = decoder.integers("ple_layer_ids") if decoder.data.get("ple_layer_ids") is not None else ()
    if not numbers:
        return None
    tokens = decoder.integer_or("ngram_size", 3)
    return SideState(
        layers=len(set(numbers)),
        channels=decoder.integer("hidden_size") * decoder.integer_or("hc_count", 4),
        columns=(decoder.integer_or("ple_conv_kernel_size", 4) - 1) * tokens,
        context=tokens - 1,
    )


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    vision = config.section_or_none("vision_config")
    if vision is not None:
        yield from blocks.vision_tower(vision, sizes.itemsize, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    embedded = set(decoder.integers("ple_layer_ids")) if decoder.data.get("ple_layer_ids") is not None else set()
    table = True
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, FullAttention):
            if table:
                yield blocks.rotary(decoder, decoder.integer("head_dim"))
                table = False
            yield from _attention(here, layer, decoder)
        elif isinstance(layer, GatedDeltaNet):
            yield from blocks.linear_attention(here, layer)
        yield from blocks.experts(here, decoder)
        if number + 1 in embedded:
            yield from _embedding(here.at("ple"), decoder)
        yield from _mixer(here.at("attn_hyper_connection"), decoder)
        yield from _mixer(here.at("mlp_hyper_connection"), decoder)
    yield from _mixer(sizes.at("hyper_connection"), decoder, last=True)
    if not qwen3_5.tied(config):
        yield from blocks.head(sizes, decoder.integer("vocab_size"))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    return (full_attention(decoder),) * decoder.layers_or("mtp_num_hidden_layers", 0)


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    sizes = replace(sizes, module="mtp", recipe=sizes.recipe.builtin_draft)
    yield sizes.at("fc_embedding").tensor(sizes.hidden, sizes.hidden)
    yield sizes.at("fc_hidden").tensor(sizes.hidden, sizes.hidden)
    yield from blocks.norms(sizes, 1)
    yield sizes.at("pre_fc_norm_hidden").tensor(_streams(decoder) * sizes.hidden)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    for number, layer in enumerate(draft_layers(config)):
        assert isinstance(layer, FullAttention)
        here = sizes.at("layers", number)
        yield from _attention(here, layer, decoder)
        yield from blocks.experts(here, decoder)
        yield from _mixer(here.at("attn_hyper_connection"), decoder)
        yield from _mixer(here.at("mlp_hyper_connection"), decoder)
    yield from _mixer(sizes.at("hyper_connection"), decoder, last=True)
    yield from blocks.head(sizes, decoder.integer("vocab_size"))


def _streams(decoder: HfConfig) -> int:
    return decoder.integer_or("hc_count", 4)


def _attention(sizes: blocks.Sizes, layer: FullAttention, decoder: HfConfig) -> Iterator[Part]:
    """Gated always, whatever the config says; beside it the indexer, whole on every rank."""
    yield from blocks.attention(sizes, layer, decoder.integer("num_attention_heads"), gated=True, qk_norm=True)
    if isinstance(layer, IndexedAttention):
        here, heads = sizes.at("indexer"), decoder.integer("indexer_n_heads") + layer.index_heads
        yield from here.linear("index_qk_proj", heads * layer.index_dim, inp=sizes.hidden)
        yield here.at("q_layernorm").tensor(layer.index_dim)
        yield here.at("k_layernorm").tensor(layer.index_dim)


def _mixer(sizes: blocks.Sizes, decoder: HfConfig, *, last: bool = False) -> Iterator[Part]:
    """Norm of the streams, low-rank gate, and the weights with which the result goes back into them."""
    wide, rank = _streams(decoder) * sizes.hidden, decoder.integer_or("hc_lowrank", 320)
    yield sizes.tensor(wide)
    yield sizes.tensor(rank, wide)
    yield sizes.tensor(wide, rank)
    if not last:
        yield sizes.tensor(_streams(decoder), wide)


def _embedding(sizes: blocks.Sizes, decoder: HfConfig) -> Iterator[Part]:
    """Key and value projection, three norms, the convolution. The table is in the host's memory."""
    wide, inner = _streams(decoder) * sizes.hidden, decoder.integer_or("ple_embed_dim", sizes.hidden)
    yield from sizes.linear("key_proj", wide, inp=inner)
    yield from sizes.linear("value_proj", sizes.hidden, inp=inner)
    for _ in range(3):
        yield sizes.tensor(wide)
    yield sizes.at("conv1d").tensor(wide, decoder.integer_or("ple_conv_kernel_size", 4))


ARCHITECTURE = Architecture(
    family="qwen4_exp",
    text=text_section,
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
    side_state=side_state,
)
