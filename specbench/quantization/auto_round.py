"""AutoRound checkpoints: the layout of GPTQ or AWQ, with exceptions per module (extra_config).

Source: SGLang 0.5.16 and 0.5.23, layers/quantization/auto_round.py (get_layer_config). 16 bits mean not quantized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..hf import HfConfig
from . import matching
from .contract import Kind, Recipe, Scheme
from .integers import Awq, Gptq
from .unquantized import UNQUANTIZED

_SPECIAL = frozenset(r"*+?^$()[]{}|\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRound:
    bits: int
    group: int
    layout: str  # gptq or awq
    blocks: tuple[str, ...]  # prefixes that are quantized; none: everything but the head
    extra: Mapping[str, Any]
    expressions: tuple[tuple[re.Pattern[str], dict[str, Any]], ...]  # those of `extra` that are no plain names
    method: str = "auto-round"
    fp8_kv_cache: bool = False

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        quantized = kind != "head"
        if self.blocks:
            names = matching.spellings(module)
            quantized = any(name.startswith(block) for name in names for block in self.blocks)
        told = next(self._told(module), {})
        bits = told.get("bits", self.bits if quantized else 16)
        if not isinstance(bits, int) or bits >= 16:
            return UNQUANTIZED
        group = told.get("group_size", self.group)
        group = group if isinstance(group, int) and (group == -1 or group > 0) else self.group
        if self.layout == "awq":
            return Awq(bits=bits, group=group)
        return Gptq(bits=bits, group=group, ordered=False)

    def _told(self, module: str) -> Iterator[dict[str, Any]]:
        """Exceptions for a module: by its name or a part's, then those inside it (experts), then by expression."""
        names = [*matching.spellings(module), *(s for part in matching.parts(module) for s in matching.spellings(part))]
        for name in names:
            if isinstance(self.extra.get(name), dict):
                yield self.extra[name]
        if module.endswith("experts"):
            for name, told in self.extra.items():
                if isinstance(told, dict) and name.startswith(matching.spellings(module)):
                    yield told
        for wanted, told in self.expressions:
            if any(wanted.fullmatch(name) for name in names):
                yield told


def read(section: HfConfig) -> Recipe:
    packing = section.text_or("packing_format", None) or "auto_round:auto_gptq"
    extra = section.section_or_none("extra_config")
    listed = section.data.get("block_name_to_quantize") or section.data.get("to_quant_block_names") or ()
    blocks = tuple(listed.split(",")) if isinstance(listed, str) else listed
    exceptions = extra.data if extra is not None else {}
    special = [name for name, told in exceptions.items() if isinstance(told, dict) and _SPECIAL & set(name)]
    return AutoRound(
        bits=section.integer("bits", most=16),
        group=-1 if section.data.get("group_size") == -1 else section.integer("group_size"),
        layout="awq" if "awq" in packing else "gptq",
        blocks=tuple(block.strip() for block in blocks if isinstance(block, str)),
        extra=exceptions,
        expressions=tuple(zip(matching.expressions(special), map(exceptions.__getitem__, special), strict=True)),
    )
