"""Layer kinds and the memory each needs: `KvLayer`s per token, `StateLayer`s per slot.

To add a kind: a class in `kv.py` or `state.py`, and its name here.
"""

from __future__ import annotations

from .kv import FullAttention, KvLayer, LatentAttention, SlidingWindow
from .split import DTYPE_BYTES, UnevenSplitError, dtype_bytes, split, split_or_replicate
from .state import GatedDeltaNet, KimiDelta, LightningAttention, Mamba2, ShortConvolution, StateLayer

Layer = KvLayer | StateLayer

__all__ = [
    "DTYPE_BYTES",
    "FullAttention",
    "GatedDeltaNet",
    "KimiDelta",
    "KvLayer",
    "LatentAttention",
    "Layer",
    "LightningAttention",
    "Mamba2",
    "ShortConvolution",
    "SlidingWindow",
    "StateLayer",
    "UnevenSplitError",
    "dtype_bytes",
    "split",
    "split_or_replicate",
]
