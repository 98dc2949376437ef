"""What SGLang does for particular families of models, by version. In: a model or its architecture's name. Out: facts.

The non-obvious thing is how much of sizing hangs on the name: `auto` means extra buffers only for architectures on a
list, sparse attention fixes page and KV type, some drafts are charged because the engine gives itself a draft path.
Sources: server_args.py up to 0.5.15, arg_groups/ (overrides.py, speculative_hook.py, model_overrides/) later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ... import quantization
from ...gpus import GpuSpec
from ...layers import GatedDeltaNet, IndexedAttention, KimiDelta, LatentAttention
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
    "KimiK3ForConditionalGeneration": "0.5.17",
    **dict.fromkeys(("Qwen3_5MoeForCausalLM", "Qwen3_5ForCausalLM", "BailingMoeV3ForCausalLM"), "0.5.19"),
    **dict.fromkeys(("Qwen4ExpForConditionalGeneration", "Glm5NextForConditionalGeneration"), "0.5.20"),
}

#: Architecture -> first version that settles strategy and overlap for its state; before, nothing looks at them.
_STRATEGY_SETTLED_SINCE: dict[str, str] = {"Lfm2MoeForCausalLM": "0.5.17"}

#: Architecture -> first version that takes the target's own path for the draft's, so that its KV is charged.
_OWN_DRAFT_PATH_SINCE: dict[str, str] = {
    **dict.fromkeys(
        ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "BailingMoeV2_5ForCausalLM"),
        "0.5.14",
    ),
    "Qwen4ExpForConditionalGeneration": "0.5.20",
}

#: Architecture -> versions from and until which the engine turns its prefix cache off ("not yet supported").
_NO_RADIX_CACHE: dict[str, tuple[str, str | None]] = {
    "KimiLinearForCausalLM": ("0.5.6", "0.5.14"),
    "BailingMoeV2_5ForCausalLM": ("0.5.9", "0.5.13"),
    "MiniCPMSALAForCausalLM": ("0.5.19", None),
    **dict.fromkeys(("NemotronHForCausalLM", "FalconH1ForCausalLM"), ("0.5.6", "0.5.6.post1")),
}

#: Architecture -> (last version without it, first version with it), of those that were read.
_SERVED_SINCE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "GlmMoeDsaForCausalLM",
            "BailingMoeV2_5ForCausalLM",
            "GraniteMoeHybridForCausalLM",
            "Lfm2ForCausalLM",
            "Lfm2MoeForCausalLM",
        ),
        ("0.5.8", "0.5.9"),
    ),
    "KimiK3ForConditionalGeneration": ("0.5.16", "0.5.17"),
    "GigaChat35ForCausalLM": ("0.5.20", "0.5.21"),
    **dict.fromkeys(("BailingMoeV3ForCausalLM", "MiniCPMSALAForCausalLM"), ("0.5.18", "0.5.19")),
    **dict.fromkeys(
        ("Glm5NextForConditionalGeneration", "Qwen4ExpForConditionalGeneration"),
        ("0.5.19", "0.5.20"),
    ),
}

#: Architecture -> versions from and until which its prefix cache is turned off as soon as anything drafts.
_NO_RADIX_CACHE_WITH_DRAFTS: dict[str, tuple[str, str]] = {"NemotronHForCausalLM": ("0.5.8", "0.5.10")}

#: Architectures whose classes assert that they are the first pipeline stage and the last, up to 0.5.23.
_ONE_STAGE = frozenset(
    {"FalconH1ForCausalLM", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Qwen3NextForCausalLM"},
)

#: Architecture -> versions from and until which its class cannot be built, and how that ends. (Jet-Nemotron: seen with
#: 0.5.16; models/qwen2.py passes what models/jet_nemotron.py takes only from 0.5.22.)
_BROKEN: dict[str, tuple[str, str, str]] = {
    "JetNemotronForCausalLM": (
        "0.5.13",
        "0.5.22",
        "TypeError: JetNemotronDecoderLayer.__init__() got an unexpected keyword argument 'start_layer'",
    ),
}

#: Architecture -> first version that takes extra_buffer when it is asked for, and first that no more does; None: none.
_TAKES_EXTRA_BUFFERS: dict[str, tuple[str | None, str | None]] = {
    **dict.fromkeys(
        ("NemotronHForCausalLM", "FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM"),
        ("0.5.13", None),
    ),
    "JetNemotronForCausalLM": ("0.5.13", "0.5.14"),
    "Lfm2ForCausalLM": (None, None),
    "Lfm2MoeForCausalLM": ("0.5.9", "0.5.17"),  # nobody asks before 0.5.17
    "KimiLinearForCausalLM": ("0.5.16", None),
    "GigaChat35ForCausalLM": (None, None),
}

#: Architecture -> versions from and until which --attention-backend triton does not work, and whether an assertion says
#: so. Without one the server dies as the backend reads layer 0, which has no KV (layers/attention/triton_backend.py).
_NO_TRITON_ATTENTION: dict[str, tuple[tuple[str, str | None, bool], ...]] = {
    "NemotronHForCausalLM": (("0.5.7", "0.5.19", True),),
    "Lfm2ForCausalLM": (("0.5.9", None, True),),
    "Lfm2MoeForCausalLM": (("0.5.9", "0.5.17", False), ("0.5.17", None, True)),
    "GraniteMoeHybridForCausalLM": (("0.5.9", "0.5.18", False),),
}

#: Architecture -> first version in which it hands over its embedding and head (EAGLE, NEXTN), hidden states of its
#: layers to an EAGLE3 draft, and to a DFLASH or DSPARK draft; None: in none up to 0.5.23.
_FEEDS_DRAFTS: dict[str, tuple[str | None, str | None, str | None]] = {
    "NemotronHForCausalLM": ("0.5.6", None, "0.5.19"),
    "FalconH1ForCausalLM": ("0.5.6", None, None),
    "GraniteMoeHybridForCausalLM": (None, None, None),
    "Lfm2ForCausalLM": (None, None, "0.5.19"),
    "Lfm2MoeForCausalLM": (None, None, "0.5.19"),
    "JetNemotronForCausalLM": (None, None, None),
    "KimiLinearForCausalLM": (None, None, "0.5.17"),
    "KimiK3ForConditionalGeneration": (None, None, "0.5.17"),
    "BailingMoeV2_5ForCausalLM": ("0.5.9", None, None),
    "BailingMoeV3ForCausalLM": ("0.5.19", None, "0.5.19"),
    "MiniCPMSALAForCausalLM": (None, None, None),
    "GigaChat35ForCausalLM": ("0.5.21", None, None),
}

#: Architectures whose KDA layers may keep rings of inputs from 0.5.17 on; all from 0.5.21.
_RINGS_FIRST = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")

_PAGE = 64  # tokens of a page that sparse attention works in


def _within(versions: tuple[str, str | None] | None, version: str) -> bool:
    """Whether a version lies between two, the latter excluded and perhaps open; False without an interval."""
    if versions is None or not at_least(version, versions[0]):
        return False
    return versions[1] is None or not at_least(version, versions[1])


def supports_extra_buffers(architecture: str, version: str) -> bool:
    """Whether `auto` may become extra_buffer for this architecture."""
    since = _EXTRA_BUFFERS_SINCE.get(architecture)
    return since is not None and at_least(version, since)


def takes_extra_buffers(architecture: str, version: str) -> bool:
    """Whether extra_buffer may be asked for: also where there is no prefix cache to which it would matter.

    Of architectures that are not listed nothing is known against it.
    """
    if architecture not in _TAKES_EXTRA_BUFFERS or _within(_NO_RADIX_CACHE.get(architecture), version):
        return True
    since, until = _TAKES_EXTRA_BUFFERS[architecture]
    return since is not None and at_least(version, since) and (until is None or not at_least(version, until))


def refuses_triton_attention(architecture: str, version: str) -> Literal["asserts", "dies"] | None:
    """How a server with --attention-backend triton ends; None: it works, as far as is known."""
    for since, until, asserts in _NO_TRITON_ATTENTION.get(architecture, ()):
        if at_least(version, since) and (until is None or not at_least(version, until)):
            return "asserts" if asserts else "dies"
    return None


Feed = Literal["embedding", "eagle3", "block"]


def feeds_draft(architecture: str, version: str, feed: Feed) -> bool:
    """Whether the model has what a draft of the kind asks of its target. True for architectures that are not listed."""
    if architecture not in _FEEDS_DRAFTS:
        return True
    since = _FEEDS_DRAFTS[architecture][("embedding", "eagle3", "block").index(feed)]
    return since is not None and at_least(version, since)


def settles_strategy(architecture: str, version: str) -> bool:
    """Whether the engine settles how the prefix cache handles the state of this architecture."""
    since = _STRATEGY_SETTLED_SINCE.get(architecture)
    return since is None or at_least(version, since)


def settles_pages(version: str) -> bool:
    """Whether no_buffer makes pages of one token; before, the prefix cache asserts them when the pools stand."""
    return at_least(version, "0.5.11")


def obeys_fp8_kv(target: ModelSpec, rule: Rule, version: str) -> bool:
    """Whether a checkpoint that asks for KV in fp8 gets it.

    Up to 0.5.14 mixed checkpoints are read as W4AFP8 (model_config.py), which asks for nothing, but for Nemotron-H.
    """
    if target.fp8_kv_of == "modelopt_mixed" and not target.architecture.startswith("NemotronH"):
        return at_least(version, "0.5.15")
    return target.fp8_kv_of in rule.fp8_kv_of


def draft_obeys_fp8_kv(draft: ModelSpec, rule: Rule, version: str) -> bool:
    """The same of a draft that is asked by itself (from 0.5.18). ModelOpt's FP4 is not for heads of Qwen3.5, but for
    those whose layers a mixed checkpoint lists (models/qwen3_5_mtp.py, _mtp_quant_config)."""
    fp4 = draft.fp8_kv_of in ("modelopt_fp4", "modelopt_mixed")
    if not (fp4 and draft.is_builtin_draft and draft.architecture.startswith("Qwen3_5")):
        return obeys_fp8_kv(draft, rule, version)
    told = quantization.section(draft.config)
    layers = told.section_or_none("quantized_layers") if told is not None else None
    listed = layers is not None and any(name.startswith("mtp.") for name in layers.data)
    return listed and draft.fp8_kv_of == "modelopt_mixed" and at_least(version, "0.5.20")


def drafts_from_own_path(target: ModelSpec, version: str) -> bool:
    """Whether a head of the target's own counts as a draft with a path: the solver then charges its KV.

    From 0.5.20 it is also enough that the target's config names the head (num_nextn_predict_layers).
    """
    since = _OWN_DRAFT_PATH_SINCE.get(target.architecture)
    if since is not None and at_least(version, since):
        return True
    named = target.family.text(target.config).data.get("num_nextn_predict_layers") is not None
    return named and at_least(version, "0.5.20")


def disables_radix_cache(architecture: str, version: str, *, speculates: bool) -> bool:
    """Whether the engine turns the prefix cache off by itself."""
    if _within(_NO_RADIX_CACHE.get(architecture), version):
        return True
    return speculates and _within(_NO_RADIX_CACHE_WITH_DRAFTS.get(architecture), version)


def drops_radix_cache_for_drafts(architecture: str, version: str, strategy: str) -> bool:
    """Whether drafts without extra buffers end the prefix cache of a model with state (0.5.9; refused from 0.5.10)."""
    only = at_least(version, "0.5.9") and not at_least(version, "0.5.10")
    return only and not strategy.startswith("extra_buffer") and settles_strategy(architecture, version)


def is_one_stage(architecture: str) -> bool:
    """Whether the model cannot be cut into pipeline stages."""
    return architecture in _ONE_STAGE


def keeps_rings(target: ModelSpec, rule: Rule, version: str) -> bool:
    """Whether --enable-linear-replayssm-spec reaches the linear layers of a model: one kind of delta rule in all."""
    kinds = {type(layer) for layer in target.state_layers}
    if rule.rings == "none" or kinds not in ({GatedDeltaNet}, {KimiDelta}):
        return False
    return kinds == {GatedDeltaNet} or at_least(version, "0.5.21") or target.architecture in _RINGS_FIRST


def not_served(architecture: str, version: str) -> str | None:
    """The first version read that serves an architecture which `version` lacks; None: nothing is known against it."""
    known = _SERVED_SINCE.get(architecture)
    return known[1] if known is not None and at_least(known[0], version) else None


def broken(architecture: str, version: str) -> tuple[str, str] | None:
    """How a start ends with an architecture that the version names but cannot build, and the version that can again."""
    if architecture not in _BROKEN:
        return None
    since, until, error = _BROKEN[architecture]
    return (error, until) if at_least(version, since) and not at_least(version, until) else None


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


def always_dp_attention(target: ModelSpec, version: str) -> bool:
    """Whether several data-parallel workers are those of DP attention, asked for or not (0.5.6, server_args.py)."""
    return is_sparse_latent(target) and not at_least(version, "0.5.8")


def bare_fp8(rule: Rule, gpu: GpuSpec, args: Mapping[str, object]) -> bool:
    """Whether fp8 latent KV of sparse attention is kept without scales: what the trtllm kernels read.

    They are the default for fp8 on Blackwell from 0.5.10 (`_set_default_nsa_backends`).
    """
    chosen = [args.get(f"{kind}_{stage}_backend") for kind in ("dsa", "nsa") for stage in ("prefill", "decode")]
    given = [backend for backend in chosen if backend is not None]
    default = rule.raw_on_blackwell and gpu.is_blackwell
    return "trtllm" in given or (default and len(given) < 2)
