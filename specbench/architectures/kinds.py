"""Decoder layers by their names in `layer_types`. In: a configuration and what each name means. Out: each layer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..errors import SpecError
from ..hf import HfConfig

_Meaning = TypeVar("_Meaning")


def by_type(decoder: HfConfig, known: Mapping[str, _Meaning]) -> tuple[_Meaning, ...]:
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


def by_interval(decoder: HfConfig, linear: _Meaning, full: _Meaning) -> tuple[_Meaning, ...]:
    """Where no names are given: full attention is the last layer of each `full_attention_interval`."""
    number, interval = decoder.layers("num_hidden_layers"), decoder.integer("full_attention_interval")
    return tuple(full if (i + 1) % interval == 0 else linear for i in range(number))
