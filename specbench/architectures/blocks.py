"""Tensors of the building blocks, per rank, in the order in which SGLang creates them.

In: dimensions. Out: `weights.Part`s. Shapes follow SGLang's parallel layers: column- and row-parallel projections are
split over the ranks, norms and routers are replicated, vocabularies are padded to a multiple of 64 and split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..hf import HfConfig
from ..layers import FullAttention, GatedDeltaNet, Mamba2, ShortConvolution, dtype_bytes, split
from ..quantization import recipe
from ..quantization.contract import Experts, Linear, Recipe
from ..quantization.unquantized import NOT_QUANTIZED
from ..weights import Part, RotaryTable, Tensor

_VOCABULARY_ROUND = 64  # DEFAULT_VOCAB_PADDING_SIZE of SGLang's vocab_parallel_embedding.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the blocks of a decoder share, and where in the model a block stands.

    `linear`, `experts` and `head` obey the checkpoint's quantization; `tensor` is never quantized.
    """

    hidden: int
    itemsize: int  # bytes of one weight
    tp: int
    recipe: Recipe = NOT_QUANTIZED
    module: str = ""  # model.layers.3

    def at(self, *names: str | int) -> Sizes:
        """Further down: `sizes.at("mlp")` stands at model.layers.3.mlp."""
        return replace(self, module=self._module(*names))

    def _module(self, *names: str | int) -> str:
        return ".".join(str(name) for name in (self.module, *names) if name != "")

    def unquantized(self) -> Sizes:
        return replace(self, recipe=NOT_QUANTIZED)

    def tensor(self, *shape: int) -> Tensor:
        elements = 1
        for size in shape:
            elements *= size
        return Tensor(elements * self.itemsize, parameters=elements, module=self.module)

    def linear(self, name: str, *outs: int, inp: int, whole_inp: int | None = None) -> Iterator[Part]:
        """A projection on this rank: rows of each merged part, and columns. `name`: as SGLang calls it (qkv_proj).

        `whole_inp`: columns over all ranks, where the columns are split.
        """
        module = self._module(name)
        yield from self.recipe.scheme(module, "linear").linear(
            Linear(
                module=module,
                outs=outs,
                inp=inp,
                whole_inp=whole_inp or inp,
                ranks=self.tp,
                itemsize=self.itemsize,
            )
        )

    def experts(
        self, number: int, whole_width: int, *, gated: bool = True, hidden: int | None = None
    ) -> Iterator[Part]:
        """Routed experts, each split over the ranks. UnevenSplitError where a width does not divide."""
        module = self._module("experts")
        yield from self.recipe.scheme(module, "experts").experts(
            Experts(
                module=module,
                number=number,
                hidden=hidden or self.hidden,
                width=split(whole_width, self.tp, "expert rows"),
                whole_width=whole_width,
                ranks=self.tp,
                gated=gated,
                itemsize=self.itemsize,
            )
        )


def sizes(decoder: HfConfig, config: HfConfig, tp: int) -> Sizes:
    """Of a model whose numbers stand in `decoder`, a section of `config` or `config` itself; it stands at `model`."""
    dtype = decoder.text_or("dtype", None) or config.text_or("dtype", None)
    dtype = dtype or decoder.text_or("torch_dtype", None) or config.text_or("torch_dtype", None)
    return Sizes(
        hidden=decoder.integer("hidden_size"),
        itemsize=dtype_bytes(dtype or "bfloat16", f"{decoder.where}dtype"),
        tp=tp,
        recipe=recipe(config),
        module="model",
    )


def vocabulary(sizes: Sizes, words: int) -> Tensor:
    """An embedding over the vocabulary, split over the ranks."""
    return sizes.at("embed_tokens").tensor(_words(sizes, words), sizes.hidden)


def head(sizes: Sizes, words: int) -> Iterator[Part]:
    """The output projection over the vocabulary, split over the ranks. Few methods quantize it."""
    yield from sizes.recipe.scheme("lm_head", "head").linear(
        Linear(
            module="lm_head",
            outs=(_words(sizes, words),),
            inp=sizes.hidden,
            whole_inp=sizes.hidden,
            ranks=sizes.tp,
            itemsize=sizes.itemsize,
        )
    )


