"""MiMo-V2: most layers look back over a window only, with more KV heads than the layers that see everything.

Shapes of what is kept from SGLang 0.5.16, configs/model_config.py (get_hybrid_layer_ids, get_swa_num_kv_heads). Its
tensors are not modelled: attention splits its fused projection by a layout of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import FullAttention, Layer, SlidingWindow
from ..weights import Part
from .contract import Architecture


def layers(config: HfConfig) -> tuple[Layer, ...]:
    number, pattern = config.layers("num_hidden_layers"), config.integers("hybrid_layer_pattern")
    if len(pattern) != number or not set(pattern) <= {0, 1}:
        raise SpecError(
            f"{config.where}hybrid_layer_pattern: {len(pattern)} entries.\n"
            f"Expected {number} entries: 1 for a layer with a window, 0 for one without."
        )
    full = FullAttention(
        kv_heads=config.integer("num_key_value_heads"),
        head_dim=config.integer("head_dim"),
        v_head_dim=config.integer("v_head_dim"),
    )
    window = SlidingWindow(
        kv_heads=config.integer("swa_num_key_value_heads"),
        head_dim=config.integer("swa_head_dim"),
        v_head_dim=config.integer("swa_v_head_dim"),
        window_tokens=config.integer("sliding_window_size"),
    )
    return tuple(window if kind else full for kind in pattern)


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    return iter(())


ARCHITECTURE = Architecture(
    family="mimo_v2",
    layers=layers,
    tensors=tensors,
    tensors_unknown="the tensors of MiMo-V2 are not modelled",
)
