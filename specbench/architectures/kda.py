"""Kimi Delta Attention as several families have it. In: dimensions. Out: its tensors on one rank.

Shapes from SGLang's KimiDeltaAttention (models/kimi_linear.py of 0.5.12 and 0.5.23) and KimiK3DeltaAttention. The
convolution, dt's bias and A are float32 whatever the model's type. Decay and output gate are low-rank (a pair of
projections through one head's width) or full-rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..layers import KimiDelta, split
from ..weights import Part, Tensor
from . import blocks

_FLOAT = 4

#: low: both gates through a pair of projections. full: neither (Ling 3). output_full: only the decay's (Kimi-K3).
Gates = Literal["low", "full", "output_full"]


def tensors(sizes: blocks.Sizes, layer: KimiDelta, gates: Gates, name: str = "self_attn") -> Iterator[Part]:
    """Projections of q, k, v, beta and the gates, dt's bias, convolution, A, norm, output projection."""
    here = sizes.at(name)
    heads = split(layer.heads, sizes.tp, "KDA heads")
    mine, low = heads * layer.head_dim, layer.head_dim
    if gates == "full":
        yield from here.linear("fused_qkvbfg_proj", mine, mine, mine, heads, mine, mine, inp=sizes.hidden)
    elif gates == "output_full":
        yield from here.linear("fused_qkvg_proj", mine, mine, mine, mine, inp=sizes.hidden)
        yield from here.linear("b_proj", heads, inp=sizes.hidden)
        yield from here.linear("f_a_proj", low, inp=sizes.hidden)
        yield from here.linear("f_b_proj", mine, inp=low)
    else:
        yield from here.linear("fused_qkvbfg_a_proj", mine, mine, mine, heads, low, low, inp=sizes.hidden)
        yield here.at("fused_fg_b_proj").tensor(2, mine, low)
    yield _float(here.at("dt_bias"), mine)
    yield _float(here.at("qkv_conv1d"), 3 * mine * layer.kernel)
    yield _float(here.at("A_log"), heads)
    yield here.at("o_norm").tensor(layer.head_dim)
    yield from here.linear("o_proj", sizes.hidden, inp=mine, whole_inp=layer.heads * layer.head_dim)


def _float(here: blocks.Sizes, elements: int) -> Tensor:
    return Tensor(elements * _FLOAT, parameters=elements, module=here.module)
