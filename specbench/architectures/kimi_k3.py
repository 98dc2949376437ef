"""Kimi-K3: the layers of Kimi-Linear, larger, under a vision tower.

Source: SGLang 0.5.18, models/kimi_k3.py and kimi_k3_vl.py, configs/kimi_k3.py. Its tensors are not modelled: once they
are read, the engine builds merged projections from some of them, differently by kernel and split, and keeps both.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..weights import Part
from . import kimi_linear
from .contract import Architecture, text_section


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    """None: see `tensors_unknown`."""
    yield from ()


ARCHITECTURE = Architecture(
    family="kimi_k3",
    text=text_section,
    layers=kimi_linear.layers,
    tensors=tensors,
    tensors_unknown="the tensors of Kimi-K3 are not modelled: the engine merges some of them after loading",
)
