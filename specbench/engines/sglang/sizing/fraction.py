"""What the engine takes when nothing is said: prefill chunk, graph batches, and `mem_fraction_static`.

In: card, configuration, model. Out: `Defaults`. Source: _handle_gpu_memory_settings of server_args.py of 0.5.6.post2,
0.5.8, 0.5.12 and 0.5.14 to 0.5.18, arg_groups/memory_hook.py of 0.5.19 to 0.5.23. MiB
throughout. The non-obvious thing: for multimodal models the fraction is scaled by the size of the vision tower, whose
layer count SGLang looks up under a name that Qwen3.5 does not use, so that it takes 24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....configuration.config import RunConfig
from ....lanes import least
from ....specs import ModelSpec
from ....units import GIB, MIB
from ....versions import at_least
from ..given import server_args
from .contract import Rule
from .graph_sizes import decode_sizes, in_eights, prefill_sizes
from .prefill_graphs import captures_prefill, uses_mla

_MIB_PER_GIB = GIB // MIB
_MAX_PREFILL_TOKENS = 16384  # --max-prefill-tokens
_LEAST_TOKENS = 2048  # of a step, for activations
#: Up to 0.5.13, for a draft that is a whole model.
_STANDALONE_RESERVE_MIB = 6144
_MLA_PREFILL_GRAPHS_MIB = 1536
_MLA_PREFILL_TOKENS = 2048
_MLA_PREFILL_TOKENS_LATER = 8192  # from 0.5.23
_LLAMA_2_TOKENS = 4096
_PREFILL_TOKENS_OF_0_5_6 = 4096
_DEEPEP_PREFILL_TOKENS = 2048  # from 0.5.17


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the defaults follow from."""

    config: RunConfig
    version: str
    rule: Rule
    target: ModelSpec
    algorithm: str
    args: Mapping[str, Any]  # further server flags by underscored name
    total_mib: int
    graphs: bool  # for decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """For one configuration on one card, given values included. What is a list, and the fraction, is worked out when it
    is looked at: a configuration that gives its fraction needs neither."""

    chunked_prefill_size: int  # by the card, -1: no chunking
    chunk_of_worker: int  # with data-parallel attention its ranks share a chunk
    graph_batch: int  # the largest batch of a graph for decoding
    asked: _Asked

    @property
    def decode_sizes(self) -> tuple[int, ...]:
        """Configured batches; empty: no graphs for decoding."""
        of = self.asked
        if not of.graphs:
            return ()
        padded = not of.args.get("disable_cuda_graph_padding", False)
        speculates = of.algorithm != "none"
        return _named_batches(of.version, of.args) or decode_sizes(
            of.version, self.graph_batch, speculates=speculates, padded=padded
        )

    @property
    def prefill_sizes(self) -> tuple[int, ...] | None:
        """Configured token counts; None: no graphs for prefill."""
        of = self.asked
        if not captures_prefill(of.version, of.args, of.config.parallel, of.target, of.algorithm):
            return None
        return _prefill(of.config, of.version, of.target, of.args, self.chunked_prefill_size)

    @property
    def fraction(self) -> float:
        """Of `mem_fraction_static`, whether or not one is given."""
        of = self.asked
        fraction = round((of.total_mib - _reserved(self)) / of.total_mib, 3)
        return fraction * vision_factor(of.target) if _has_images(of.version, of.target, of.args) else fraction


def defaults(
    config: RunConfig, version: str, rule: Rule, target: ModelSpec, algorithm: str, total_mib: int
) -> Defaults:
    """`total_mib`: of the card, as nvidia-smi shows it. `algorithm`: its canonical name."""
    args = server_args(config)
    memory, parallel = config.memory, config.parallel
    chunk, batch = card_defaults(total_mib, parallel.tp_size, rule)
    if memory.chunked_prefill_size is not None:
        chunk = memory.chunked_prefill_size
    if memory.cuda_graph_max_bs is not None:
        batch = memory.cuda_graph_max_bs
    elif rule.graph_batch_capped and memory.max_running_requests is not None:
        batch = least(batch, memory.max_running_requests)
    named = _named_batches(version, args)
    if named:
        batch = max(named)
    return Defaults(
        chunked_prefill_size=chunk,
        chunk_of_worker=chunk // parallel.attention_dp if chunk > 0 else chunk,
        graph_batch=batch,
        asked=_Asked(
            config=config,
            version=version,
            rule=rule,
            target=target,
            algorithm=algorithm,
            args=args,
            total_mib=total_mib,
            graphs=decodes_with_graphs(version, args),
        ),
    )


def _named_batches(version: str, args: Mapping[str, Any]) -> tuple[int, ...]:
    return _numbers(args.get("cuda_graph_bs_decode" if at_least(version, "0.5.14") else "cuda_graph_bs"))


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


def decodes_with_graphs(version: str, args: Mapping[str, Any]) -> bool:
    """Whether CUDA graphs are captured for decoding. `args`: further server flags by underscored name."""
    if not at_least(version, "0.5.14"):
        return not args.get("disable_cuda_graph", False)
    chosen = args.get("cuda_graph_backend_decode")
    if chosen is not None:
        return bool(chosen != "disabled")
    off = any(args.get(flag, False) for flag in ("disable_cuda_graph", "disable_decode_cuda_graph"))
    return not off and not (args.get("disaggregation_mode") == "prefill" and at_least(version, "0.5.15"))


def vision_factor(target: ModelSpec) -> float:
    """What the vision tower takes from the fraction: 0.92477 for a width of 1152."""
    layers = target.vision_layers if target.vision_layers is not None else 24
    width = target.vision_hidden if target.vision_hidden is not None else 1024
    complexity = layers * width**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def _reserved(found: Defaults) -> float:
    """MiB kept from the static fraction: activations of a step, graphs, and what large parallel sizes take."""
    of, batch, prefill = found.asked, found.graph_batch, found.prefill_sizes
    config, version, rule, target, algorithm = of.config, of.version, of.rule, of.target, of.algorithm
    args, graphs, total_mib = of.args, of.graphs, of.total_mib
    parallel = config.parallel
    role = args.get("disaggregation_mode", "null") if at_least(version, "0.5.15") else "null"
    reserved = 512 + 1.5 * _step_tokens(config, args, role, found.chunked_prefill_size, batch)
    if role != "prefill" and (graphs or not at_least(version, "0.5.15")):
        reserved += 2 * batch  # up to 0.5.14 counted whether or not graphs are captured
    reserved += parallel.tp_size * parallel.pp_size / 8 * 1024
    if parallel.enable_dp_attention and parallel.dp_size > 1 and role != "prefill":
        reserved += 3 * batch * parallel.dp_size
        reserved += 1.5 * batch * parallel.dp_size if batch > 300 else 0
    if prefill is not None:
        reserved += _for_prefill_graphs(version, target, args, prefill, found.chunked_prefill_size)
    if total_mib > 60 * _MIB_PER_GIB:
        reserved = max(reserved, 10 * _MIB_PER_GIB)
    if algorithm not in ("none", "NGRAM") and rule.speculative_reserve_mib:
        reserved += _STANDALONE_RESERVE_MIB if algorithm == "STANDALONE" else rule.speculative_reserve_mib
    if args.get("moe_a2a_backend") == "deepep" and at_least(version, "0.5.15") and role != "prefill" and graphs:
        reserved += 2 * _MIB_PER_GIB
    return reserved


def _step_tokens(config: RunConfig, args: Mapping[str, Any], role: str, chunk: int, batch: int) -> int:
    """Tokens whose activations a step holds. A decode server of a pair prefills nothing."""
    if role == "decode":
        requests = config.memory.max_running_requests or batch or 1
        return max(requests * (config.speculative.num_draft_tokens or 1), _LEAST_TOKENS)
    return max(chunk if chunk > 0 else max_prefill_tokens(args), _LEAST_TOKENS)


def max_prefill_tokens(args: Mapping[str, Any]) -> int:
    """Tokens that a prefill takes at once where it is not chunked."""
    given = args.get("max_prefill_tokens")
    return given if isinstance(given, int) and not isinstance(given, bool) else _MAX_PREFILL_TOKENS


def _for_prefill_graphs(
    version: str, target: ModelSpec, args: Mapping[str, Any], sizes: tuple[int, ...], chunk: int
) -> float:
    if not at_least(version, "0.5.8"):
        given = args.get("piecewise_cuda_graph_max_tokens")
        largest = given if isinstance(given, int) and not isinstance(given, bool) else _up_to(version, chunk)
        return largest // (8 if at_least(version, "0.5.7") else 4)
    found = 8.0 * len(sizes)
    if uses_mla(target) and at_least(version, "0.5.10"):
        found = _MLA_PREFILL_GRAPHS_MIB
    if args.get("moe_a2a_backend") == "deepep" and at_least(version, "0.5.17"):
        found += _MIB_PER_GIB
    return found


def _up_to(version: str, chunk: int) -> int:
    """The largest token count of a prefill graph: a chunk, but in 0.5.6, which has a default."""
    return chunk if at_least(version, "0.5.7") else _PREFILL_TOKENS_OF_0_5_6


def _prefill(
    config: RunConfig, version: str, target: ModelSpec, args: Mapping[str, Any], chunk: int
) -> tuple[int, ...]:
    """Token counts of prefill graphs: up to a chunk, but no more than the pool or, from 0.5.13 to 0.5.16, a context."""
    later = at_least(version, "0.5.14")
    named = _numbers(args.get("cuda_graph_bs_prefill" if later else "piecewise_cuda_graph_tokens"))
    if named:
        return named
    most = args.get("cuda_graph_max_bs_prefill" if later else "piecewise_cuda_graph_max_tokens")
    if isinstance(most, int) and not isinstance(most, bool):
        largest = most
    else:
        largest = _up_to(version, chunk)
        if uses_mla(target) and at_least(version, "0.5.8"):
            largest = min(_MLA_PREFILL_TOKENS_LATER, chunk) if at_least(version, "0.5.23") else _MLA_PREFILL_TOKENS
        if config.memory.max_total_tokens is not None and at_least(version, "0.5.10"):
            largest = min(largest, config.memory.max_total_tokens)
        if "llama-2" in config.model.lower() and at_least(version, "0.5.10"):
            largest = min(largest, _LLAMA_2_TOKENS)
    clamps = at_least(version, "0.5.13") and not at_least(version, "0.5.17")
    if clamps and config.memory.context_length is not None:
        largest = min(largest, config.memory.context_length)
    if args.get("moe_a2a_backend") == "deepep" and at_least(version, "0.5.17"):
        return in_eights(prefill_sizes(most if isinstance(most, int) else _DEEPEP_PREFILL_TOKENS, version))
    return prefill_sizes(largest, version)


def _has_images(version: str, target: ModelSpec, args: Mapping[str, Any]) -> bool:
    """Whether the fraction is scaled for a vision tower that this server runs."""
    if not target.multimodal or (at_least(version, "0.5.9") and args.get("language_only")):
        return False
    if not at_least(version, "0.5.17"):
        return True
    alone = args.get("language_model_only") and at_least(version, "0.5.18")
    return not alone and args.get("disaggregation_mode") != "decode"


def _numbers(value: Any) -> tuple[int, ...]:
    """A flag's list of sizes; empty: not given."""
    items = value.split() if isinstance(value, str) else value if isinstance(value, list) else [value]
    return tuple(sorted(int(item) for item in items if not isinstance(item, bool) and str(item).isdecimal()))
