"""Weights in the model's own dtype: a checkpoint without quantization, and the modules that a quantization leaves out.

Source: SGLang 0.5.16, layers/quantization/unquant.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..weights import Part, Tensor
from .contract import Experts, Kind, Linear, Recipe, Scheme


@dataclass(frozen=True, slots=True)
class Unquantized:
    def linear(self, linear: Linear) -> Iterator[Part]:
        values = linear.out * linear.inp
        yield Tensor(values * linear.itemsize, parameters=values, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        for rows, columns in ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width)):
            values = experts.number * rows * columns
            yield Tensor(values * experts.itemsize, parameters=values, module=experts.module)


UNQUANTIZED = Unquantized()


@dataclass(frozen=True, slots=True)
class NotQuantized:
    method: str = "none"
    fp8_kv_cache: bool = False

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        return UNQUANTIZED


NOT_QUANTIZED = NotQuantized()
