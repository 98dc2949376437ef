"""GPTQ checkpoints. Source: SGLang 0.5.16 and 0.5.23, layers/quantization/gptq/gptq.py (GPTQMarlinConfig) and utils.py
(get_dynamic_override: a regular expression per module, "-:" leaves it unquantized, "+:" changes bits or group)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..hf import HfConfig
from . import matching
from .contract import Kind, Recipe, Scheme
from .integers import Gptq
from .unquantized import UNQUANTIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class GptqCheckpoint:
    quantized: Gptq
    dynamic: tuple[tuple[re.Pattern[str], tuple[str, Any]], ...]  # each with its entry in the config
    ignored: matching.Listed
    head: bool
    method: str = "gptq"
    fp8_kv_cache: bool = False

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        left_out = (kind == "head" and not self.head) or module in self.ignored
        if left_out:
            return UNQUANTIZED
        for wanted, (name, told) in self.dynamic if kind != "experts" else ():
            if not any(wanted.match(spelling) for spelling in matching.spellings(module)):
                continue
            if name.startswith("-:"):
                return UNQUANTIZED
            values = HfConfig(where="dynamic.", data=told if isinstance(told, dict) else {})
            group = values.data.get("group_size", self.quantized.group)
            return Gptq(
                bits=values.integer_or("bits", self.quantized.bits, most=8),
                group=-1 if group == -1 else values.integer_or("group_size", max(1, self.quantized.group)),
                ordered=values.flag("desc_act", self.quantized.ordered),
            )
        return self.quantized


def read(section: HfConfig) -> Recipe:
    found = section.section_or_none("dynamic")
    dynamic = found.data if found is not None else {}
    expressions = matching.expressions(name.removeprefix("-:").removeprefix("+:") for name in dynamic)
    ignored = section.texts("modules_to_not_convert") if section.data.get("modules_to_not_convert") else ()
    whole_rows = section.data.get("group_size") == -1
    return GptqCheckpoint(
        quantized=Gptq(
            bits=section.integer("bits", most=8),
            group=-1 if whole_rows else section.integer("group_size"),
            ordered=section.flag("desc_act", False) and not whole_rows,
        ),
        dynamic=tuple(zip(expressions, dynamic.items(), strict=True)),
        ignored=matching.Substrings(ignored),
        head=section.flag("lm_head", False),
    )
