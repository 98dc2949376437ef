"""What a family of models has to tell: its layers and its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..hf import HfConfig
from ..layers import Layer
from ..layers.side import SideState
from ..weights import Part


def whole_file(config: HfConfig) -> HfConfig:
    """Of a text model: the decoder's numbers stand at the top."""
    return config


def text_section(config: HfConfig) -> HfConfig:
    """`text_config`, where a file has it (a decoder beside a vision tower, say); else the whole file."""
    return config.section_or_none("text_config") or config


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One family. `text` finds the section that holds the decoder's numbers."""

    family: str
    text: Callable[[HfConfig], HfConfig] = whole_file
    layers: Callable[
        [HfConfig], tuple[Layer, ...]
    ]  # all decoder layers, in order; `Together` where one keeps several things or none
    tensors: Callable[[HfConfig, int], Iterable[Part]]  # (config, tp): everything loaded on one rank, in load order
    draft_layers: Callable[[HfConfig], tuple[Layer, ...]] | None = None  # of the built-in multi-token head, if any
    draft_tensors: Callable[[HfConfig, int], Iterable[Part]] | None = None
    tensors_unknown: str = ""  # why the config does not tell the weights, a clause; empty: it does
    side_state: Callable[[HfConfig], SideState | None] | None = None  # beside the recurrent state of a slot
    head_as_draft: bool = False  # named as a draft, SGLang takes the model for its head even where none is counted
    reads_state_dtype: bool = True  # whether SGLang reads `mamba_ssm_dtype` of the configuration for this family
    block_size: Callable[[HfConfig], int | None] | None = None  # of a block draft: tokens of a block, as configured
