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

_BLOCKS = ("block_name_to_quantize", "to_quant_block_names")
_MOST_BLOCKS = 1_000
_SPECIAL = frozenset(r"*+?^$()[]{}|\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRound:
    bits: int
    group: int
    layout: str  # gptq or awq
    blocks: tuple[str, ...]  # prefixes that are quantized; none: everything but the head
    extra: Mapping[str, Any]
    experts: Mapping[str, dict[str, Any]]  # path of a layer's experts -> the first exception inside it
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
            quantized = any(name.startswith(self.blocks) for name in names)
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
            yield from (self.experts[name] for name in matching.spellings(module) if name in self.experts)
        for wanted, told in self.expressions:
            if any(wanted.fullmatch(name) for name in names):
                yield told


def read(section: HfConfig) -> Recipe:
    packing = section.text_or("packing_format", None) or "auto_round:auto_gptq"
    extra = section.section_or_none("extra_config")
    exceptions = extra.data if extra is not None else {}
    special = [name for name, told in exceptions.items() if isinstance(told, dict) and _SPECIAL & set(name)]
    return AutoRound(
        bits=section.integer("bits", most=16),
        group=-1 if section.data.get("group_size") == -1 else section.integer("group_size"),
        layout="awq" if "awq" in packing else "gptq",
        blocks=_blocks(section),
        extra=exceptions,
        experts=_by_experts(exceptions),
        expressions=tuple(zip(matching.expressions(special), map(exceptions.__getitem__, special), strict=True)),
    )


def _blocks(section: HfConfig) -> tuple[str, ...]:
    """Prefixes, as a list or as one text with commas; older files have another key."""
    key = next((key for key in _BLOCKS if section.data.get(key)), None)
    if key is None:
        return ()
    listed = section.text(key).split(",") if isinstance(section.data[key], str) else section.texts(key)
    found = tuple(filter(None, (block.strip() for block in listed)))
    matching.bounded("a list of blocks", len(found), _MOST_BLOCKS)
    return found


def _by_experts(exceptions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Lists may name each of thousands of experts; a layer's are created as one, by the first exception."""
    found: dict[str, dict[str, Any]] = {}
    for name, told in exceptions.items():
        if isinstance(told, dict) and "experts" in name:
            found.setdefault(name[: name.index("experts") + len("experts")], told)
    return found
