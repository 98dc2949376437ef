"""GLM-5.3-Flash: Kimi Delta Attention, and sparse latent attention without positions once every four layers, MoE.

Source: SGLang 0.5.20 and 0.5.23, models/glm5_next.py and glm5_next_nextn.py, configs/glm5_next.py. Lists of layers
count from zero; without them three of four are linear. The indexer keeps a key for every `index_kpool` tokens, and its
pages hold as many more (0.5.20 keeps a key for each). Its tensors (hyper-connections among them) are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import KimiDelta, Layer
from ..weights import Part
from . import kinds, latent
from .contract import Architecture, text_section

_PERIOD = 4
_FULL_KINDS = ("deepseek_sparse_attention", "full_attention")


def layers(config: HfConfig) -> tuple[Layer, ...]:
    decoder = text_section(config)
    recurrent, full = _delta(decoder), latent.layer(decoder)
    return tuple(recurrent if linear else full for linear in _linear(decoder))


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    """The multi-token head has sparse latent attention."""
    decoder = text_section(config)
    return (latent.layer(decoder),) * decoder.layers_or("num_nextn_predict_layers", 0)


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    """None: see `tensors_unknown`."""
    yield from ()


def _delta(decoder: HfConfig) -> KimiDelta:
    linear = decoder.section_or_none("linear_attn_config")
    if linear is not None:
        return KimiDelta(
            heads=linear.integer("num_heads"),
            head_dim=linear.integer("head_dim"),
            kernel=linear.integer("short_conv_kernel_size"),
        )
    return KimiDelta(
        heads=decoder.integer("linear_num_heads"),
        head_dim=decoder.integer("linear_head_dim"),
        kernel=decoder.integer("linear_conv_kernel_dim"),
    )


def _linear(decoder: HfConfig) -> tuple[bool, ...]:
    """Whether each layer is linear: the section's list, else the kinds, else three of four."""
    number, linear = decoder.layers("num_hidden_layers"), decoder.section_or_none("linear_attn_config")
    if linear is not None and linear.data.get("kda_layers") is not None:
        listed = set(linear.integers("kda_layers"))
        return tuple(i in listed for i in range(number))
    if decoder.data.get("layer_types") is None:
        return tuple(i % _PERIOD != _PERIOD - 1 for i in range(number))
    return kinds.by_type(decoder, {"linear_attention": True, **dict.fromkeys(_FULL_KINDS, False)})


ARCHITECTURE = Architecture(
    family="glm5_next",
    text=text_section,
    layers=layers,
    tensors=tensors,
    draft_layers=draft_layers,
    draft_tensors=tensors,
    tensors_unknown="the tensors of GLM-5.3-Flash are not modelled",
)
