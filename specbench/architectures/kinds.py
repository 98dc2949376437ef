"""Decoder layers by their names in `layer_types`. In: a configuration and what each name keeps. Out: the layers."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import Layer


def by_type(decoder: HfConfig, known: Mapping[str, Layer]) -> tuple[Layer, ...]:
    """SpecError for a name that is not `known`, and for another number of names than of layers."""
    number = decoder.layers("num_hidden_layers")
    found = decoder.texts("layer_types")
    unknown = sorted(set(found) - set(known))
    if unknown or len(found) != number:
        raise SpecError(
            f"{decoder.where}layer_types: {len(found)} entries, unknown kinds {unknown or 'none'}.\n"
            f"Expected {number} entries of {', '.join(known)}."
        )
    return tuple(known[name] for name in found)
