"""Whether a version captures CUDA graphs for prefill, which lower the default fraction. In: a configuration's parts.

Opt-in up to 0.5.8; then on unless something on a list is in the way. The list was long while torch.compile made the
graphs (0.5.10 to 0.5.14), and other from 0.5.15 on, where they are broken at what cannot be captured. Sources:
_handle_piecewise_cuda_graph of server_args.py of 0.5.10, 0.5.12 and 0.5.13, _apply_cuda_graph_compatibility of 0.5.14
to 0.5.18, arg_groups/cuda_graph_hook.py of 0.5.19 to 0.5.23; lists of architectures: configs/model_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....configuration.config import ParallelSection
from ....layers import LatentAttention
from ....specs import ModelSpec
from ....versions import at_least
from ..families import is_sparse_latent

#: Architecture -> versions [first, end) of those read whose compiled prefill graphs leave it out.
_NOT_COMPILED: dict[str, tuple[str, str]] = {
    "Qwen3NextForCausalLM": ("0.5.10", "0.5.15"),
    "BailingMoeV2_5ForCausalLM": ("0.5.10", "0.5.15"),
    "DeepseekV4ForCausalLM": ("0.5.12", "0.5.15"),
    "DeepseekV32ForCausalLM": ("0.5.10", "0.5.13"),
    "GlmMoeDsaForCausalLM": ("0.5.10", "0.5.13"),
}
#: Multimodal architecture -> first version read that captures its prefill all the same.
_MULTIMODAL_SINCE: dict[str, str] = {
    "Cohere2VisionForConditionalGeneration": "0.5.14",
    **dict.fromkeys(("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"), "0.5.16"),
    **dict.fromkeys(("KimiK25ForConditionalGeneration", "MiniMaxM3SparseForConditionalGeneration"), "0.5.16"),
    **dict.fromkeys(("KimiK3ForConditionalGeneration", "MuseGlimmerForConditionalGeneration"), "0.5.18"),
    "InternS2MobiusForConditionalGeneration": "0.5.18",
    "PaddleOCRVLForConditionalGeneration": "0.5.19",
    "Glm5NextForConditionalGeneration": "0.5.20",
    "Qwen4ExpForConditionalGeneration": "0.5.22",
}
#: Flags that torch.compile's graphs do not go with.
_COMPILED_WITHOUT = (
    *("enable_torch_compile", "enable_lora", "lora_paths", "cpu_offload_gb", "enable_hierarchical_cache"),
    *("enable_deterministic_inference", "enable_symm_mem", "enable_eplb", "expert_distribution_recorder_mode"),
    *("debug_cuda_graph", "dllm_algorithm", "enable_dsa_prefill_context_parallel"),
)
_MOVES_BETWEEN_EXPERTS = ("none", "deepep", "megamoe", "flashinfer")  # moe_a2a_backend, from 0.5.17


def uses_mla(target: ModelSpec) -> bool:
    """Whether any layer has latent attention (MLA)."""
    return any(isinstance(layer, LatentAttention) for layer in target.attention_layers)


def captures_prefill(
    version: str, args: Mapping[str, Any], parallel: ParallelSection, target: ModelSpec, algorithm: str
) -> bool:
    """`args`: further server flags by underscored name."""
    if not at_least(version, "0.5.10"):
        return bool(args.get("enable_piecewise_cuda_graph", False))
    chosen = args.get("cuda_graph_backend_prefill")
    if chosen is not None and at_least(version, "0.5.14"):
        return bool(chosen != "disabled")
    if args.get("disable_prefill_cuda_graph") or args.get("disable_piecewise_cuda_graph"):
        return False
    if args.get("enforce_piecewise_cuda_graph"):
        return True
    if args.get("disable_cuda_graph") and at_least(version, "0.5.14"):
        return False
    served = args.get("disaggregation_mode", "null")
    if served == "decode" and at_least(version, "0.5.15"):
        return False
    if served == "prefill" and at_least(version, "0.5.15") and not at_least(version, "0.5.16"):
        return False  # 0.5.15 turns off all graphs of a prefill server
    if not at_least(version, "0.5.15"):
        return _compiles(version, args, parallel, target, algorithm)
    return _breaks(version, args, parallel, target)


def _compiles(
    version: str, args: Mapping[str, Any], parallel: ParallelSection, target: ModelSpec, algorithm: str
) -> bool:
    first, end = _NOT_COMPILED.get(target.architecture, ("", ""))
    blocked = bool(first) and at_least(version, first) and not at_least(version, end)
    return not (
        blocked
        or (algorithm != "none" and not at_least(version, "0.5.11"))
        or (target.multimodal and not _allows_images(version, target))
        or _shares_attention(parallel)
        or parallel.pp_size > 1
        or any(args.get(flag) for flag in _COMPILED_WITHOUT)
        or args.get("moe_a2a_backend", "none") != "none"
        or args.get("disaggregation_mode", "null") != "null"
        or _contexts(args) > 1
        or "gguf" in (args.get("load_format"), args.get("quantization"))
    )


def _breaks(version: str, args: Mapping[str, Any], parallel: ParallelSection, target: ModelSpec) -> bool:
    moves = args.get("moe_a2a_backend", "none")
    if not at_least(version, "0.5.17") and (
        uses_mla(target) or args.get("lora_paths") or args.get("enable_lora") or moves != "none"
    ):
        return False
    if not at_least(version, "0.5.17") and _shares_attention(parallel):
        return False
    if _is_named_by_0_5_17(version, target):
        return False
    if at_least(version, "0.5.17") and (args.get("enable_two_batch_overlap") or moves not in _MOVES_BETWEEN_EXPERTS):
        return False
    if at_least(version, "0.5.19") and parallel.pp_size > 1:
        return False
    if at_least(version, "0.5.20") and _has_kda(version, target):
        return False
    if target.architecture == "DeepseekV4ForCausalLM" or _contexts(args) > 1:
        return False
    return not target.multimodal or _allows_images(version, target)


def _is_named_by_0_5_17(version: str, target: ModelSpec) -> bool:
    """Latent attention without an indexer, and Nemotron-H: of this release alone."""
    if not at_least(version, "0.5.17") or at_least(version, "0.5.18"):
        return False
    return target.architecture.startswith("NemotronH") or (uses_mla(target) and not is_sparse_latent(target))


def _allows_images(version: str, target: ModelSpec) -> bool:
    since = _MULTIMODAL_SINCE.get(target.architecture)
    return since is not None and at_least(version, since)


def _has_kda(version: str, target: ModelSpec) -> bool:
    if target.architecture == "Glm5NextForConditionalGeneration" and at_least(version, "0.5.22"):
        return False
    for section in (target.config, target.family.text(target.config)):
        linear = section.section_or_none("linear_attn_config")
        if linear is not None and linear.data.get("kda_layers"):
            return True
    return False


def _shares_attention(parallel: ParallelSection) -> bool:
    return parallel.enable_dp_attention and parallel.dp_size > 1


def _contexts(args: Mapping[str, Any]) -> int:
    """Ranks of context parallelism, of either kind."""
    sizes = [args.get(flag) for flag in ("attn_cp_size", "attention_context_parallel_size", "dcp_size")]
    return max((size for size in sizes if isinstance(size, int)), default=1)
