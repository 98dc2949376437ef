"""MXFP4: two 4-bit floats a byte and a one-byte exponent per 32 values; experts only (gpt-oss, Kimi-K3).

Source: SGLang 0.5.16 and 0.5.23, layers/quantization/mxfp4.py (Mxfp4Config, Mxfp4MoEMethod). Rows of an expert are
padded to a multiple of 64 (Triton kernels, the default on Hopper) or 128 (Marlin, FlashInfer); biases are kept in
bfloat16 whether the checkpoint has any or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..hf import HfConfig
from ..weights import Part, Tensor
from .contract import Experts, Kind, Recipe, Scheme
from .unquantized import UNQUANTIZED, Unquantized

_BLOCK = 32
_BIAS = 2  # bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class MxFp4(Unquantized):
    """Projections stay as they are; experts are packed."""

    rows_to: int = 64

    def experts(self, experts: Experts) -> Iterator[Part]:
        width = -(-experts.width // self.rows_to) * self.rows_to
        parts = experts.w13_rows // experts.width
        for rows, columns, own in (
            (parts * width, experts.hidden, experts.w13_rows * experts.hidden),
            (experts.hidden, width, experts.width * experts.hidden),
        ):
            yield Tensor(experts.number * rows * columns // 2, parameters=experts.number * own, module=experts.module)
            yield Tensor(experts.number * rows * (columns // _BLOCK), module=experts.module)
            yield Tensor(experts.number * rows * _BIAS, module=experts.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mxfp4Experts:
    method: str = "mxfp4"
    fp8_kv_cache: bool = False

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        return MxFp4() if kind == "experts" else UNQUANTIZED


def read(section: HfConfig) -> Recipe:
    return Mxfp4Experts()