def _words(sizes: Sizes, words: int) -> int:
    padded = -(-words // _VOCABULARY_ROUND) * _VOCABULARY_ROUND
    return -(-padded // sizes.tp)


def attention(
    sizes: Sizes,
    layer: FullAttention,
    heads: int,
    *,
    gated: bool,
    qk_norm: bool,
    input_size: int | None = None,
    name: str = "self_attn",
) -> Iterator[Part]:
    """q, k, v in one projection (a gated attention projects the gate beside q), and the output projection."""
    here = sizes.at(name)
    mine = split(heads, sizes.tp, "attention heads")
    query = mine * layer.head_dim * (2 if gated else 1)
    key_value_heads = layer.kv_heads_per_rank(sizes.tp)
    key, value = key_value_heads * layer.head_dim, key_value_heads * layer.v_head_dim
    yield from here.linear("qkv_proj", query, key, value, inp=input_size or sizes.hidden)
    yield from here.linear("o_proj", sizes.hidden, inp=mine * layer.v_head_dim, whole_inp=heads * layer.v_head_dim)
    if qk_norm:
        yield here.at("q_norm").tensor(layer.head_dim)
        yield here.at("k_norm").tensor(layer.head_dim)


def linear_attention(sizes: Sizes, layer: GatedDeltaNet) -> Iterator[Part]:
    """Convolution, the two input projections, the decay parameters (float32 A_log), norm, output projection."""
    here = sizes.at("linear_attn")
    values = split(layer.v_heads, sizes.tp, "linear value heads")
    channels = layer.conv_channels(sizes.tp)
    yield here.at("conv1d").tensor(channels, layer.kernel)
    key, value = (channels - values * layer.v_dim) // 2, values * layer.v_dim
    yield from here.linear("in_proj_qkvz", key, key, value, value, inp=sizes.hidden)
    yield from here.linear("in_proj_ba", values, values, inp=sizes.hidden)
    yield here.at("dt_bias").tensor(values)
    yield Tensor(values * 4, parameters=values, module=here.at("A_log").module)
    yield here.at("norm").tensor(layer.v_dim)
    yield from here.linear("out_proj", sizes.hidden, inp=values * layer.v_dim, whole_inp=layer.v_heads * layer.v_dim)


def mamba2(
    sizes: Sizes, layer: Mamba2, name: str = "mixer", *, bias: bool = False, conv_bias: bool = True, norm: bool = True
) -> Iterator[Part]:
    """Convolution, the input projection (gate, x, B, C, dt), A (float32), D, dt's bias, output projection, norm.

    As in SGLang's layers/attention/mamba/mamba.py.
    """
    here = sizes.at(name)
    heads = split(layer.heads, sizes.tp, "Mamba2 heads")
    inner, channels = heads * layer.head_dim, layer.conv_channels(sizes.tp)
    group_channels = (channels - inner) // 2
    yield here.at("conv1d").tensor(channels, layer.kernel)
    if conv_bias:
        yield here.at("conv1d").tensor(channels)
    yield from here.linear("in_proj", inner, inner, group_channels, group_channels, heads, inp=sizes.hidden)
    if bias:
        yield here.at("in_proj").tensor(inner + channels + heads)
    yield Tensor(heads * 4, parameters=heads, module=here.at("A").module)
    yield here.at("D").tensor(heads)
    yield here.at("dt_bias").tensor(heads)
    yield from here.linear("out_proj", sizes.hidden, inp=inner, whole_inp=layer.heads * layer.head_dim)
    if bias:
        yield here.at("out_proj").tensor(sizes.hidden)
    if norm:
        yield here.at("norm").tensor(inner)


def short_convolution(sizes: Sizes, layer: ShortConvolution, name: str = "conv", *, bias: bool) -> Iterator[Part]:
    """The input projection (two gates and what is convolved), the output projection, the convolution."""
    here, mine = sizes.at(name), layer.conv_channels(sizes.tp)
    yield from here.linear("in_proj", mine, mine, mine, inp=sizes.hidden)
    if bias:
        yield here.at("in_proj").tensor(3 * mine)
    yield from here.linear("out_proj", sizes.hidden, inp=mine, whole_inp=layer.channels)
    if bias:
        yield here.at("out_proj").tensor(sizes.hidden)
    yield here.at("conv").tensor(mine, layer.kernel)
    if bias:
        yield here.at("conv").tensor(mine)


def mlp(sizes: Sizes, intermediate: int, name: str = "mlp") -> Iterator[Part]:
    """Gate and up projection in one, and the down projection."""
    here = sizes.at(name)
    mine = split(intermediate, sizes.tp, "MLP rows")
    yield from here.linear("gate_up_proj", mine, mine, inp=sizes.hidden)
    yield from here.linear("down_proj", sizes.hidden, inp=mine, whole_inp=intermediate)


def experts(sizes: Sizes, config: HfConfig) -> Iterator[Part]:
    """Routed experts (each split over the ranks), router, and the shared expert with its gate."""
    here = sizes.at("mlp")
    number = config.integer("num_experts")
    yield here.at("gate").tensor(number, sizes.hidden)
    yield from here.experts(number, config.integer("moe_intermediate_size"))
    shared = config.integer_or("shared_expert_intermediate_size", 0)
    if shared:
        yield from mlp(here, shared, "shared_expert")
        yield here.at("shared_expert_gate").tensor(sizes.hidden)


def ungated_mlp(sizes: Sizes, intermediate: int, name: str = "mlp", *, bias: bool = False) -> Iterator[Part]:
    """Up and down projection with an activation that needs no gate (squared ReLU)."""
    here = sizes.at(name)
    mine = split(intermediate, sizes.tp, "MLP rows")
    yield from here.linear("up_proj", mine, inp=sizes.hidden)
    if bias:
        yield here.at("up_proj").tensor(mine)
    yield from here.linear("down_proj", sizes.hidden, inp=mine, whole_inp=intermediate)
    if bias:
        yield here.at("down_proj").tensor(sizes.hidden)


def norms(sizes: Sizes, count: int) -> Iterator[Part]:
    for _ in range(count):
        yield sizes.at("norm").tensor(sizes.hidden)


def rotary(config: HfConfig, head_dim: int) -> RotaryTable:
    """The table covers the model's own context, whatever the server's --context-length."""
    rope = config.section_or_none("rope_parameters")
    share = config.number_or("partial_rotary_factor", rope.number_or("partial_rotary_factor", 1.0) if rope else 1.0)
    return RotaryTable(config.integer("max_position_embeddings"), int(head_dim * share))


def vision_tower(vision: HfConfig, itemsize: int, tp: int) -> Iterator[Part]:
    """The image encoder of Qwen3-VL and its kin: patches, blocks, merger. Projections are split, norms replicated."""
    width, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    sizes = Sizes(hidden=width, itemsize=itemsize, tp=tp, module="visual")
    patch = vision.integer("in_channels") * vision.integer("temporal_patch_size") * vision.integer("patch_size") ** 2
    yield sizes.tensor(width, patch)
    yield sizes.tensor(width)
    yield sizes.tensor(_words(sizes, vision.integer("num_position_embeddings")), width)  # as a vocabulary is
    mine, inner_mine = -(-width // tp), -(-inner // tp)  # SGLang pads what does not divide
    for _ in range(vision.layers("depth")):
        yield from norms(sizes, 4)
        yield sizes.tensor(3 * mine, width)
        yield sizes.tensor(3 * mine)
        yield sizes.tensor(mine, width)
        yield sizes.tensor(width)
        yield sizes.tensor(inner_mine, width)
        yield sizes.tensor(inner_mine)
        yield sizes.tensor(inner_mine, width)
        yield sizes.tensor(width)
    merged = width * vision.integer("spatial_merge_size") ** 2
    merged_mine = -(-merged // tp)
    yield from norms(sizes, 2)
    yield sizes.tensor(merged_mine, merged)
    yield sizes.tensor(merged_mine)
    yield sizes.tensor(merged_mine, vision.integer("out_hidden_size"))
    yield sizes.tensor(vision.integer("out_hidden_size"))
