"""Weights in 8-bit floats: scales per block of 128 × 128 (DeepSeek, Qwen …-FP8), per tensor, or per output row.

Sources: SGLang 0.5.16 and 0.5.23, layers/quantization/fp8.py (Fp8Config, Fp8LinearMethod, Fp8MoEMethod) and
compressed_tensors/schemes/compressed_tensors_w8a8_fp8.py. mxfp8 is the same with blocks of 1 × 32 and one-byte scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import SpecError
from ..hf import HfConfig
from ..layers import UnevenSplitError
from ..weights import Part, Repacked, Tensor
from . import matching
from .contract import Experts, Kind, Linear, Recipe, Scheme
from .nvfp4 import NvFp4
from .unquantized import UNQUANTIZED

_FLOAT = 4  # bytes of a scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Blocks:
    """A scale per block of rows × columns, and dynamic activation scales, which are no parameters."""

    rows: int
    columns: int
    scale_bytes: int = _FLOAT

    def linear(self, linear: Linear) -> Iterator[Part]:
        self._check(linear)
        yield Tensor(linear.out * linear.inp, parameters=linear.out * linear.inp, module=linear.module)
        yield Tensor(self._scales(linear.out, linear.inp) * self.scale_bytes, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        shapes = ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width))
        for rows, columns in shapes:
            values = experts.number * rows * columns
            yield Tensor(values, parameters=values, module=experts.module)
        parts = experts.w13_rows // experts.width  # gate and up have blocks of their own
        for scales in (
            parts * self._scales(experts.width, experts.hidden),
            self._scales(experts.hidden, experts.width),
        ):
            yield Tensor(experts.number * scales * self.scale_bytes, module=experts.module)

    def _scales(self, rows: int, columns: int) -> int:
        return -(-rows // self.rows) * -(-columns // self.columns)

    def _check(self, linear: Linear) -> None:
        """validate_block_quant_shapes: a split or merged projection holds whole blocks."""
        if linear.whole_inp != linear.inp and linear.inp % self.columns:
            raise UnevenSplitError(
                f"columns of {linear.module}, in blocks of {self.columns},", linear.whole_inp, linear.ranks
            )
        if len(linear.outs) > 1 and any(out % self.rows for out in linear.outs):
            raise UnevenSplitError(
                f"rows of {linear.module}, in blocks of {self.rows},", linear.out * linear.ranks, linear.ranks
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Scaled:
    """A scale per tensor or per output row. A scale per tensor is spread over the rows once the weights are read."""

    per: Literal["tensor", "row"]
    static: bool  # activations have a scale, too

    def linear(self, linear: Linear) -> Iterator[Part]:
        yield Tensor(linear.out * linear.inp, parameters=linear.out * linear.inp, module=linear.module)
        rows = linear.out * _FLOAT
        if self.per == "row":
            yield Tensor(rows, module=linear.module)
        else:
            yield Repacked(len(linear.outs) * _FLOAT, rows, module=linear.module)
        if self.static:
            yield Tensor(len(linear.outs) * _FLOAT, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        for rows, columns in ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width)):
            values = experts.number * rows * columns
            yield Tensor(values, parameters=values, module=experts.module)
        parts = experts.w13_rows // experts.width
        per_row = (experts.w13_rows, experts.hidden)
        for scales in per_row if self.per == "row" else (parts, 1):
            yield Tensor(experts.number * scales * _FLOAT, module=experts.module)
        for _ in range(2 if self.static else 0):
            yield Tensor(experts.number * _FLOAT, module=experts.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8:
    """A checkpoint of quant_method fp8: every projection and expert but those listed; the head never."""

    method: str
    fp8_kv_cache: bool
    quantized: Scheme
    ignored: matching.Listed
    experts: Scheme | None = None  # of their own: DeepSeek-V4 …-NVFP4 (HybridFp8NvFp4Config)
    other_experts: matching.Listed | None = None  # experts that stay with the rest

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        if kind == "experts" and self.experts is not None and module not in (self.other_experts or ()):
            return self.experts
        return UNQUANTIZED if kind == "head" or module in self.ignored else self.quantized


def read(section: HfConfig) -> Recipe:
    ignored = next(
        (section.texts(key) for key in ("ignored_layers", "modules_to_not_convert") if section.data.get(key)), ()
    )
    own = (section.text_or("moe_quant_algo", None) or "").upper() == "NVFP4"
    return Fp8(
        method=section.text("quant_method"),
        fp8_kv_cache=(section.text_or("kv_cache_quant_algo", None) or "").upper() == "FP8",
        quantized=_scheme(section),
        ignored=matching.Paths(ignored),
        experts=NvFp4(group=16) if own else None,
        other_experts=matching.Globs(section.texts("ignore") if own and section.data.get("ignore") else ()),
    )


def _scheme(section: HfConfig) -> Scheme:
    if "mxfp8" in section.text("quant_method"):
        return Fp8Blocks(rows=1, columns=32, scale_bytes=1)
    if section.data.get("weight_block_size") is None:
        return Fp8Scaled(per="tensor", static=section.text_or("activation_scheme", "dynamic") == "static")
    blocks = section.integers("weight_block_size")
    if len(blocks) != 2 or min(blocks) < 1:
        raise SpecError(
            f"{section.where}weight_block_size: got {list(blocks)!r:.60}; expected two positive numbers.\n"
            "Correct the config.json."
        )
    return Fp8Blocks(rows=blocks[0], columns=blocks[1])
