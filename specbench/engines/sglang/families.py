"""What SGLang does for particular families of models, by version. In: a model or its architecture's name. Out: facts.

The non-obvious thing is how much of sizing hangs on the name: `auto` means extra buffers only for architectures on a
list, sparse attention fixes page and KV type, some drafts are charged because the engine gives itself a draft path.
Sources: server_args.py up to 0.5.15, arg_groups/ (overrides.py, speculative_hook.py, model_overrides/) later.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...layers import IndexedAttention, LatentAttention
from ...specs import ModelSpec
from ...versions import at_least
from .sizing.contract import Rule

#: Architecture -> first version whose `auto` can mean extra buffers (_MAMBA_EXTRA_BUFFER_ARCHS). A name that is not
#: here gets no_buffer.
_EXTRA_BUFFERS_SINCE: dict[str, str] = {
    **dict.fromkeys(
        (
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
            "Qwen3NextForCausalLM",
            "BailingMoeV2_5ForCausalLM",
            "FalconH1ForCausalLM",
            "GraniteMoeHybridForCausalLM",
            "NemotronHForCausalLM",
        ),
        "0.5.14",
    ),
    "KimiLinearForCausalLM": "0.5.16",
    "KimiK3ForConditionalGeneration": "0.5.18",
    **dict.fromkeys(
        (
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5ForCausalLM",
            "Qwen4ExpForConditionalGeneration",
            "BailingMoeV3ForCausalLM",
            "Glm5NextForConditionalGeneration",
        ),
        "0.5.20",
    ),
}

#: Architecture -> first version that takes the target's own path for the draft's, so that its KV is charged.
_OWN_DRAFT_PATH_SINCE: dict[str, str] = {
    **dict.fromkeys(
        ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "BailingMoeV2_5ForCausalLM"),
        "0.5.14",
    ),
    "Qwen4ExpForConditionalGeneration": "0.5.20",
}

#: Architecture -> first version that turns its prefix cache off.
_NO_RADIX_CACHE_SINCE: dict[str, str] = {"MiniCPMSALAForCausalLM": "0.5.20"}

#: Architecture -> (last version without it, first version with it), of those that were read.
_SERVED_SINCE: dict[str, tuple[str, str]] = {
    "GlmMoeDsaForCausalLM": ("0.5.8", "0.5.10"),
    "BailingMoeV2_5ForCausalLM": ("0.5.8", "0.5.10"),
    "KimiK3ForConditionalGeneration": ("0.5.16", "0.5.18"),
    "GigaChat35ForCausalLM": ("0.5.20", "0.5.22"),
    **dict.fromkeys(
        (
            "Glm5NextForConditionalGeneration",
            "BailingMoeV3ForCausalLM",
            "MiniCPMSALAForCausalLM",
            "Qwen4ExpForConditionalGeneration",
        ),
        ("0.5.18", "0.5.20"),
    ),
}

_PAGE = 64  # tokens of a page that sparse attention works in
_BLACKWELL = ("b200", "b300", "gb", "rtx-pro-6000", "rtx-50")  # compute capability 10 and more


def supports_extra_buffers(architecture: str, version: str) -> bool:
    """Whether `auto` may become extra_buffer for this architecture."""
    since = _EXTRA_BUFFERS_SINCE.get(architecture)
    return since is not None and at_least(version, since)


def drafts_from_own_path(target: ModelSpec, version: str) -> bool:
    """Whether a head of the target's own counts as a draft with a path: the solver then charges its KV.

    From 0.5.20 it is also enough that the target's config names the head (num_nextn_predict_layers).
    """
    since = _OWN_DRAFT_PATH_SINCE.get(target.architecture)
    if since is not None and at_least(version, since):
        return True
    named = target.family.text(target.config).data.get("num_nextn_predict_layers") is not None
    return named and at_least(version, "0.5.20")


def disables_radix_cache(architecture: str, version: str) -> bool:
    """Whether the engine turns the prefix cache off by itself."""
    since = _NO_RADIX_CACHE_SINCE.get(architecture)
    return since is not None and at_least(version, since)


def not_served(architecture: str, version: str) -> str | None:
    """The first version read that serves an architecture which `version` lacks; None: nothing is known against it."""
    known = _SERVED_SINCE.get(architecture)
    return known[1] if known is not None and at_least(known[0], version) else None


def fixed_page_size(target: ModelSpec, rule: Rule) -> int | None:
    """The page that sparse attention fixes whatever is asked, on a GPU, tokens; None: the configuration's."""
    for layer in target.attention_layers:
        if isinstance(layer, LatentAttention) and layer.index_dim is not None:
            return _PAGE * (layer.index_pool if rule.index_pooled else 1)
        if isinstance(layer, IndexedAttention):
            return _PAGE
    return None


def is_sparse_latent(target: ModelSpec) -> bool:
    """Latent attention with an indexer (DSA): types and kernels of its own."""
    return any(isinstance(layer, LatentAttention) and layer.index_dim is not None for layer in target.attention_layers)


def is_blackwell(gpu: str) -> bool:
    """By its name in the GPU table."""
    return gpu.startswith(_BLACKWELL)


def bare_fp8(rule: Rule, gpu: str, args: Mapping[str, object]) -> bool:
    """Whether fp8 latent KV of sparse attention is kept without scales: what the trtllm kernels read.

    They are the default for fp8 on Blackwell from 0.5.10 (`_set_default_nsa_backends`).
    """
    chosen = [args.get(f"{kind}_{stage}_backend") for kind in ("dsa", "nsa") for stage in ("prefill", "decode")]
    given = [backend for backend in chosen if backend is not None]
    default = rule.raw_on_blackwell and is_blackwell(gpu)
    return "trtllm" in given or (default and len(given) < 2)
