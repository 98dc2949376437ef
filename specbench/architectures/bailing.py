"""Ling and Ring: latent attention once a group, else lightning attention (2.5) or Kimi Delta Attention (3), MoE.

Shapes from SGLang 0.5.23, models/bailing_moe_linear.py and bailing_moe_v3.py, configs/bailing_hybrid.py. What tells the
generations apart is the short convolution (`short_conv_kernel_size`). The last layer of each group of
`layer_group_size` is full attention, or a list says it layer by layer (1: linear).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import KimiDelta, LatentAttention, Layer, LightningAttention, StateLayer, split
from ..weights import Part, Tensor
from . import blocks, kda, latent
from .contract import Architecture, text_section

_FLOAT = 4


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    recurrent, full = _recurrent(decoder), _full(decoder)
    return tuple(recurrent if linear else full for linear in _linear(decoder))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    seen: set[type] = set()
    kept = layers(config)
    for number, layer in enumerate(kept):
        here = sizes.at("layers", number)
        first = type(layer) not in seen
        seen.add(type(layer))
        if isinstance(layer, KimiDelta):
            yield from kda.tensors(here, layer, "full" if decoder.flag("no_kda_lora", False) else "low")
        elif isinstance(layer, LightningAttention):
            yield from _lightning(here, decoder, layer)
            if first:
                yield blocks.rotary(decoder, layer.head_dim)
        elif isinstance(layer, LatentAttention):
            yield from latent.tensors(here, decoder, layer)
            if first and layer.rope_dim:
                yield blocks.rotary(decoder, layer.rope_dim)
            yield from _output_gate(here, decoder)
        yield from _feed_forward(here, decoder, dense=number < decoder.integer_or("first_k_dense_replace", 0))
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not decoder.flag("tie_word_embeddings", False):
        yield from _head(sizes, decoder)
    yield from latent.copies(sizes, decoder, (n for n, layer in enumerate(kept) if isinstance(layer, LatentAttention)))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    """The multi-token head has latent attention."""
    decoder = text_section(config)
    return (_full(decoder),) * decoder.layers_or("num_nextn_predict_layers", 0)


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    decoder = text_section(config)
    sizes = blocks.sizes(decoder, config, tp)
    sizes = replace(sizes, recipe=sizes.recipe.builtin_draft)
    yield blocks.vocabulary(sizes, decoder.integer("vocab_size"))
    yield from blocks.norms(sizes, 2)
    yield from sizes.linear("eh_proj", sizes.hidden, inp=2 * sizes.hidden)
    heads = draft_layers(config)
    for layer in heads:
        assert isinstance(layer, LatentAttention)
        here = sizes.at("decoder")
        yield from latent.tensors(here, decoder, layer)
        yield from _output_gate(here, decoder)
        yield from _feed_forward(here, decoder, dense=False)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    yield from _head(sizes, decoder)
    yield from latent.copies(sizes, decoder, range(len(heads)))


def _has_delta(decoder: HfConfig) -> bool:
    return decoder.data.get("short_conv_kernel_size") is not None


def _full(decoder: HfConfig) -> LatentAttention:
    kept = latent.layer(decoder)
    if decoder.flag("use_mla_nope", False):  # no positions: the rotary part is dropped
        return LatentAttention(kv_lora_rank=kept.kv_lora_rank, rope_dim=0, heads=kept.heads)
    return kept


def _recurrent(decoder: HfConfig) -> StateLayer:
    heads = decoder.integer("num_attention_heads")
    head_dim = decoder.head_width()
    if _has_delta(decoder):
        return KimiDelta(heads=heads, head_dim=head_dim, kernel=decoder.integer("short_conv_kernel_size"))
    return LightningAttention(heads=heads, head_dim=head_dim, norm_groups=decoder.integer_or("group_norm_size", 1))


def _linear(decoder: HfConfig) -> tuple[bool, ...]:
    """Whether each layer is linear."""
    number = decoder.layers("num_hidden_layers")
    if isinstance(decoder.data.get("layer_group_size"), list):
        listed = decoder.integers("layer_group_size")
        if len(listed) != number:
            raise SpecError(
                f"{decoder.where}layer_group_size: {len(listed)} entries.\nExpected one for each of {number} layers."
            )
        return tuple(one == 1 for one in listed)
    group = decoder.integer("layer_group_size")
    return tuple((i + 1) % group != 0 for i in range(number))


def _lightning(sizes: blocks.Sizes, decoder: HfConfig, layer: LightningAttention) -> Iterator[Part]:
    """q, k and v of as many heads each, their norms, the output gate, the output projection, the grouped norm."""
    here = sizes.at("attention")
    mine = split(layer.heads, sizes.tp, "linear heads") * layer.head_dim
    yield from here.linear("qkv_proj", mine, mine, mine, inp=sizes.hidden)
    if decoder.flag("use_qk_norm", False):
        yield here.at("query_layernorm").tensor(layer.head_dim)
        yield here.at("key_layernorm").tensor(layer.head_dim)
    yield from here.linear("output_gate", mine, inp=sizes.hidden)
    yield from here.linear("out_proj", sizes.hidden, inp=mine, whole_inp=layer.heads * layer.head_dim)
    yield here.at("g_norm").tensor(mine)


def _output_gate(sizes: blocks.Sizes, decoder: HfConfig) -> Iterator[Part]:
    """Of latent attention in Ling 3: a value per head or per channel."""
    kind = decoder.text_or("gated_attention_proj_granularity_type", None)
    if kind not in ("head_wise", "element_wise"):
        return
    one = latent.shape(decoder)
    mine = split(one.heads, sizes.tp, "attention heads") * (1 if kind == "head_wise" else one.value)
    if kind == "head_wise":
        yield sizes.at("attention", "output_gate").tensor(mine, sizes.hidden)
    else:
        yield from sizes.at("attention").linear("output_gate", mine, inp=sizes.hidden)


def _feed_forward(sizes: blocks.Sizes, decoder: HfConfig, *, dense: bool) -> Iterator[Part]:
    """An MLP, or experts: router (float32 unless the config says otherwise), its correction, routed and shared ones."""
    count = decoder.integer("num_experts")
    if dense or count == 1:
        yield from blocks.mlp(sizes, decoder.integer("intermediate_size"))
        return
    here, width = sizes.at("mlp"), decoder.integer("moe_intermediate_size")
    itemsize = _FLOAT if decoder.text_or("router_dtype", "fp32") == "fp32" else 2
    yield Tensor(count * sizes.hidden * itemsize, parameters=count * sizes.hidden, module=here.at("gate").module)
    if decoder.flag("moe_router_enable_expert_bias", False):
        yield Tensor(count * _FLOAT, parameters=count, module=here.at("gate").module)
    yield from here.experts(count, width)
    shared = decoder.integer_or("num_shared_experts", 0)
    if shared:
        whole = decoder.integer_or("moe_shared_expert_intermediate_size", shared * width)
        yield from blocks.mlp(here, whole if _has_delta(decoder) else shared * width, "shared_experts")


def _head(sizes: blocks.Sizes, decoder: HfConfig) -> Iterator[Part]:
    """Of the 2.5 generation in float32."""
    words = decoder.integer("vocab_size")
    if _has_delta(decoder):
        yield from blocks.head(sizes, words)
        return
    part = blocks.vocabulary(sizes, words)
    yield Tensor(part.bytes // sizes.itemsize * _FLOAT, parameters=part.parameters, module="lm_head")


ARCHITECTURE = Architecture(
    family="bailing",
    text=text_section,
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
)
