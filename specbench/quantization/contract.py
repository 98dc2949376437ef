"""What a quantization has to tell: which scheme a module gets, and which tensors the scheme makes of it.

A recipe (one per checkpoint) maps a module's name to a scheme; a scheme turns a projection or a set of experts on one
rank into tensors. Names are SGLang's, without the wrapper of a multimodal model: `model.layers.3.mlp.gate_up_proj`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from ..weights import Part

#: What SGLang asks a quantization config for: LinearBase, FusedMoE, ParallelLMHead.
Kind = Literal["linear", "experts", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A projection on one rank: `sum(outs)` rows of `inp` values. A merged projection has a figure per part."""

    module: str
    outs: tuple[int, ...]
    inp: int
    whole_inp: int  # over all ranks
    ranks: int
    itemsize: int  # bytes of an unquantized weight

    @property
    def out(self) -> int:
        return sum(self.outs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed experts on one rank, in two tensors: w13 (gate and up, or up alone) and w2."""

    module: str
    number: int
    hidden: int
    width: int  # of the rank's share of an expert
    whole_width: int  # over all ranks
    ranks: int
    gated: bool
    itemsize: int

    @property
    def w13_rows(self) -> int:
        return self.width * (2 if self.gated else 1)


class Scheme(Protocol):
    """Tensors in the order in which SGLang creates them. UnevenSplitError where it refuses the shape."""

    def linear(self, linear: Linear) -> Iterable[Part]: ...

    def experts(self, experts: Experts) -> Iterable[Part]: ...


class Recipe(Protocol):
    """How one checkpoint is quantized."""

    @property
    def method(self) -> str:
        """As SGLang names it: fp8, awq_marlin, modelopt_mixed …"""
        ...

    @property
    def fp8_kv_cache(self) -> bool:
        """Whether the checkpoint itself asks for KV in fp8."""
        ...

    @property
    def builtin_draft(self) -> Recipe:
        """How the model's own multi-token head is quantized: as the model, or not at all."""
        ...

    def scheme(self, module: str, kind: Kind) -> Scheme: ...
