"""Quantized checkpoints, by the method that config.json names. To add one: a file here and its name in METHODS."""

from __future__ import annotations

from collections.abc import Callable

from ..hf import HfConfig
from .contract import Recipe
from .unquantized import NOT_QUANTIZED

METHODS: dict[str, Callable[[HfConfig], Recipe]] = {}


def section(config: HfConfig) -> HfConfig | None:
    """The part of a config.json that tells the quantization; None: none does."""
    text = config.section_or_none("text_config")
    found = config.section_or_none("quantization_config")
    return found or (text.section_or_none("quantization_config") if text is not None else None)


def recipe(config: HfConfig) -> Recipe | None:
    """How a checkpoint is quantized. None: by a method whose tensors are not known here."""
    found = section(config)
    if found is None:
        return NOT_QUANTIZED
    read = METHODS.get(found.text_or("quant_method", None) or "")
    return read(found) if read is not None else None
