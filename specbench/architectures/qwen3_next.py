"""Qwen3-Next: the first hybrid of the family, text only, MoE. Numbers lie at the top of the file.

Differs from Qwen3.5 in names only as far as memory goes; `mtp_num_hidden_layers` is absent from its config, the
checkpoint has one MTP layer (SGLang sets num_nextn_predict_layers = 1 for it).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import Layer
from ..weights import Part
from . import qwen3_5
from .contract import Architecture, text_section


def _with_mtp(config: HfConfig) -> HfConfig:
    return HfConfig(where=config.where, data={"mtp_num_hidden_layers": 1, **config.data})


def draft_layers(config: HfConfig) -> tuple[Layer, ...]:
    return qwen3_5.draft_layers(_with_mtp(config))


def draft_tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    return qwen3_5.draft_tensors(_with_mtp(config), tp)


ARCHITECTURE = Architecture(
    family="qwen3_next",
    text=text_section,
    layers=qwen3_5.layers,
    tensors=qwen3_5.tensors,
    draft_layers=draft_layers,
    draft_tensors=draft_tensors,
)
