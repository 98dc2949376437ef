"""Flags under `engine.args`: which belong under a key of their own, and which the prediction cannot follow.

In: a configuration. Out: a ConfigError for a flag that has a key, since the prediction reads keys only; sentences for
the rest. Silent are the flags that change no memory, and those that are followed: switches, backends and sizes of CUDA
graphs, max-prefill-tokens, moe-a2a-backend, of disaggregation-mode the default fraction and the prefix cache,
mamba-track-interval, linear-attn-backend, mm-feature-transport, speculative-dflash-block-size,
speculative-dspark-block-size, speculative-ddtree-budget, speculative-ngram-max-bfs-breadth,
speculative-draft-kv-cache-dtype, dsa-*-backend, enable-linear-replayssm-spec where it reaches the model,
linear-replayssm-cache-len.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterator
from typing import Any

from ...configuration.config import EngineSection, RunConfig
from ...errors import ConfigError
from ...specs import ModelSpec
from ...versions import at_least, version_key
from .families import keeps_rings
from .flags import facts_version, key_of_flag, released_flags, whole_flag
from .sizing import rule_for

#: Keys of ours that are no memory: the address and the model.
_ELSEWHERE = {"model-path": "model", "model": "model", "host": "engine.host", "port": "engine.port"}

_WEIGHTS = "the weights"
_RANKS = "how the model is split over the ranks"
_LORA = "the weights: adapters and their buffers"
_OFFLOAD = "the weights that stay on the GPU"
_STATE = "the state pool or the speculative scratch"
_KV = "the KV pool"
_DRAFT = "the draft's memory"
_SLACK = "what is left outside the pools"

#: Flags that change memory, and what of it. Sources: argument definitions, memory_hook.py, kv_cache_configurator.py.
_UNFOLLOWED: dict[str, str] = {
    **dict.fromkeys(("quantization", "dtype", "torchao-config", "modelopt-quant", "quantize-and-serve"), _WEIGHTS),
    **dict.fromkeys(("json-model-override-args", "model-impl", "enable-fp32-lm-head", "rl-quant-profile"), _WEIGHTS),
    **dict.fromkeys(("language-only", "language-model-only", "encoder-only", "weight-cache-mode"), _WEIGHTS),
    **dict.fromkeys(("ep-num-redundant-experts", "init-expert-location", "enable-eplb", "max-ep-size"), _WEIGHTS),
    **dict.fromkeys(("cpu-offload-gb", "offload-group-size", "ple-offload-embedding"), _OFFLOAD),
    **dict.fromkeys(("kt-weight-path", "kt-method", "kt-num-gpu-experts", "enable-paged-experts"), _OFFLOAD),
    **dict.fromkeys(("enable-lora", "lora-paths", "uno-lora-path"), _LORA),
    **dict.fromkeys(("ep", "ep-size", "expert-parallel-size", "nnodes", "dwdp-size", "enable-layernorm-sp"), _RANKS),
    **dict.fromkeys(("moe-dp-size", "moe-data-parallel-size", "moe-dense-tp-size", "shared-experts-tp-size"), _RANKS),
    **dict.fromkeys(("attn-cp-size", "attention-context-parallel-size", "dcp-size"), _RANKS),
    **dict.fromkeys(("decode-context-parallel-size", "attn-dp-size", "attention-data-parallel-size"), _RANKS),
    **dict.fromkeys(("enable-dp-lm-head", "mm-enable-dp-encoder", "enable-dense-mlp-attn-tp"), _RANKS),
    **dict.fromkeys(("enable-shared-experts-attn-tp", "enable-kv-cache-sharding"), _RANKS),
    **dict.fromkeys(("enable-unified-memory", "enable-linear-replayssm", "enable-linear-replayssm-spec"), _STATE),
    **dict.fromkeys(("enable-gdn-replayssm-spec", "enable-page-major-kv-layout"), _STATE),
    "enable-int8-mamba-checkpoint": "the state: a pool of checkpoints beside it",
    **dict.fromkeys(("hybrid-kvcache-ratio",), _KV),
    **dict.fromkeys(("prefill-only-disable-kv-cache", "enable-hisparse", "enable-double-sparsity"), _KV),
    **dict.fromkeys(("kv-canary", "disaggregation-decode-extra-slots"), _KV),
    "disaggregation-mode": "the pools beyond the prefix cache (from 0.5.18 a prefill server keeps no scratch, a decode "
    "server has rows for requests on their way)",
    **dict.fromkeys(("speculative-draft-model-quantization", "speculative-token-map"), _DRAFT),
    **dict.fromkeys(("enable-multi-layer-eagle", "speculative-draft-load-format"), _DRAFT),
    "speculative-adaptive": _SLACK,  # graphs of every candidate; the pools are followed
    "speculative-adaptive-config": "the scratch, which has the size of the widest candidate in that file",
    **dict.fromkeys(("enable-memory-saver", "enable-torch-compile", "enable-symm-mem", "enable-pdmux"), _SLACK),
    **dict.fromkeys(
        ("enable-two-batch-overlap", "enable-return-routed-experts", "enable-return-hidden-states"), _SLACK
    ),
    "config": "any flag: it names a file with further ones",
    "device": "everything: only CUDA devices are sized (and cpu, with gpu.name: cpu)",
}
#: Flags that change memory, or what stands beside it, and are followed (underscored: as they are printed).
_FOLLOWED = frozenset(
    {
        *(
            "disable_cuda_graph",
            "disable_decode_cuda_graph",
            "disable_prefill_cuda_graph",
            "disable_cuda_graph_padding",
        ),
        *("cuda_graph_backend_decode", "cuda_graph_backend_prefill", "cuda_graph_bs", "cuda_graph_bs_decode"),
        *("cuda_graph_bs_prefill", "cuda_graph_max_bs_prefill", "piecewise_cuda_graph_max_tokens"),
        *("enable_piecewise_cuda_graph", "disable_piecewise_cuda_graph", "enforce_piecewise_cuda_graph"),
        *("max_prefill_tokens", "moe_a2a_backend", "disaggregation_mode", "disaggregation_decode_enable_radix_cache"),
        *("mamba_track_interval", "linear_attn_backend", "attention_backend", "mm_feature_transport"),
        *("language_only", "language_model_only", "swa_full_tokens_ratio", "disable_hybrid_swa_memory"),
        *("speculative_dflash_block_size", "speculative_dspark_block_size", "speculative_ddtree_budget"),
        *("speculative_ngram_max_bfs_breadth", "speculative_draft_kv_cache_dtype", "speculative_draft_window_size"),
        *("enable_linear_replayssm_spec", "linear_replayssm_cache_len", "quantization"),
        *(f"{kind}_{stage}_backend" for kind in ("dsa", "nsa") for stage in ("prefill", "decode")),
    }
)
#: Flags that move the default of --mem-fraction-static, and nothing else of the pools.
_DEFAULT_FRACTION = frozenset(
    {"cuda-graph-config", "enable-breakable-cuda-graph", "torch-compile-max-bs", "deepep-mode"}
)
_ATTENTION = frozenset({f"{part}attention-backend" for part in ("", "prefill-", "decode-", "speculative-draft-")})
#: Attention backends that set a page size when none is given.
_PAGED = frozenset({"flashmla", "cutlass_mla", "trtllm_mla", "tokenspeed_mla", "cutedsl_mla", "trtllm_mha", "hpc_ops"})
_QUANTIZING_FORMATS = frozenset({"gguf", "bitsandbytes"})
#: Values by which a flag asks for what happens without it.
_NEUTRAL = (None, False, 0, "auto", "none", "null", "off", "cuda")
#: Defaults that a server prints, and that ask for nothing.
_PRINTED_DEFAULTS: dict[str, Any] = {
    "kt_method": "AMXINT4",
    "offload_group_size": -1,
    "json_model_override_args": "{}",
    "init_expert_location": "trivial",
}
_SAME_TYPE = {"half": "float16", "float": "float32"}


def reject_keyed(engine: EngineSection, where: str = "") -> None:
    """ConfigError (two lines) for a flag in `engine.args` that has a key: the prediction would not see it.

    `where`: the file, for the message.
    """
    for given, value in engine.args.items():
        key = key_of_flag(given) or _ELSEWHERE.get(whole_flag(given))
        if key is not None:
            raise ConfigError(
                f"{where}{': ' if where else ''}engine.args.{given}: has a key of its own.\n"
                f"Write {key}: {value if isinstance(value, str) else json.dumps(value)}, and leave it out of "
                "engine.args."
            )


def decides_memory(printed: str, value: Any) -> bool:
    """Whether an argument that has no key, as a server prints it, changes memory: followed by the prediction or not."""
    if value in (*_NEUTRAL, "") or (value == 1 and value is not True) or _PRINTED_DEFAULTS.get(printed) == value:
        return False
    flag = whole_flag(printed)
    return printed in _FOLLOWED or (flag in _UNFOLLOWED and flag != "device")


def notes(config: RunConfig, target: ModelSpec) -> tuple[str, ...]:
    """A sentence for every flag in `engine.args` that changes memory unseen, or that no release has."""
    version = facts_version(config.engine)
    return tuple(
        note
        for given, value in config.engine.args.items()
        if not (value is None or value is False)
        for note in _notes(config, target, version, given, value)
    )


def _notes(config: RunConfig, target: ModelSpec, version: str, given: str, value: Any) -> Iterator[str]:
    flag = whole_flag(given)
    if flag not in released_flags():
        yield f"engine.args.{given}: no SGLang release that was read has --{flag}{_near(flag)}; a fork may."
        return
    if not _has(version, *released_flags()[flag]):
        first, last = released_flags()[flag]
        span = first if first == last else f"{first} to {last}"
        yield f"engine.args.{given}: SGLang {version} has no --{flag} (seen in {span}) and will refuse it."
    changed = _changed(config, target, flag, value)
    if changed is not None:
        yield f"engine.args.{given} changes {changed}: not taken into account."


def _changed(config: RunConfig, target: ModelSpec, flag: str, value: Any) -> str | None:
    if flag in _ATTENTION:
        paged = str(value) in _PAGED and config.memory.page_size is None
        return "the page size (give memory.page_size)" if paged else None
    if flag == "load-format":
        return _WEIGHTS if str(value) in _QUANTIZING_FORMATS else None
    if value in _NEUTRAL or (flag == "dtype" and _SAME_TYPE.get(str(value), value) == target.dtype):
        return None
    if value == 1 and value is not True:  # one of a size, one node
        return None
    if flag == "device" and value == config.gpu.name:  # gpu.name: cpu
        return None
    if flag == "enable-linear-replayssm-spec":
        version = facts_version(config.engine)
        return None if keeps_rings(target, rule_for(version), version) else _STATE
    if flag == "quantization" and str(value) in target.quantization_names:
        return None
    if flag in _DEFAULT_FRACTION and config.memory.mem_fraction_static is None:
        return "the default memory fraction (give memory.mem_fraction_static)"
    return _UNFOLLOWED.get(flag)


def _has(version: str, first: str, last: str) -> bool:
    """Whether a release has a flag, or may: between two releases that were read, either may speak for it."""
    earlier = [known for known in _releases() if at_least(version, known)][-1:]
    later = [known for known in _releases() if at_least(known, version)][:1]
    return any(at_least(known, first) and at_least(last, known) for known in (*earlier, *later))


@functools.cache
def _releases() -> tuple[str, ...]:
    """Those that were read, oldest first."""
    return tuple(sorted({bound for bounds in released_flags().values() for bound in bounds}, key=version_key))


def _near(flag: str) -> str:
    found = difflib.get_close_matches(flag, released_flags(), n=1, cutoff=0.75)
    return f" (did you mean {key_of_flag(found[0]) or 'engine.args.' + found[0]}?)" if found else ""
