"""An SGLang command line -> sections of a RunConfig: the way back from `command.py`.

In: the argument list of a server somebody started. Out: plain sections, where flags that have a key of their own are
under that key and every other flag is verbatim under `engine.args`. Of a flag given twice the last one counts, as in
SGLang. Addresses and ports are left out: a new run gets its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: flag (all spellings of 0.5.6 to 0.5.23) -> (section, key, type)
_KEYS: dict[str, tuple[str, str, type]] = {
    "speculative-algorithm": ("speculative", "algorithm", str),
    "speculative-draft-model-path": ("speculative", "draft_model_path", str),
    "speculative-draft-model": ("speculative", "draft_model_path", str),
    "speculative-num-draft-tokens": ("speculative", "num_draft_tokens", int),
    "speculative-num-steps": ("speculative", "num_steps", int),
    "speculative-eagle-topk": ("speculative", "eagle_topk", int),
    "tensor-parallel-size": ("parallel", "tp_size", int),
    "tp-size": ("parallel", "tp_size", int),
    "tp": ("parallel", "tp_size", int),
    "pipeline-parallel-size": ("parallel", "pp_size", int),
    "pp-size": ("parallel", "pp_size", int),
    "data-parallel-size": ("parallel", "dp_size", int),
    "dp-size": ("parallel", "dp_size", int),
    "dp": ("parallel", "dp_size", int),
    "enable-dp-attention": ("parallel", "enable_dp_attention", bool),
    "mem-fraction-static": ("memory", "mem_fraction_static", float),
    "mamba-full-memory-ratio": ("memory", "mamba_full_memory_ratio", float),
    "max-running-requests": ("memory", "max_running_requests", int),
    "max-mamba-cache-size": ("memory", "max_mamba_cache_size", int),
    "max-total-tokens": ("memory", "max_total_tokens", int),
    "kv-cache-dtype": ("memory", "kv_cache_dtype", str),
    "mamba-ssm-dtype": ("memory", "mamba_ssm_dtype", str),
    "mamba-scheduler-strategy": ("memory", "mamba_radix_cache_strategy", str),
    "mamba-radix-cache-strategy": ("memory", "mamba_radix_cache_strategy", str),
    "disable-radix-cache": ("memory", "disable_radix_cache", bool),
    "disable-overlap-schedule": ("memory", "disable_overlap_schedule", bool),
    "page-size": ("memory", "page_size", int),
    "context-length": ("memory", "context_length", int),
    "chunked-prefill-size": ("memory", "chunked_prefill_size", int),
    "cuda-graph-max-bs": ("memory", "cuda_graph_max_bs", int),
    "cuda-graph-max-bs-decode": ("memory", "cuda_graph_max_bs", int),
}
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
            section, key, kind = _KEYS[flag]
            try:
                sections[section][key] = True if kind is bool else kind(values[0])
            except (ValueError, IndexError):
                raise ValueError(f"--{flag}: got {' '.join(values)!r}, expected {kind.__name__}") from None
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
