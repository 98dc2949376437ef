"""UNO: what the engine demands of its arguments. Texts of SGLang 0.5.20 and 0.5.23, arg_groups/speculative_hook.py."""

from __future__ import annotations

from collections.abc import Iterator

from ....configuration.config import RunConfig
from ..given import server_args
from .refusal import Refusal

_MOST_NODES = 128
_MOST_FRONTIER = 2048


def refusals(config: RunConfig) -> Iterator[Refusal]:
    section, args, parallel = config.speculative, server_args(config), config.parallel
    if section.draft_model_path is not None:
        yield _refusal(
            "speculative.draft_model_path",
            section.draft_model_path,
            "the target itself drafts",
            "leave it out",
            "UNO reuses the target model and does not accept --speculative-draft-model-path.",
        )
    if args.get("uno_lora_path") is None:
        yield _refusal(
            "engine.args.uno-lora-path",
            None,
            "the adapter that makes the target draft",
            "the adapter's folder",
            "UNO requires --uno-lora-path.",
        )
    if section.num_draft_tokens is None:
        yield _refusal(
            "speculative.num_draft_tokens",
            None,
            "the engine chooses no width for UNO",
            "the tokens verified per step",
            "UNO requires --speculative-num-draft-tokens to be a positive integer denoting the linear width or tree "
            "verify width Q.",
        )
    elif (section.eagle_topk or 1) > 1:
        yield from _tree(section.num_draft_tokens, section.eagle_topk or 1, section.num_steps)
    if (parallel.tp_size, parallel.pp_size) != (1, 1):
        key = "parallel.tp_size" if parallel.tp_size != 1 else "parallel.pp_size"
        value = parallel.tp_size if parallel.tp_size != 1 else parallel.pp_size
        yield _refusal(key, value, "UNO runs on one rank", "1", "UNO requires TP=PP=1.")
    if parallel.attention_dp > 1:
        yield _refusal(
            "parallel.enable_dp_attention",
            True,
            "UNO runs on one rank",
            "false",
            "UNO does not support DP attention or context parallelism.",
        )


def _tree(width: int, topk: int, steps: int | None) -> Iterator[Refusal]:
    """`width` is the engine's Q, `topk` its K, steps + 1 its F."""
    if steps is None:
        yield _refusal(
            "speculative.num_steps",
            None,
            "a tree (eagle_topk above 1) has steps + 1 levels",
            "the number of draft steps",
            "UNO tree mode requires --speculative-num-steps so its draft width F can be derived as "
            "speculative_num_steps + 1.",
        )
        return
    levels, most = steps + 1, _capacity(topk, steps)
    said: str | None = None
    allowed = f"{levels} to {most}"
    if width < levels:
        said = f"UNO tree mode requires Q >= F; got Q={width}, F={levels}."
    elif width > _MOST_NODES:
        said = f"UNO tree mode currently supports at most Q={_MOST_NODES} verify nodes, got Q={width}."
    elif width * topk > _MOST_FRONTIER:
        said = f"UNO tree mode currently supports Q*K <= {_MOST_FRONTIER}; got Q*K={width}*{topk}={width * topk}."
    elif width > most:
        said = (
            f"UNO tree mode cannot build the requested Q from F and K: Q={width} exceeds capacity={most} for "
            f"F={levels}, K={topk}."
        )
    elif width - 1 > topk * (steps - 1) + 1:
        parents = topk * (steps - 1) + 1
        allowed = f"{levels} to {parents + 1}"
        said = (
            f"UNO tree mode cannot represent the requested Q in EAGLE's parent-list ABI: Q-1={width - 1} exceeds "
            f"K*(F-2)+1={parents} for F={levels}, K={topk}."
        )
    if said is not None:
        reason = f"{steps} steps of top-k {topk} make no tree of so many nodes that UNO verifies"
        yield _refusal("speculative.num_draft_tokens", width, reason, allowed, said)


def _capacity(topk: int, steps: int) -> int:
    """Nodes of the whole tree, the root included; what is beyond the engine's own limit does not matter."""
    nodes, level = 1, 1
    for _ in range(steps):
        level *= topk
        nodes += level
        if nodes > _MOST_NODES:
            return _MOST_NODES
    return nodes


def _refusal(key: str, value: object, reason: str, allowed: str, said: str) -> Refusal:
    return Refusal(key=key, value=value, reason=reason, allowed=allowed, engine_error=f"ValueError: {said}")
