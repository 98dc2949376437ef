"""NVFP4: two 4-bit floats a byte, an 8-bit float scale per 16 values, and a float32 scale per tensor (per expert).

Sources: SGLang 0.5.16 and 0.5.23, layers/quantization/modelopt_quant.py (ModelOptFp4LinearMethod,
ModelOptNvFp4A16LinearMethod, ModelOptNvFp4FusedMoEMethod), marlin_utils_fp4.py and
compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4.py. The kernels want block scales in tiles of 128 × 4: from
0.5.12 on they share the memory of the checkpoint's scales where that shape fits, and lie beside them where it does not.
Cards that do not compute in FP4 run the experts in 16 bits, from 0.5.14 on: everything is repacked for Marlin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers import UnevenSplitError
from ..weights import Doubt, Part, Repacked, Tensor
from .contract import Experts, Linear

_FLOAT = 4
_TILE_ROWS, _TILE_COLUMNS = 128, 4
#: What repacking experts for Marlin takes at most, a share of them: widths padded to 128 (experts without a gate), and
#: holes where values and 16-bit scales lay. On an H200 with 0.5.16 Nemotron 3 Nano took 21.34 GiB where the shapes give
#: 18.20 (a fifth of its experts' 15.39 more), Nemotron 3.5 Lightning 20.61 where they give 17.98.
_REPACKED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class NvFp4:
    """`weight_only`: activations stay in 16 bits (W4A16): the weights are repacked for Marlin, whatever the GPU."""

    group: int = 16
    weight_only: bool = False

    def linear(self, linear: Linear) -> Iterator[Part]:
        if linear.inp % self.group:
            raise UnevenSplitError(
                f"columns of {linear.module}, in groups of {self.group},", linear.whole_inp, linear.ranks
            )
        values, module = linear.out * linear.inp, linear.module
        scales = linear.out * (linear.inp // self.group)
        if self.weight_only:
            yield Repacked(values // 2, values // 2, parameters=values, module=module)
            yield Repacked(len(linear.outs) * _FLOAT, 2, module=module)
            yield Repacked(scales, scales, module=module)
            return
        yield Tensor(values // 2, parameters=values, module=module)
        for _ in range(2):  # of the activations and of the weight
            yield Tensor(len(linear.outs) * _FLOAT, module=module)
        yield Tensor(scales, module=module)
        tiled = _round(linear.out, _TILE_ROWS) * _round(linear.inp // self.group, _TILE_COLUMNS)
        if tiled != scales:
            yield Tensor(tiled, module=module)
        for _ in range(2):  # alpha, the inverse input scale
            yield Tensor(_FLOAT, module=module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        shapes = ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width))
        for rows, columns in shapes:
            values = experts.number * rows * columns
            yield Tensor(values // 2, parameters=values, module=experts.module)
        for rows, columns in shapes:
            yield Tensor(experts.number * rows * (columns // self.group), module=experts.module)
        parts = experts.w13_rows // experts.width
        for scalars in (parts, 1, parts, 1):  # weight and input scales of w13 and w2
            yield Tensor(experts.number * scalars * _FLOAT, module=experts.module)
        taken = sum(experts.number * rows * (columns // 2 + columns // self.group) for rows, columns in shapes)
        yield Doubt(round(taken * _REPACKED), module=experts.module, without_fp4=not self.weight_only)


def _round(size: int, to: int) -> int:
    return -(-size // to) * to
