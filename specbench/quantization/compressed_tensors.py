"""compressed-tensors checkpoints: a scheme per group of modules, and a list of modules that are left out.

Source: SGLang 0.5.16 and 0.5.23, layers/quantization/compressed_tensors/compressed_tensors.py (get_quant_method,
_get_scheme_from_parts, get_moe_scheme), utils.py (find_matched_target, should_ignore_layer).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import SpecError
from ..hf import HfConfig
from . import matching
from .contract import Kind, Recipe, Scheme
from .fp8 import Fp8Blocks, Fp8Scaled
from .integers import PackQuantized
from .mxfp4 import MxFp4
from .nvfp4 import NvFp4
from .unquantized import UNQUANTIZED

_MOST_GROUPS = 32  # real ones have one to five


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    linear: bool  # the class Linear is a target: every projection and expert
    named: matching.Listed  # modules by path or regular expression
    scheme: Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedTensors:
    groups: tuple[Group, ...]
    ignored: matching.Listed
    fp8_kv_cache: bool
    method: str = "compressed-tensors"

    @property
    def builtin_draft(self) -> Recipe:
        return self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        names = _unfused(module) if kind == "experts" else (module,)
        if all(name in self.ignored for name in names):
            return UNQUANTIZED
        by_name = (group for group in self.groups if any(name in group.named for name in names))
        by_class = (group for group in self.groups if kind != "head" and group.linear)
        found = next(by_name, None) or next(by_class, None)
        if found is None:
            return UNQUANTIZED
        packs_experts_only = isinstance(found.scheme, MxFp4) and kind != "experts"
        return UNQUANTIZED if packs_experts_only else found.scheme


def _unfused(module: str) -> tuple[str, ...]:
    return tuple(f"{module}.0.{name}" for name in ("gate_proj", "up_proj", "down_proj"))


def read(section: HfConfig) -> Recipe:
    """SpecError for a kind of numbers that SGLang has no scheme for."""
    ignored = section.texts("ignore") if section.data.get("ignore") else ()
    return CompressedTensors(
        groups=tuple(_groups(section)), ignored=matching.RegexesOrEnds(ignored), fp8_kv_cache=_fp8_kv_cache(section)
    )


def _fp8_kv_cache(section: HfConfig) -> bool:
    """A fixed, symmetric scale per tensor; SGLang ignores any other wish (is_supported_scheme)."""
    wanted = section.section_or_none("kv_cache_scheme")
    told = wanted.data if wanted is not None else {}
    known = {"type": "float", "num_bits": 8, "strategy": "tensor"}
    fixed = told.get("symmetric", True) is True and told.get("dynamic", False) is False
    return fixed and all(told.get(key) == value for key, value in known.items())


def _groups(section: HfConfig) -> Iterator[Group]:
    groups = section.section("config_groups")
    matching.bounded("config_groups", len(groups.data), _MOST_GROUPS)
    for name in groups.data:
        group = groups.section(name)
        weights = group.section("weights")
        kind = group.text_or("format", None) or section.text_or("format", None) or ""
        targets = group.texts("targets")
        yield Group(
            linear="Linear" in targets,
            named=matching.RegexesOrEnds(name for name in targets if name != "Linear"),
            scheme=_scheme(weights, kind, group.section_or_none("input_activations")),
        )


def _scheme(weights: HfConfig, kind: str, activations: HfConfig | None) -> Scheme:
    bits, numbers = weights.integer("num_bits", most=16), weights.text_or("type", None) or "int"
    strategy = weights.text_or("strategy", None) or "tensor"
    group = -1 if weights.data.get("group_size") in (None, -1) else weights.integer("group_size")
    if numbers == "int" and bits in (4, 8) and kind in ("pack-quantized", ""):
        return PackQuantized(
            bits=bits,
            group=group,
            symmetric=weights.flag("symmetric", True),
            ordered=(weights.text_or("actorder", None) or "") == "group",
        )
    if numbers == "float" and bits == 4 and group == 32:
        return MxFp4()
    if numbers == "float" and bits == 4 and group == 16:
        return NvFp4(weight_only=activations is None)
    if bits == 8 and numbers in ("float", "int"):
        static = activations is not None and not activations.flag("dynamic", False)
        if strategy == "block":
            blocks = weights.integers("block_structure")
            if len(blocks) == 2 and min(blocks) > 0:
                return Fp8Blocks(rows=blocks[0], columns=blocks[1])
        elif strategy in ("tensor", "channel"):
            return Fp8Scaled(per="row" if strategy == "channel" else "tensor", static=static)
    raise SpecError(
        f"{weights.where}{bits}-bit {numbers!r:.40}, strategy {strategy!r:.40}, format {kind!r:.60}: not known.\n"
        "Give the free memory that a log shows."
    )
