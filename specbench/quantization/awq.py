"""AWQ checkpoints. Source: SGLang 0.5.16 and 0.5.23, layers/quantization/awq/awq.py (AWQMarlinConfig)."""

from __future__ import annotations

from dataclasses import dataclass

from ..hf import HfConfig
from . import matching
from .contract import Kind, Recipe, Scheme
from .integers import Awq
from .unquantized import UNQUANTIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqCheckpoint:
    quantized: Scheme
    ignored: matching.Listed
    head: bool  # lm_head is quantized, too
    method: str = "awq"
    fp8_kv_cache: bool = False

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        left_out = (kind == "head" and not self.head) or module in self.ignored
        return UNQUANTIZED if left_out else self.quantized


def read(section: HfConfig) -> Recipe:
    ignored = section.texts("modules_to_not_convert") if section.data.get("modules_to_not_convert") else ()
    bits = section.integer_or("bits", section.integer_or("w_bit", 4), most=8)
    group = section.data.get("group_size", section.data.get("q_group_size", 128))
    return AwqCheckpoint(
        quantized=Awq(bits=bits, group=-1 if group == -1 else section.integer_or("group_size", 128)),
        ignored=matching.Substrings(ignored),
        head=section.flag("lm_head", False),
    )
