"""Latent attention (MLA) as several families have it. In: a decoder's numbers. Out: its layer, its tensors.

Shapes from SGLang's DeepseekV2AttentionMLA (models/deepseek_v2.py of 0.5.12 and 0.5.23) and its indexer. The
non-obvious thing: once the weights are read, the up-projection of keys and values is kept a second time, in bf16 and in
the order in which decoding multiplies it (w_kc, w_vc); the first copy stays, for prefill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..hf import HfConfig
from ..layers import LatentAttention, split
from ..weights import Part, Tensor
from . import blocks

_COPY_ITEMSIZE = 2  # of w_kc and w_vc, whatever the checkpoint's type
_FLOAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of latent attention is in the weights and not in the KV."""

    heads: int
    nope: int  # width of a head's key without positions
    rope: int  # with positions
    value: int
    q_rank: int  # 0: queries are projected at once


def shape(decoder: HfConfig) -> Shape:
    return Shape(
        heads=decoder.integer("num_attention_heads"),
        nope=decoder.integer("qk_nope_head_dim"),
        rope=decoder.integer_or("qk_rope_head_dim", 0),
        value=decoder.integer("v_head_dim"),
        q_rank=decoder.integer_or("q_lora_rank", 0),
    )


def layer(decoder: HfConfig, *, shared: bool = False) -> LatentAttention:
    """The KV of one layer; with an indexer where the config has one. `shared`: it reuses an earlier selection."""
    sparse = decoder.data.get("index_topk") is not None
    return LatentAttention(
        kv_lora_rank=decoder.integer("kv_lora_rank"),
        rope_dim=decoder.integer_or("qk_rope_head_dim", 0),
        heads=decoder.integer("num_attention_heads"),
        index_dim=decoder.integer("index_head_dim") if sparse else None,
        index_pool=decoder.integer_or("index_kpool", 1) if sparse else 1,
        index_shared=shared and sparse,
    )


def tensors(sizes: blocks.Sizes, decoder: HfConfig, kept: LatentAttention, name: str = "self_attn") -> Iterator[Part]:
    """Down- and up-projections, norms, indexer, output projection, in the order of creation."""
    here, one = sizes.at(name), shape(decoder)
    mine = split(one.heads, sizes.tp, "attention heads")
    query, latent = mine * (one.nope + one.rope), kept.kv_lora_rank + kept.rope_dim
    if one.q_rank:
        yield from here.linear("fused_qkv_a_proj_with_mqa", one.q_rank + latent, inp=sizes.hidden)
        yield here.at("q_a_layernorm").tensor(one.q_rank)
        yield from here.linear("q_b_proj", query, inp=one.q_rank)
    else:
        yield from here.linear("q_proj", query, inp=sizes.hidden)
        yield from here.linear("kv_a_proj_with_mqa", latent, inp=sizes.hidden)
    if kept.index_dim is not None and not kept.index_shared:
        yield from _indexer(here.at("indexer"), decoder, kept.index_dim, one.q_rank or sizes.hidden)
    yield from here.linear("kv_b_proj", mine * (one.nope + one.value), inp=kept.kv_lora_rank)
    yield from here.linear("o_proj", sizes.hidden, inp=mine * one.value, whole_inp=one.heads * one.value)
    yield here.at("kv_a_layernorm").tensor(kept.kv_lora_rank)


def copies(sizes: blocks.Sizes, decoder: HfConfig, layers: Iterable[int], name: str = "self_attn") -> Iterator[Part]:
    """w_kc and w_vc of the layers of these numbers, which come after all other weights."""
    one = shape(decoder)
    mine, rank = split(one.heads, sizes.tp, "attention heads"), decoder.integer("kv_lora_rank")
    for number in layers:
        for width in (one.nope, one.value):
            module = sizes.at("layers", number, name).module
            yield Tensor(mine * width * rank * _COPY_ITEMSIZE, module=module)


def _indexer(here: blocks.Sizes, decoder: HfConfig, dim: int, rank: int) -> Iterator[Part]:
    """Queries, key and head weights, whole on every rank; the key's norm with a bias, in float32."""
    heads = decoder.integer("index_n_heads")
    yield from here.linear("wq_b", heads * dim, inp=rank)
    yield from here.linear("wk", dim, inp=here.hidden)
    yield here.at("weights_proj").tensor(heads, here.hidden)
    for _ in ("weight", "bias"):
        yield Tensor(dim * _FLOAT, parameters=dim, module=here.at("k_norm").module)
