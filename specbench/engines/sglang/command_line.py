"""An SGLang command line -> sections of a RunConfig: the way back from `command.py`.

In: the argument list of a server somebody started. Out: plain sections, where flags that have a key of their own are
under that key and every other flag is verbatim under `engine.args`. Of a flag given twice the last one counts, as in
SGLang. Addresses and ports are left out: a new run gets its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .flags import FLAGS

#: Other spellings of a flag that has a key: short and older forms, and names that differ by version.
_SPELLINGS: dict[str, str] = {
    "speculative-draft-model": "speculative.draft_model_path",
    "tensor-parallel-size": "parallel.tp_size",
    "tp": "parallel.tp_size",
    "pipeline-parallel-size": "parallel.pp_size",
    "data-parallel-size": "parallel.dp_size",
    "dp": "parallel.dp_size",
    "mamba-scheduler-strategy": "memory.mamba_radix_cache_strategy",
    "mamba-radix-cache-strategy": "memory.mamba_radix_cache_strategy",
    "cuda-graph-max-bs": "memory.cuda_graph_max_bs",
    "cuda-graph-max-bs-decode": "memory.cuda_graph_max_bs",
}
_KEYS: dict[str, str] = {flag.lstrip("-"): key for key, flag in FLAGS.items() if flag is not None} | _SPELLINGS
_TEXTS = frozenset(
    {
        "speculative.algorithm",
        "speculative.draft_model_path",
        "memory.kv_cache_dtype",
        "memory.mamba_ssm_dtype",
        "memory.mamba_radix_cache_strategy",
    }
)
_FRACTIONS = frozenset({"memory.mem_fraction_static", "memory.mamba_full_memory_ratio"})
#: Of the machine or of that one start, not of the configuration.
_LEFT_OUT = frozenset({"host", "port", "nccl-port", "dist-init-addr"})


def sections_of(argv: Sequence[str]) -> dict[str, Any]:
    """`{"model": …, "parallel": {…}, "speculative": {…}, "memory": {…}, "engine": {"args": {…}}}`; "model" may lack.

    Raises ValueError naming the flag when a value does not have the flag's type.
    """
    sections: dict[str, Any] = {"parallel": {}, "speculative": {}, "memory": {}, "engine": {"args": {}}}
    for flag, values in _flags(argv).items():
        if flag in ("model-path", "model"):
            sections["model"] = values[0]
        elif flag in _KEYS:
            section, _, key = _KEYS[flag].partition(".")
            sections[section][key] = _typed(flag, values)
        elif flag not in _LEFT_OUT:
            sections["engine"]["args"][flag] = _verbatim(values)
    return sections


def _flags(argv: Sequence[str]) -> Mapping[str, list[str]]:
    """flag -> its values; what stands before the first flag (interpreter, module) is skipped."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv[_first_flag(argv) :]:
        if word.startswith("--"):
            flag, has_value, value = word[2:].partition("=")
            current = [value] if has_value else []
            found[flag.replace("_", "-")] = current
        elif current is not None:
            current.append(word)
    return found


def _typed(flag: str, values: list[str]) -> Any:
    key = _KEYS[flag]
    if key in _TEXTS and values:
        return values[0]
    if not values:
        return True
    try:
        return float(values[0]) if key in _FRACTIONS else int(values[0])
    except ValueError:
        raise ValueError(f"--{flag}: got {values[0]!r}, expected a number") from None


def _first_flag(argv: Sequence[str]) -> int:
    return next((place for place, word in enumerate(argv) if word.startswith("--")), len(argv))


def _verbatim(values: list[str]) -> Any:
    if not values:
        return True
    typed = [_number_or_text(value) for value in values]
    return typed[0] if len(typed) == 1 else typed


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:  # keeps what would print differently (007, 1e3) as it was written
            return number
    return text
