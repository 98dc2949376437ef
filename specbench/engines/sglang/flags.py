"""Facts about SGLang's command-line flags by version: names, choices, and which algorithms a release has.

Read from the argument definitions of the releases 0.5.6 to 0.5.23 (data/sglang_flags.txt).
"""

from __future__ import annotations

import functools

from ...configuration.config import EngineSection
from ...paths import DATA
from ...versions import at_least
from .sizing import rule_version

#: Configuration key -> flag. `None`: the name depends on the version (see `flag_name`).
FLAGS: dict[str, str | None] = {
    "parallel.tp_size": "--tp-size",
    "parallel.pp_size": "--pp-size",
    "parallel.dp_size": "--dp-size",
    "parallel.enable_dp_attention": "--enable-dp-attention",
    "speculative.algorithm": "--speculative-algorithm",
    "speculative.draft_model_path": "--speculative-draft-model-path",
    "speculative.num_steps": "--speculative-num-steps",
    "speculative.eagle_topk": "--speculative-eagle-topk",
    "speculative.num_draft_tokens": "--speculative-num-draft-tokens",
    "memory.mem_fraction_static": "--mem-fraction-static",
    "memory.mamba_full_memory_ratio": "--mamba-full-memory-ratio",
    "memory.max_running_requests": "--max-running-requests",
    "memory.max_mamba_cache_size": "--max-mamba-cache-size",
    "memory.max_total_tokens": "--max-total-tokens",
    "memory.kv_cache_dtype": "--kv-cache-dtype",
    "memory.mamba_ssm_dtype": "--mamba-ssm-dtype",
    "memory.mamba_radix_cache_strategy": None,
    "memory.disable_radix_cache": "--disable-radix-cache",
    "memory.disable_overlap_schedule": "--disable-overlap-schedule",
    "memory.page_size": "--page-size",
    "memory.context_length": "--context-length",
    "memory.chunked_prefill_size": "--chunked-prefill-size",
    "memory.cuda_graph_max_bs": None,
    "engine.enable_metrics": "--enable-metrics",
}

#: Other spellings of a flag that has a key: long and older forms, and names that differ by version.
_SPELLINGS: dict[str, str] = {
    "speculative-draft-model": "speculative.draft_model_path",
    "tensor-parallel-size": "parallel.tp_size",
    "pipeline-parallel-size": "parallel.pp_size",
    "data-parallel-size": "parallel.dp_size",
    "mamba-scheduler-strategy": "memory.mamba_radix_cache_strategy",
    "mamba-radix-cache-strategy": "memory.mamba_radix_cache_strategy",
    "cuda-graph-max-bs": "memory.cuda_graph_max_bs",
    "cuda-graph-max-bs-decode": "memory.cuda_graph_max_bs",
}
_KEYS: dict[str, str] = {flag.lstrip("-"): key for key, flag in FLAGS.items() if flag is not None} | _SPELLINGS

#: First release with the algorithm.
ALGORITHM_SINCE: dict[str, str] = {
    "EAGLE": "0.5.6",
    "EAGLE3": "0.5.6",
    "NEXTN": "0.5.6",
    "STANDALONE": "0.5.6",
    "NGRAM": "0.5.6",
    "DFLASH": "0.5.11",
    "FROZEN_KV_MTP": "0.5.12",
    "DSPARK": "0.5.16",
    "UNO": "0.5.20",
}

_KV_DTYPES_OLD = ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1")
_KV_DTYPES_NEW = (*_KV_DTYPES_OLD, "mxfp8", "nvfp4", "fp4_mx_block16")


def facts_version(engine: EngineSection) -> str:
    """The release whose flags a server takes: that of the sizing rule for development builds and forks."""
    return rule_version(engine)


def flag_name(key: str, version: str) -> str | None:
    """The flag of a configuration key in a version; None when the version has no such flag."""
    if key == "memory.mamba_radix_cache_strategy":
        if at_least(version, "0.5.14"):
            return "--mamba-radix-cache-strategy"
        return "--mamba-scheduler-strategy" if at_least(version, "0.5.7") else None
    if key == "memory.cuda_graph_max_bs":
        return "--cuda-graph-max-bs-decode" if at_least(version, "0.5.14") else "--cuda-graph-max-bs"
    return FLAGS.get(key)


@functools.cache
def released_flags() -> dict[str, tuple[str, str]]:
    """Flag without dashes -> the first and the last release that has it, of the releases that were read."""
    rows = (DATA / "sglang_flags.txt").read_text(encoding="utf-8").splitlines()
    return {name: (first, last) for name, first, last in (row.split() for row in rows if not row.startswith("#"))}


def whole_flag(spelling: str) -> str:
    """A flag as the releases spell it, dashed and without leading dashes.

    SGLang's parser takes abbreviations (--tp is --tp-size). One that could mean a flag with a key, of one key only, is
    that flag, also where later releases have other flags that begin like it.
    """
    name = spelling.lstrip("-").replace("_", "-")
    if not name or name in released_flags():
        return name
    longer = [flag for flag in released_flags() if flag.startswith(name)]
    keyed = [flag for flag in longer if flag in _KEYS]
    if len({_KEYS[flag] for flag in keyed}) == 1:
        return keyed[0]
    return longer[0] if len(longer) == 1 else name


def key_of_flag(spelling: str) -> str | None:
    """The configuration key of a flag, however it is spelled: --tp, tensor_parallel_size -> parallel.tp_size."""
    return _KEYS.get(whole_flag(spelling))


def spellings_of(key: str) -> tuple[str, ...]:
    """Every name that the flag of a configuration key has had, without dashes."""
    return tuple(name for name, known in _KEYS.items() if known == key)


def kv_dtypes(version: str) -> tuple[str, ...]:
    """Choices of --kv-cache-dtype (read in 0.5.12 and 0.5.16)."""
    return _KV_DTYPES_NEW if at_least(version, "0.5.16") else _KV_DTYPES_OLD
