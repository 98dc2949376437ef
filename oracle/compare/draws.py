"""Random configurations: what the oracle can express, with awkward values more often than chance has them."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from specbench import specs
from specbench.configuration.config import SpeculativeSection
from specbench.engines.sglang.checks.parallelism import has_stage_without_kv
from specbench.engines.sglang.families import always_dp_attention, is_sparse_latent
from specbench.engines.sglang.flags import ALGORITHM_SINCE
from specbench.engines.sglang.sizing import rule_for
from specbench.engines.sglang.sizing.contract import Rule
from specbench.engines.sglang.widths import with_default_widths
from specbench.errors import SpecbenchError
from specbench.versions import at_least

from .points import Point

#: Totals as nvidia-smi shows them, MiB: T4, 4090, L40S, A100-40, H100, RTX PRO 6000, H200, B200, and others between.
_CARDS = (15360, 24564, 32607, 40960, 46068, 81559, 97887, 143771, 183359, 294912)
_PLAIN_DRAFTS = ("Qwen/Qwen3-8B", "meta-llama/Meta-Llama-3.1-8B")
#: Each can read a tree over pages in some releases and algorithms, or not.
_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_TREES = ((3, 2, 8), (4, 4, 16), (5, 8, 64), (2, 3, 4))  # steps, top-k, tokens

#: Model -> releases from and until which its config.json is read otherwise than published, so that no weights fit:
#: transformers 5.6 and 5.8 take `head_dim` of GLM-5.3, 192, for `qk_rope_head_dim`, 64; before 0.5.10 SGLang knows no
#: `layers_block_type` and takes a default of 52 layers.
_MISREAD = {
    "zai-org/GLM-5.3": ("0.5.11", "0.5.15"),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": ("0.5.6", "0.5.10"),
}


@functools.cache
def _targets() -> tuple[str, ...]:
    """Shipped models that are no drafts."""
    return tuple(name for name in specs.known_models() if specs.load_model(name).block_size is None)


@functools.cache
def _block_drafts(target: str, *, markov: bool) -> tuple[str, ...]:
    """Shipped DFLASH (DSPARK: `markov`) drafts that were trained on as many layers as the target has."""
    drafts = (specs.load_model(name) for name in specs.known_models())
    layers = len(specs.load_model(target).layers)
    return tuple(
        draft.name
        for draft in drafts
        if draft.block_size is not None
        and draft.trained_on_layers in (None, layers)
        and (not markov or "markov_rank" in draft.config.data)
    )


def points(version: str, served: frozenset[str]) -> st.SearchStrategy[Point]:
    """Configurations of one release, with models of the architectures that it serves."""
    models = [
        name for name in _targets() if specs.load_model(name).architecture in served and not _misread(name, version)
    ]
    return st.composite(_point)(version, models)  # type: ignore[no-any-return]


def _misread(model: str, version: str) -> bool:
    since, until = _MISREAD.get(model, (None, None))
    return since is not None and at_least(version, since) and not at_least(version, until or since)


def _point(draw: st.DrawFn, version: str, models: list[str]) -> Point:
    model = draw(st.sampled_from(models))
    speculative = _speculative(draw, model, version)
    parallel = _parallel(draw, version, model, speculative["algorithm"])
    gpus = parallel["tp_size"] * parallel["pp_size"]
    sections = {
        "name": "oracle",
        "engine": {"version": version, "enable_metrics": False},
        "model": model,
        "gpu": {"name": "h200", "count": gpus if parallel["enable_dp_attention"] else gpus * parallel["dp_size"]},
        "parallel": parallel,
        "speculative": speculative,
        "memory": _memory(draw, version, model),
    }
    if speculative["algorithm"] in ("NGRAM", "UNO") or _is_tree(version, model, speculative):
        # a tree on pages runs with some attention backends only, and which one is chosen depends on the card
        backend = draw(st.sampled_from((None, *_TREE_BACKENDS)))
        if backend is None or speculative["algorithm"] == "UNO" or _names_backends(model):
            sections["memory"].pop("page_size", None)
        else:
            sections["engine"]["args"] = {"attention-backend": backend}
    if speculative.get("draft_model_path") in _PLAIN_DRAFTS:
        sections["memory"].pop("context_length", None)  # no longer than the draft's own
    if sections["memory"].get("mamba_radix_cache_strategy") == "extra_buffer_lazy":
        # without overlap the solver refuses it, after it has refused for want of memory: either way it is refused
        sections["memory"].pop("disable_overlap_schedule", None)
        if parallel["pp_size"] > 1:
            sections["memory"]["mamba_radix_cache_strategy"] = "extra_buffer"
    card = draw(st.one_of(st.sampled_from(_CARDS), st.integers(15_000, 295_000)))
    pre = int(card * (1 << 20) * (1 - draw(st.floats(0.004, 0.06))))
    post = int(pre * draw(st.one_of(st.floats(0.02, 0.99), st.floats(0.5, 0.99), st.floats(0.7, 0.99))))
    return Point(sections=sections, card_mib=card, pre_bytes=pre, post_bytes=post)


def _is_tree(version: str, model: str, speculative: dict[str, Any]) -> bool:
    """Whether EAGLE drafts branch, as given or by default."""
    section = SpeculativeSection.model_validate(speculative)
    return (with_default_widths(section, rule_for(version), specs.load_model(model)).eagle_topk or 1) > 1


def _names_backends(model: str) -> bool:
    """Whether the engine takes some attention backends only for the model, whatever it drafts with."""
    return specs.load_model(model).architecture == "GptOssForCausalLM"


def _parallel(draw: st.DrawFn, version: str, model: str, algorithm: str) -> dict[str, Any]:
    target = specs.load_model(model)
    tp = draw(st.sampled_from([size for size in (1, 2, 4, 8, 16) if _splits(model, size)] or [1]))
    dp = draw(st.sampled_from((1, 1, 1, 1, 2, 4)))
    attention = dp > 1 and tp % dp == 0 and (draw(st.booleans()) or always_dp_attention(target, version))
    stages = draw(st.integers(1, 4)) if draw(st.integers(1, 4 if algorithm == "none" else 40)) == 4 else 1
    if has_stage_without_kv(rule_for(version), target, stages):
        stages = 1  # SGLang divides by zero, after what it may refuse for want of memory
    return {"tp_size": tp, "pp_size": stages, "dp_size": dp, "enable_dp_attention": attention}


@functools.cache
def _splits(model: str, tp: int) -> bool:
    try:
        return specs.load_model(model).why_not_split(tp, tp) is None
    except SpecbenchError:
        return False


def _speculative(draw: st.DrawFn, model: str, version: str) -> dict[str, Any]:
    target = specs.load_model(model)
    paged = is_sparse_latent(target)  # always pages of 64 tokens, on which no tree runs
    blocks = {"DFLASH": _block_drafts(model, markov=False), "DSPARK": _block_drafts(model, markov=True)}
    left_out = {name for name, drafts in blocks.items() if not drafts} | (
        {"UNO", "NGRAM"} if paged else {"UNO"}
    )  # UNO reads an adapter
    released = [name for name, since in ALGORITHM_SINCE.items() if at_least(version, since)]
    algorithm = draw(st.sampled_from(["none", *(name for name in released if name not in left_out)]))
    section: dict[str, Any] = {"algorithm": algorithm}
    width = draw(st.one_of(st.none(), st.integers(2, 24), st.sampled_from((1, 4, 8, 16, 64, 300))))
    if algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"):
        own = algorithm in ("EAGLE", "NEXTN") and target.builtin_draft() is not None
        section["draft_model_path"] = draw(st.sampled_from((None, model) if own else _PLAIN_DRAFTS))
        defaults = () if algorithm == "FROZEN_KV_MTP" else ("default",)
        kind = draw(st.sampled_from((*defaults, "chain") if paged else (*defaults, "chain", "tree")))
        if kind == "chain":
            steps = draw(st.integers(1, 12))
            section |= {"num_steps": steps, "eagle_topk": 1, "num_draft_tokens": steps + 1}
        elif kind == "tree":
            steps, topk, tokens = draw(st.sampled_from(_TREES))
            section |= {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": tokens}
    elif algorithm in blocks:
        section["draft_model_path"] = draw(st.sampled_from(blocks[algorithm]))
        section["num_draft_tokens"] = width
    elif algorithm != "none":
        section["num_draft_tokens"] = width
    return {key: value for key, value in section.items() if value is not None}


def _memory(draw: st.DrawFn, version: str, model: str) -> dict[str, Any]:
    """Rarely all at once: most configurations should get as far as their pools."""
    rule = rule_for(version)
    maybe = functools.partial(_maybe, draw)
    context = specs.load_model(model).context_len
    found = {
        "mem_fraction_static": maybe(st.floats(0.5, 0.98).map(lambda value: round(value, 4)), 3, 4),
        "mamba_full_memory_ratio": maybe(st.floats(0.05, 10).map(lambda value: round(value, 3)), 1, 2),
        "max_running_requests": maybe(st.one_of(st.integers(1, 64), st.integers(1, 5000)), 3, 4),
        "max_mamba_cache_size": maybe(st.integers(1, 600), 1, 6),
        "max_total_tokens": maybe(st.integers(1000, 2_000_000), 1, 6),
        "kv_cache_dtype": maybe(st.sampled_from(("fp8_e4m3", "fp8_e5m2", "bf16")), 1, 6),
        "mamba_ssm_dtype": maybe(st.sampled_from(("float32", "bfloat16", "float16")), 1, 4),
        "context_length": maybe(st.integers(16, context), 1, 6),
        "chunked_prefill_size": maybe(st.sampled_from((-1, 1024, 2048, 4096, 8192, 32768)), 1, 6),
        "cuda_graph_max_bs": maybe(st.sampled_from((1, 8, 24, 160, 512)), 1, 6),
        "page_size": maybe(st.sampled_from((1, 2, 16, 32, 64, 128, 48)), 1, 8),
        **_cache(draw, version, rule),
    }
    return {key: value for key, value in found.items() if value is not None}


def _cache(draw: st.DrawFn, version: str, rule: Rule) -> dict[str, Any]:
    """Radix cache, strategy and overlap: pairs that go together, and one time in four whatever comes."""
    kind = draw(st.sampled_from(("plain", "no radix", "strategy", "any")))
    buffered = [name for name in rule.strategies if name.startswith("extra_buffer")]
    match kind:
        case "plain":
            return (
                {"mamba_radix_cache_strategy": "extra_buffer"} if not at_least(version, "0.5.14") and buffered else {}
            )
        case "no radix":
            return {"disable_radix_cache": True, "disable_overlap_schedule": _maybe(draw, st.just(True), 1, 4)}
        case "strategy" if buffered:
            return {
                "mamba_radix_cache_strategy": draw(st.sampled_from(buffered)),
                "disable_overlap_schedule": _maybe(draw, st.just(True), 1, 4),
            }
        case _:
            return {
                "mamba_radix_cache_strategy": draw(st.sampled_from(rule.strategies)),
                "disable_radix_cache": _maybe(draw, st.just(True), 1, 3),
                "disable_overlap_schedule": _maybe(draw, st.just(True), 1, 3),
            }


def _maybe(draw: st.DrawFn, strategy: st.SearchStrategy[Any], often: int, of: int) -> Any:
    """A value `often` times of `of`, else None (which is what a shrunk configuration has)."""
    return draw(strategy) if draw(st.integers(1, of)) > of - often else None
