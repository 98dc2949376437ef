"""Checkpoints of NVIDIA's ModelOpt: FP8, NVFP4, or a precision per layer (MIXED_PRECISION).

The numbers stand in config.json's quantization_config, or in hf_quant_config.json beside it. Source: SGLang 0.5.16 and
0.5.23, layers/quantization/modelopt_quant.py (ModelOptFp8Config, ModelOptFp4Config, ModelOptMixedPrecisionConfig) and
configs/model_config.py (_parse_modelopt_quant_config). A built-in draft head of Qwen3.5 and its kin is not quantized
unless a mixed checkpoint lists it (models/qwen3_5_mtp.py; up to 0.5.16 not even then).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError
from ..hf import HfConfig
from . import matching
from .contract import Kind, Recipe, Scheme
from .fp8 import Fp8Blocks, Fp8Scaled
from .nvfp4 import NvFp4
from .unquantized import NOT_QUANTIZED, UNQUANTIZED

_BLOCK_FP8 = ("FP8_PB_WO", "FP8_BLOCK_SCALES")
_FP8 = Fp8Scaled(per="tensor", static=True)
_MOST_LISTED = 200_000  # per-expert lists of the largest checkpoints have some 50,000 entries


class Excluded:
    """Modules that stay as they are: by whole components of the path, or with * for anything."""

    def __init__(self, entries: tuple[str, ...]) -> None:
        self._lists = (matching.Paths(entries), matching.Globs(entries))

    def __contains__(self, module: object) -> bool:
        return any(module in listed for listed in self._lists)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """One scheme for projections, experts and the head, but for what is excluded."""

    method: str
    fp8_kv_cache: bool
    quantized: Scheme
    excluded: Excluded

    @property
    def builtin_draft(self) -> Recipe:
        return NOT_QUANTIZED if self.method == "modelopt_fp4" else self

    def scheme(self, module: str, kind: Kind) -> Scheme:
        return UNQUANTIZED if module in self.excluded else self.quantized


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A scheme per listed module; what is not listed stays as it is."""

    method: str
    fp8_kv_cache: bool
    listed: Mapping[str, Scheme]
    parents: Mapping[str, Scheme]  # of each listed module's parents, for lists that name every expert
    excluded: Excluded

    @property
    def builtin_draft(self) -> Recipe:
        return self if any(name.startswith("mtp.") for name in self.listed) else NOT_QUANTIZED

    def scheme(self, module: str, kind: Kind) -> Scheme:
        if module in self.excluded:
            return UNQUANTIZED
        for names in (matching.spellings(module), *map(matching.spellings, matching.parts(module))):
            for name in names:
                if name in self.listed:
                    return self.listed[name]
        return next((self.parents[name] for name in matching.spellings(module) if name in self.parents), UNQUANTIZED)


def read(section: HfConfig) -> Recipe:
    """SpecError for an algorithm that is none of ModelOpt's known ones."""
    numbers = section.section_or_none("quantization") or section
    algorithm = numbers.text("quant_algo").upper()
    excluded = Excluded(next((numbers.texts(key) for key in _EXCLUDED if numbers.data.get(key)), ()))
    kv = fp8_kv_cache(numbers)
    if algorithm == "MIXED_PRECISION":
        return _mixed(numbers, excluded, kv)
    scheme = _scheme(algorithm, numbers.integer_or("group_size", _group(numbers)))
    if scheme is None:
        raise SpecError(
            f"{numbers.where}quant_algo: got {algorithm!r:.60}; known are FP8, NVFP4, W4A16_NVFP4, MXFP8, "
            "MIXED_PRECISION.\nGive the free memory that a log shows."
        )
    method = "modelopt_fp4" if "FP4" in algorithm else "mxfp8" if algorithm == "MXFP8" else "modelopt_fp8"
    return Uniform(method=method, fp8_kv_cache=kv, quantized=scheme, excluded=excluded)


_EXCLUDED = ("ignore", "exclude_modules", "modules_to_not_convert")


def fp8_kv_cache(numbers: HfConfig) -> bool:
    """kv_cache_scheme (8-bit float) or kv_cache_quant_algo, whichever the format has."""
    scheme = numbers.data.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return (numbers.text_or("kv_cache_quant_algo", None) or "").upper() == "FP8"


def _group(numbers: HfConfig) -> int:
    """Columns of an NVFP4 scale, from the first group's weights; 16 unless told otherwise."""
    groups = numbers.section_or_none("config_groups")
    for name in groups.data if groups is not None else ():
        group = groups.section_or_none(name) if groups is not None else None
        weights = group.section_or_none("weights") if group is not None else None
        if weights is not None and weights.data.get("group_size"):
            return weights.integer("group_size")
    return 16


def _scheme(algorithm: str, group: int) -> Scheme | None:
    if algorithm in ("NVFP4", "NVFP4_AWQ"):
        return NvFp4(group=group)
    if algorithm == "W4A16_NVFP4":
        return NvFp4(group=group, weight_only=True)
    if algorithm == "FP8":
        return _FP8
    if algorithm in _BLOCK_FP8:
        return Fp8Blocks(rows=group, columns=group)
    return Fp8Blocks(rows=1, columns=32, scale_bytes=1) if algorithm == "MXFP8" else None


def _mixed(numbers: HfConfig, excluded: Excluded, kv: bool) -> Recipe:
    layers = numbers.section("quantized_layers")
    if len(layers.data) > _MOST_LISTED:
        raise SpecError(
            f"{layers.where}{len(layers.data):,} entries; expected {_MOST_LISTED:,} at most.\nCorrect the config.json."
        )
    listed: dict[str, Scheme] = {}
    parents: dict[str, Scheme] = {}
    known: dict[tuple[Any, Any], Scheme] = {}
    for name, info in layers.data.items():
        told = (info.get("quant_algo"), info.get("group_size")) if isinstance(info, dict) else (None, None)
        if not all(value is None or isinstance(value, str | int) for value in told):
            told = (None, None)
        if told not in known:
            algorithm = str(told[0]).upper()
            default = 128 if algorithm in _BLOCK_FP8 else 16
            group = told[1] if isinstance(told[1], int) and 0 < told[1] <= 2**20 else default
            scheme = _scheme(algorithm, group)
            if scheme is None:
                raise SpecError(
                    f"{layers.where}{name!r:.90}: quant_algo {told[0]!r:.60} is not known.\n"
                    "Give the free memory that a log shows."
                )
            known[told] = scheme
        listed[name] = known[told]
        parent = name
        for _ in range(2):  # …experts.7.up_proj -> …experts
            parent = parent.rpartition(".")[0]
            if parent.endswith("experts"):
                parents.setdefault(parent, known[told])
    return Mixed(
        method="modelopt_mixed",
        fp8_kv_cache=kv,
        listed=listed,
        parents=parents,
        excluded=excluded,
    )
