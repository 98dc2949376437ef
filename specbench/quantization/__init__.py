"""Quantized checkpoints, by the method that config.json names. To add one: a file here and its name in METHODS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import SpecError
from ..hf import HfConfig, read_config
from .contract import Recipe
from .unquantized import NOT_QUANTIZED

#: The file here whose `read` knows the method. It is imported when a checkpoint needs it: most need one, or none.
METHODS: dict[str, str] = {
    "fp8": "fp8",
    "mxfp8": "fp8",
    "modelopt": "modelopt",
    "modelopt_fp8": "modelopt",
    "modelopt_fp4": "modelopt",
    "modelopt_mixed": "modelopt",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "auto-round": "auto_round",
    "auto_round": "auto_round",
    "compressed-tensors": "compressed_tensors",
    "mxfp4": "mxfp4",
}


#: Names under which SGLang runs one and the same checkpoint (its override_quantization_method).
_SAME = (
    ("awq", "awq_marlin"),
    ("gptq", "gptq_marlin"),
    ("auto-round", "auto_round"),
    ("compressed-tensors", "compressed_tensors"),
    ("modelopt", "modelopt_fp8"),
    ("modelopt", "modelopt_fp4"),
    ("modelopt", "modelopt_mixed"),
)
_KEYS = ("quantization_config", "compression_config")


def section(config: HfConfig) -> HfConfig | None:
    """The part of a config.json that tells the quantization; None: none does."""
    text = config.section_or_none("text_config")
    for holder in (config, text):
        for key in _KEYS:
            found = holder.section_or_none(key) if holder is not None else None
            if found is not None:
                return found
    return None


def without(data: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a config.json without its quantization."""
    kept = {key: value for key, value in data.items() if key not in _KEYS}
    text = kept.get("text_config")
    return kept | ({"text_config": without(text)} if isinstance(text, Mapping) else {})


def with_separate_file(config: HfConfig, folder: Path, name: str) -> HfConfig:
    """ModelOpt checkpoints may tell their quantization in hf_quant_config.json beside a config.json that tells none.

    So do mixed ones whose config.json does not tell their layers or their KV: the file then counts alone (SGLang from
    0.5.15: model_loader/weight_utils.py, get_quant_config).
    """
    file = folder / "hf_quant_config.json"
    found = section(config)
    if not file.is_file() or (found is not None and not _incomplete(found)):
        return config
    told = {"quant_method": "modelopt", **read_config(file, name).data}
    return HfConfig(where=config.where, data={**config.data, "quantization_config": told})


def _incomplete(found: HfConfig) -> bool:
    if found.data.get("quant_algo") != "MIXED_PRECISION":
        return False
    return "quantized_layers" not in found.data or not {"kv_cache_quant_algo", "kv_cache_scheme"} & found.data.keys()


def method(config: HfConfig) -> str | None:
    """The method as config.json names it; modelopt where it names an algorithm alone. None: not quantized."""
    found = section(config)
    if found is None:
        return None
    return found.text_or("quant_method", "modelopt" if _algorithm(found) else "unnamed")


def names(config: HfConfig, found: Recipe | None) -> frozenset[str]:
    """What --quantization may say of this checkpoint without changing anything; none: it is not quantized."""
    named = method(config)
    if named is None:
        return frozenset()
    method_of = found.method if found is not None else named
    same = (group for group in _SAME if method_of in group)
    return frozenset({named, *(name for group in same for name in group)})


def recipe(config: HfConfig) -> Recipe:
    """How a checkpoint is quantized. SpecError: by a method whose tensors are not known here, or it is told wrongly."""
    found, named = section(config), method(config)
    if found is None or named is None:
        return NOT_QUANTIZED
    if named not in METHODS:
        raise SpecError(
            f"{found.where}quant_method: the tensors of {named!r:.60} are not known ({', '.join(METHODS)}).\n"
            "Give the free memory that a log shows, or add the method under specbench/quantization/."
        )
    read: Callable[[HfConfig], Recipe] = import_module(f".{METHODS[named]}", __package__).read
    return read(found)


def _algorithm(found: HfConfig) -> bool:
    inner = found.section_or_none("quantization")
    return "quant_algo" in (inner or found).data
