"""Layer kinds and the memory each needs: `KvLayer`s per token, `StateLayer`s per slot.

To add a kind: a class in `kv.py` or `state.py`, and its name here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .kv import FullAttention, IndexedAttention, KvLayer, LatentAttention, LatentLayout, SlidingWindow
from .split import DTYPE_BYTES, UnevenSplitError, dtype_bytes, split, split_or_replicate
from .state import GatedDeltaNet, KimiDelta, LightningAttention, Mamba2, ShortConvolution, StateLayer
from .together import NOTHING, Part, Together

#: One decoder layer: the one thing that it keeps, or `Together`.
Layer = Part | Together


def parts(layers: Iterable[Layer]) -> Iterator[Part]:
    """What decoder layers keep, in their order; a layer may keep several things or none."""
    for layer in layers:
        if isinstance(layer, Together):
            yield from layer.parts
        else:
            yield layer


__all__ = [
    "DTYPE_BYTES",
    "NOTHING",
    "FullAttention",
    "GatedDeltaNet",
    "IndexedAttention",
    "KimiDelta",
    "KvLayer",
    "LatentAttention",
    "LatentLayout",
    "Layer",
    "LightningAttention",
    "Mamba2",
    "Part",
    "ShortConvolution",
    "SlidingWindow",
    "StateLayer",
    "Together",
    "UnevenSplitError",
    "dtype_bytes",
    "parts",
    "split",
    "split_or_replicate",
]
