"""Rules about free memory that a card should have and has not: other programs hold it.

In: a case. Out: findings with what the lack costs in tokens, predicted with the same solver on the free memory that
would have been there; where nothing can be predicted, by the log's own size of a token.
"""

from __future__ import annotations

from ..errors import SpecbenchError
from ..gpus import GpuSpec, load_gpu
from ..rank_names import in_words
from ..units import GIB, format_gib
from .case import Case
from .finding import Finding
from .lost_tokens import as_tokens, begin_lines, severity, share, tokens_of
from .rules_limits import stands
from .rules_ranks_memory import LOADING, lack
from .rules_starts import starts_differ
from .weight_share import light_weights

#: Starts differ by less than this for no reason that anybody could find.
_DIFFERENCE_BYTES = GIB // 2
#: What a driver keeps of an idle card that was not measured, at most (an H200: 0.60 GiB).
_DRIVERS_BYTES = GIB


def memory_taken_by_others(case: Case) -> tuple[Finding, ...]:
    """Less free memory than an idle card has: by NVML before the start, else by the free memory before loading. Only of
    a card that was told, or recorded; a difference from the start before says it with more certainty.
    """
    if case.config is None or not case.card_known or starts_differ(case):
        return ()
    try:
        gpu = load_gpu(case.config.gpu.name)
        return () if gpu.is_host else _by_nvml(case, gpu) if case.in_use_before else _by_the_log(case, gpu)
    except SpecbenchError:
        return ()


def _by_nvml(case: Case, gpu: GpuSpec) -> tuple[Finding, ...]:
    used = max(case.in_use_before.values())
    own = gpu.total_bytes - gpu.idle_free_bytes if gpu.idle_free_bytes is not None else _DRIVERS_BYTES
    taken = used - own
    if taken < _DIFFERENCE_BYTES:
        return ()
    most = gpu.idle_free_bytes is None
    ranks = [rank for rank, size in case.in_use_before.items() if size - own >= _DIFFERENCE_BYTES]
    differing = lack(case) if stands(case) else None
    if differing is not None and set(ranks) <= set(differing.behind):
        return ()  # of these ranks alone: said there
    rank = max(ranks, key=lambda rank: case.in_use_before[rank])
    where = "" if not rank else f" on the card of {rank}" if len(ranks) == 1 else f" on the cards of {in_words(ranks)}"
    where += ", at most," if len(ranks) > 1 else ""
    drivers = f"{'at most ' if most else ''}{format_gib(own)} of them the driver's own"
    seen = f"{format_gib(used)} were in use{where} before the server started (NVML), {drivers}"
    return (_taken_by_others(case, seen, taken, rank, or_more=most),)


def _by_the_log(case: Case, gpu: GpuSpec) -> tuple[Finding, ...]:
    config, least = case.config, case.pools.least(case.pools.pre)
    if config is None or least is None:
        return ()
    usual = gpu.free_before_load(config.parallel.gpus, config.engine.version).bytes
    ranks = lack(case)
    if ranks is not None and ranks.when == LOADING:  # that ranks have less is a finding of its own: the others tell
        least = ranks.next_least
    missing = usual.low - (least.bytes + least.resolution_bytes)
    if (light := light_weights(case)) is not None:  # what is free again when the pools are sized is not lost to them
        missing -= light.missing_bytes
    if missing < _DIFFERENCE_BYTES:
        return ()
    seen = (
        f"{format_gib(least.bytes)} were free before loading; an idle {gpu.words} has {format_gib(usual.low)} at least"
    )
    buffers = " or larger communication buffers" if config.parallel.gpus > 1 else ""
    return (_taken_by_others(case, seen, missing, case.pools.deciding_rank, or_more=True, buffers=buffers),)


def _taken_by_others(
    case: Case, seen: str, size: int, rank: str | None, *, or_more: bool, buffers: str = ""
) -> Finding:
    tokens = tokens_of(case, size)
    lost = share(case, tokens)
    more = " or more" if or_more else ""
    return Finding(
        id="memory-taken-by-others",
        cause=(
            f"{seen}. Other programs{buffers} hold {format_gib(size)}{more}{as_tokens(tokens)}. The same flags give "
            "other pools whenever that changes; nvidia-smi names who holds it."
        ),
        severity=severity(lost),
        evidence=begin_lines(case, rank),
        lost=lost,
    )
