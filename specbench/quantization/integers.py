"""Weights in 4 or 8 bit whole numbers with a 16-bit scale per group of columns, packed into 32-bit words.

The layouts of AWQ, GPTQ and compressed-tensors differ in what lies beside the weights, and in what is left after the
repacking for Marlin, which keeps the number of bytes of each.
Sources: SGLang 0.5.16 and 0.5.23, layers/quantization/awq/schemes, gptq/schemes, hardware_backend/gpu/quantization/
gptq_kernels.py, compressed_tensors/schemes/compressed_tensors_wNa16.py and …_moe.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers import UnevenSplitError
from ..weights import Part, Repacked, Tensor
from .contract import Experts, Linear

_LEAST_GROUP = 32
_INT = 4  # bytes of an index, and of a packed word
_SHAPE = 2 * 8  # weight_shape of compressed-tensors, two int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """`group`: columns of a scale, -1 for the whole row. `bits`: 4 or 8."""

    bits: int
    group: int

    def groups(self, columns: int, module: str, ranks: int) -> int:
        """Scales of a row. UnevenSplitError where the columns of a rank are no whole groups."""
        if self.group == -1:
            return 1
        if columns % self.group:
            raise UnevenSplitError(f"columns of {module}, in groups of {self.group},", columns * ranks, ranks)
        return columns // self.group

    def expert_groups(self, experts: Experts, second: int) -> tuple[int, int]:
        """Scales of a row of w13 and w2. Where Marlin cannot split the groups, MoeWNA16 halves them (moe_wna16.py)."""
        if self.group == -1:
            return 1, 1
        group = self.group
        while group > _LEAST_GROUP and (second % group or experts.hidden % group):
            group //= 2
        if second % group or experts.hidden % group:
            raise UnevenSplitError(
                f"rows of {experts.module}, in groups of {self.group},", experts.whole_width, experts.ranks
            )
        return experts.hidden // group, second // group

    def packed(self, values: int) -> int:
        return values * self.bits // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Awq(Grouped):
    """Weights, zero points and scales; always zero points, used or not."""

    def linear(self, linear: Linear) -> Iterator[Part]:
        groups, values = self.groups(linear.inp, linear.module, linear.ranks), linear.out * linear.inp
        weight, zeros, scales = self.packed(values), self.packed(groups * linear.out), groups * linear.out * 2
        yield Repacked(weight, weight, parameters=values, module=linear.module)
        yield Repacked(zeros, zeros, module=linear.module)
        yield Repacked(scales, scales, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        number, module = experts.number, experts.module
        shapes = ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width))
        for rows, columns in shapes:
            weight = self.packed(number * rows * columns)
            yield Repacked(weight, weight, parameters=number * rows * columns, module=module)
        groups = self.expert_groups(experts, experts.width)
        counts = [number * rows * of for (rows, _), of in zip(shapes, groups, strict=True)]
        for count in counts:
            yield Repacked(count * 2, count * 2, module=module)
        for count in counts:
            yield Repacked(self.packed(count), self.packed(count), module=module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gptq(Grouped):
    """Zero points and, without activation order, the order itself are dropped after loading. An expert's second
    projection keeps the scales of all ranks unless the activation order is used (gptq_moe.py)."""

    ordered: bool  # desc_act

    def linear(self, linear: Linear) -> Iterator[Part]:
        whole = self.group == -1 or (self.ordered and linear.inp != linear.whole_inp)
        groups = self.groups(linear.whole_inp if whole else linear.inp, linear.module, linear.ranks)
        values, scales = linear.out * linear.inp, groups * linear.out * 2
        weight, order = self.packed(values), linear.inp * _INT
        yield Repacked(weight, weight, parameters=values, module=linear.module)
        yield Repacked(order, 2 * order if self.ordered else 0, module=linear.module)
        yield Repacked(scales, scales, module=linear.module)
        yield Repacked(self.packed(groups * linear.out), 0, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        number, module = experts.number, experts.module
        shapes = ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width))
        for rows, columns in shapes:
            weight = self.packed(number * rows * columns)
            yield Repacked(weight, weight, parameters=number * rows * columns, module=module)
        second = experts.width if self.ordered else experts.whole_width
        groups = self.expert_groups(experts, second)
        counts = [number * rows * of for (rows, _), of in zip(shapes, groups, strict=True)]
        for count in counts:
            yield Repacked(count * 2, count * 2, module=module)
        for count in counts:  # one 16-bit number per packed word's worth of zero points: they are never read
            yield Tensor(count * self.bits // 32 * 2, module=module)
        for _ in range(2):  # the order, and its sorting
            for columns in (experts.hidden, experts.width):
                order = number * columns * _INT
                yield Repacked(order, order if self.ordered else 0, module=module)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackQuantized(Grouped):
    """compressed-tensors "pack-quantized"."""

    symmetric: bool
    ordered: bool  # actorder "group"

    def linear(self, linear: Linear) -> Iterator[Part]:
        whole = self.group == -1 or (self.ordered and linear.inp != linear.whole_inp)
        groups = self.groups(linear.whole_inp if whole else linear.inp, linear.module, linear.ranks)
        values, scales = linear.out * linear.inp, groups * linear.out * 2
        weight, zeros = self.packed(values), self.packed(groups * linear.out)
        yield Repacked(weight, weight, parameters=values, module=linear.module)
        yield Repacked(scales, scales, module=linear.module)
        yield Tensor(_SHAPE, module=linear.module)
        if not self.symmetric:
            yield Repacked(zeros, zeros, module=linear.module)
        if self.ordered:
            yield Repacked(linear.inp * _INT, 2 * linear.inp * _INT, module=linear.module)

    def experts(self, experts: Experts) -> Iterator[Part]:
        number, module = experts.number, experts.module
        shapes = ((experts.w13_rows, experts.hidden), (experts.hidden, experts.width))
        for rows, columns in shapes:  # repacked in place
            yield Tensor(self.packed(number * rows * columns), parameters=number * rows * columns, module=module)
        second = experts.whole_width if self.ordered and self.group != -1 else experts.width
        groups = self.expert_groups(experts, second)
        counts = [number * rows * of for (rows, _), of in zip(shapes, groups, strict=True)]
        for count in counts:
            yield Tensor(count * 2, module=module)
        for _ in range(2):
            yield Tensor(number * 2 * experts.itemsize, module=module)  # weight shapes, in the model's dtype
        for count in counts if not self.symmetric else ():
            yield Tensor(self.packed(count), module=module)
        for _ in range(2):
            for columns in (experts.hidden, experts.width):
                order = number * columns * _INT
                yield Repacked(order, order if self.ordered else 0, module=module)
