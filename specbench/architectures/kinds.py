"""Decoder layers: by their names in `layer_types`, by an interval, and the commonest kind. In: a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import FullAttention

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


def full_attention(decoder: HfConfig, head_dim: int) -> FullAttention:
    """Grouped-query attention whose heads of K and V are as wide. SpecError: the file does not say how many."""
    return FullAttention(kv_heads=decoder.integer("num_key_value_heads"), head_dim=head_dim, v_head_dim=head_dim)
