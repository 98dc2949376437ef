"""GigaChat 3.5: Gated DeltaNet, and latent attention in the layers that the config names, MoE.

Source: SGLang 0.5.22, configs/gigachat35.py. Its tensors (low-rank gated norms before and after each half) are not
modelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import Layer
from ..weights import Part
from . import kinds, latent, qwen3_5
from .contract import Architecture

_FULL = ("attention", "full_attention")


def layers(config: HfConfig) -> tuple[Layer, ...]:
    linear, full = qwen3_5.gated_delta_net(config), latent.layer(config)
    return tuple(full if one else linear for one in _full(config))


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    """None: see `tensors_unknown`."""
    yield from ()


def _full(config: HfConfig) -> tuple[bool, ...]:
    """Whether each layer is full attention: the kinds, else the list, else none is."""
    number = config.layers("num_hidden_layers")
    if config.data.get("layer_types") is None:
        listed = config.integers("full_attention_layers") if config.data.get("full_attention_layers") else ()
        return tuple(i in {n % number for n in listed} for i in range(number))
    return kinds.by_type(config, {**dict.fromkeys(_FULL, True), "linear_attention": False})


ARCHITECTURE = Architecture(
    family="gigachat35",
    layers=layers,
    tensors=tensors,
    tensors_unknown="the tensors of GigaChat 3.5 are not modelled",
)
