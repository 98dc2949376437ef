"""Nemotron-H and Nemotron 3: Mamba2, attention without positions, MLPs and experts, each a decoder layer of its own.

The layers are spelled out, as a pattern (M: Mamba2, *: attention, -: MLP, E: experts) or as a list; what has neither
keeps nothing, and counts as a layer all the same where a pipeline is cut. Shapes from SGLang 0.5.16,
models/nemotron_h.py and nemotron_h_mtp.py, layers/attention/mamba/mamba.py. Experts may work in a smaller latent space
(Super, Ultra). The list (Ultra) is read from 0.5.10 on, the MTP head from 0.5.8 on; a head is one round of its own
pattern, with copies of embedding and head, and a model that is named as its own draft is taken for one even where its
config counts none. `mamba_ssm_cache_dtype` of the config is read by no version: the state is
float32 unless a flag or `mamba_ssm_dtype` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import SpecError
from ..hf import MOST_LAYERS, HfConfig
from ..layers import NOTHING, FullAttention, Layer, Mamba2, split
from ..weights import Part, Tensor
from . import blocks
from .contract import Architecture

_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
# SGLang's defaults (configs/nemotron_h.py), whatever the other numbers would give
_HEAD_DIM = 128
_GROUPS = 8
_HEAD_KINDS = ("attention", "moe")
_EXPERTS, _EXPERT_WIDTH = 8, 7_688


def kinds(config: HfConfig, *, head: bool = False) -> tuple[str, ...]:
    """The kind of each decoder layer, or of each layer of the MTP head. The list wins over the pattern."""
    listed, pattern = ("mtp_layers_block_type", "mtp_hybrid_override_pattern") if head else _LAYOUT
    if config.data.get(listed) is not None:
        found, key = config.texts(listed), listed
    elif head and config.data.get(pattern) is None:
        return _HEAD_KINDS
    else:
        spelled, key = config.text(pattern), pattern
        found = tuple(_KINDS.get(letter, letter) for letter in spelled)
    known = set(_KINDS.values()) - ({"mamba", "mlp"} if head else set())
    unknown = sorted(set(found) - known)
    if unknown or len(found) > MOST_LAYERS:
        raise SpecError(
            f"{config.where}{key}: {len(found)} layers, unknown kinds {unknown or 'none'}.\n"
            f"Expected at most {MOST_LAYERS:,} of {', '.join(sorted(known))}."
        )
    return found


_LAYOUT = ("layers_block_type", "hybrid_override_pattern")


def layers(config: HfConfig) -> tuple[Layer, ...]:
    found = kinds(config)
    kept: dict[str, Layer] = {"mlp": NOTHING, "moe": NOTHING}
    if "attention" in found:
        kept["attention"] = attention(config)
    if "mamba" in found:
        kept["mamba"] = mamba2(config)
    return tuple(kept[kind] for kind in found)


def attention(config: HfConfig) -> FullAttention:
    head_dim = config.integer_or("head_dim", config.integer_or("attention_head_dim", _HEAD_DIM))
    return FullAttention(kv_heads=config.integer("num_key_value_heads"), head_dim=head_dim, v_head_dim=head_dim)


def mamba2(config: HfConfig) -> Mamba2:
    return Mamba2(
        heads=config.integer("mamba_num_heads"),
        head_dim=config.integer("mamba_head_dim"),
        state_size=config.integer("ssm_state_size"),
        groups=config.integer_or("n_groups", _GROUPS),
        kernel=config.integer("conv_kernel"),
    )


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    for number, kind in enumerate(kinds(config)):
        yield from _layer(sizes.at("layers", number), config, kind)
    yield from blocks.norms(sizes, 1)
    if not config.flag("tie_word_embeddings", False):
        yield from blocks.head(sizes, config.integer("vocab_size"))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    """Of the MTP head. SGLang has one round of it, however many the config counts."""
    if not config.integer_or("num_nextn_predict_layers", 0):
        return ()
    return tuple(attention(config) if kind == "attention" else NOTHING for kind in kinds(config, head=True))


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    sizes = replace(sizes, module="mtp", recipe=sizes.recipe.builtin_draft)
    found = kinds(config, head=True)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    for number, kind in enumerate(found):
        here = sizes.at("layers", number)
        yield from _layer(here, config, kind)
        if number == 0:
            yield from blocks.norms(here, 2)
            yield from here.linear("eh_proj", split(sizes.hidden, tp, "output rows"), inp=2 * sizes.hidden)
        if number == len(found) - 1:
            yield from blocks.norms(here, 1)
    yield from blocks.head(sizes, config.integer("vocab_size"))


def _layer(sizes: blocks.Sizes, config: HfConfig, kind: str) -> Iterator[Part]:
    if kind == "mamba":
        bias, conv_bias = config.flag("use_bias", False), config.flag("use_conv_bias", True)
        yield from blocks.mamba2(sizes, mamba2(config), bias=bias, conv_bias=conv_bias)
    elif kind == "attention":
        heads = config.integer("num_attention_heads")
        yield from blocks.attention(sizes, attention(config), heads, gated=False, qk_norm=False, name="mixer")
    elif kind == "moe":
        yield from _experts(sizes, config)
    else:
        bias = config.flag("mlp_bias", False)
        yield from blocks.ungated_mlp(sizes, config.integer("intermediate_size"), "mixer", bias=bias)
    yield from blocks.norms(sizes, 1)


def _experts(sizes: blocks.Sizes, config: HfConfig) -> Iterator[Part]:
    """Router and its correction (float32), routed experts, shared ones, and the projections into the latent space."""
    here = sizes.at("mixer")
    number, latent = config.integer_or("n_routed_experts", _EXPERTS), config.integer_or("moe_latent_size", 0)
    yield here.at("gate").tensor(number, sizes.hidden)
    yield Tensor(number * 4, parameters=number, module=here.at("gate").module)
    width = config.integer_or("moe_intermediate_size", _EXPERT_WIDTH)
    yield from here.experts(number, width, gated=False, hidden=latent or None)
    shared = 1 if config.data.get("n_shared_experts") is None else config.integer_or("n_shared_experts", 0)
    if shared:
        intermediate = shared * config.integer_or("moe_shared_expert_intermediate_size", _EXPERT_WIDTH)
        yield from blocks.ungated_mlp(here, intermediate, "shared_experts")
    if latent:
        yield from here.linear("fc1_latent_proj", latent, inp=sizes.hidden)
        yield from here.linear("fc2_latent_proj", sizes.hidden, inp=latent)


ARCHITECTURE = Architecture(
    family="nemotron_h",
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
    head_as_draft=True,
)
