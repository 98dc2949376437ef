"""Jet-Nemotron: Jet blocks (a gated delta rule whose convolution kernels are computed from the input) with a few
attention layers, some of them with a window.

Shapes from SGLang 0.5.16, models/jet_nemotron.py and configs/jet_nemotron.py; served since 0.5.6 and earlier, on one
rank: the model splits its projections but not what it computes with them. Layers with a window are in the pool of full
attention like the others (SGLang does not list the family among those with a window pool). The pool has room for the
convolution of queries, keys and values, although only the values are convolved.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import FullAttention, GatedDeltaNet, Layer, split
from ..weights import Part, Tensor
from . import blocks, kinds
from .contract import Architecture


def layers(config: HfConfig) -> tuple[Layer, ...]:
    full = attention(config)
    return kinds.by_type(config, {"jet": jet_block(config), "attn": full, "swa": full})


def attention(config: HfConfig) -> FullAttention:
    return kinds.full_attention(config, config.share("hidden_size", "num_attention_heads"))


def jet_block(config: HfConfig) -> GatedDeltaNet:
    jet = config.section("efficient_attention_config").section("jet")
    heads, head_dim = jet.integer("num_heads"), jet.integer("head_dim")
    v_dim = int(head_dim * jet.number_or("expand_v", 1.0))
    if not v_dim:
        raise SpecError(f"{jet.where}expand_v: leaves no value dimension.\nCompare with the published config.json.")
    return GatedDeltaNet(v_heads=heads, k_heads=heads, v_dim=v_dim, k_dim=head_dim, kernel=jet.integer("conv_size"))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    first_attention = True
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, FullAttention):
            yield from _attention(here, layer, config)
            if first_attention:
                yield blocks.rotary(config, layer.head_dim)
                first_attention = False
        elif isinstance(layer, GatedDeltaNet):
            yield from _jet_block(here.at("self_attn"), layer, config)
        yield from blocks.mlp(here, config.integer("intermediate_size"))
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    if not config.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, config.integer("vocab_size"))


def _attention(sizes: blocks.Sizes, layer: FullAttention, config: HfConfig) -> Iterator[Part]:
    """The projection of queries, keys and values has a bias, as in Qwen2."""
    heads = config.integer("num_attention_heads")
    projection, output = blocks.attention(sizes, layer, heads, gated=False, qk_norm=False)
    yield projection
    key_value = 2 * layer.kv_heads_per_rank(sizes.tp) * layer.head_dim
    yield sizes.at("self_attn").tensor(heads // sizes.tp * layer.head_dim + key_value)
    yield output


def _jet_block(sizes: blocks.Sizes, layer: GatedDeltaNet, config: HfConfig) -> Iterator[Part]:
    """The input projection (q, k, v, a, b, z), the output projection, decay, kernel generator and norm."""
    keys, values = layer.k_heads * layer.k_dim, layer.v_heads * layer.v_dim
    outs = (keys, keys, values, layer.v_heads, layer.v_heads, values)
    mine = tuple(split(out, sizes.tp, "Jet rows") for out in outs)
    yield from sizes.linear("qkvabz_proj", *mine, inp=sizes.hidden)
    yield from sizes.unquantized().linear("o_proj", sizes.hidden, inp=mine[2], whole_inp=values)
    yield Tensor(layer.v_heads * 4, parameters=layer.v_heads, module=sizes.at("A_log").module)
    yield sizes.at("dt_bias").tensor(layer.v_heads)
    jet = config.section("efficient_attention_config").section("jet")
    here, generated = sizes.at("dynamic_conv1d", "kernel_generator"), values // jet.integer("dconv_generator_reduction")
    rows = split(values * layer.kernel, sizes.tp, "kernel rows")
    yield from here.linear("w1", split(generated, sizes.tp, "kernel generator rows"), inp=sizes.hidden)
    yield from here.linear("w2", rows, inp=generated)
    yield here.at("w2").tensor(rows)
    yield sizes.at("o_norm").tensor(layer.v_dim)


ARCHITECTURE = Architecture(family="jet_nemotron", layers=layers, tensors=tensors)
