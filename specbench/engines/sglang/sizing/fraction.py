"""`mem_fraction_static` when the flag is not given. In: card, configuration, model. Out: SGLang's own default.

Source: _handle_gpu_memory_settings of 0.5.12 and 0.5.16, arg_groups/memory_hook.py of 0.5.23. MiB throughout. The
non-obvious thing: for multimodal models the result is scaled by the size of the vision tower, whose layer count SGLang
looks up under a name that Qwen3.5 does not use, so that it takes 24.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....configuration.config import FlagValue, RunConfig
from ....specs import ModelSpec
from ....units import GIB, MIB
from .contract import Rule

_MIB_PER_GIB = GIB // MIB
#: SGLang 0.5.12, model_config.py: no piecewise graphs; the breakable ones from 0.5.16 do not mind.
_NO_PIECEWISE_GRAPHS = ("Qwen3NextForCausalLM",)
_MAX_PREFILL_TOKENS = 16384  # --max-prefill-tokens
#: Up to 0.5.13, for a draft that is a whole model.
_STANDALONE_RESERVE_MIB = 6144


def default_fraction(config: RunConfig, rule: Rule, target: ModelSpec, algorithm: str, total_mib: int) -> float:
    """The default fraction for a card of `total_mib`, as nvidia-smi shows it."""
    args = {key.lstrip("-").replace("-", "_"): value for key, value in config.engine.args.items()}
    chunk, batch = card_defaults(total_mib, config.parallel.tp_size, rule)
    if config.memory.chunked_prefill_size is not None:
        chunk = config.memory.chunked_prefill_size
    if config.memory.cuda_graph_max_bs is not None:
        batch = config.memory.cuda_graph_max_bs
    elif rule.graph_batch_capped and config.memory.max_running_requests is not None:
        batch = min(batch, config.memory.max_running_requests)
    given = args.get("max_prefill_tokens")
    whole = given if isinstance(given, int) and not isinstance(given, bool) else _MAX_PREFILL_TOKENS
    reserved = 512 + 1.5 * max(chunk if chunk > 0 else whole, 2048)
    if not args.get("disable_cuda_graph", False) or not rule.draft_loads_first:
        reserved += 2 * batch  # up to 0.5.13 counted whether or not graphs are captured
    reserved += config.parallel.tp_size * config.parallel.pp_size / 8 * 1024
    if config.parallel.enable_dp_attention:
        reserved += 3 * batch * config.parallel.dp_size
        reserved += 1.5 * batch * config.parallel.dp_size if batch > 300 else 0
    if captures_prefill(config, rule, target, args):
        limits = [chunk, config.memory.max_total_tokens, config.memory.context_length if rule.era == "II" else None]
        largest = min(limit for limit in limits if limit is not None)
        reserved += 8 * len(prefill_sizes(largest))
    if total_mib > 60 * _MIB_PER_GIB:
        reserved = max(reserved, 10 * _MIB_PER_GIB)
    if algorithm not in ("none", "NGRAM") and rule.speculative_reserve_mib:
        reserved += _STANDALONE_RESERVE_MIB if algorithm == "STANDALONE" else rule.speculative_reserve_mib
    if args.get("moe_a2a_backend") == "deepep" and rule.prefill_graphs_multimodal:
        reserved += 2 * _MIB_PER_GIB
    fraction = round((total_mib - reserved) / total_mib, 3)
    return fraction * vision_factor(target) if target.multimodal else fraction


def card_defaults(total_mib: int, tp: int, rule: Rule) -> tuple[int, int]:
    """(chunked_prefill_size, largest graph batch) that SGLang takes for a card."""
    wide = tp >= 4
    if total_mib < 20 * _MIB_PER_GIB:
        return 2048, 8
    if total_mib < 35 * _MIB_PER_GIB:
        if rule.small_card_generous:
            return 4096, 160 if wide else 48
        return 2048, 80 if wide else 24
    if total_mib < 60 * _MIB_PER_GIB:
        return 4096, 160 if wide else 32
    if total_mib < 160 * _MIB_PER_GIB:
        return 8192, 512 if wide else 256
    return 16384, 512


def prefill_sizes(largest: int) -> list[int]:
    """Token counts for which prefill graphs are captured."""
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, largest + 1, 512),
    ]
    return [size for size in sizes if size <= largest]


def vision_factor(target: ModelSpec) -> float:
    """What the vision tower takes from the fraction: 0.92477 for a width of 1152."""
    layers = target.vision_layers if target.vision_layers is not None else 24
    width = target.vision_hidden if target.vision_hidden is not None else 1024
    complexity = layers * width**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def captures_prefill(config: RunConfig, rule: Rule, target: ModelSpec, args: Mapping[str, FlagValue]) -> bool:
    """Prefill graphs: opt-in up to 0.5.8; then on, but for a growing set of exceptions, for the models here."""
    if args.get("disable_prefill_cuda_graph") or args.get("disable_piecewise_cuda_graph"):
        return False
    if rule.state_dtype_default == "float32":
        return bool(args.get("enable_piecewise_cuda_graph", False))
    if config.parallel.enable_dp_attention or (config.parallel.pp_size > 1 and not rule.prefill_graphs_multimodal):
        return False
    return rule.prefill_graphs_multimodal or not (target.multimodal or target.architecture in _NO_PIECEWISE_GRAPHS)
