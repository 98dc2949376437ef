"""Rules about free memory that a card should have and has not: other programs, a rank with less than the others.

In: a case. Out: findings with what the lack costs in tokens, predicted with the same solver on the free memory that
would have been there; where nothing can be predicted, by the log's own size of a token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..budget.predict import predict
from ..budget_types import FreeMemory
from ..engines.contract import Line, RankPools
from ..errors import SpecbenchError
from ..gpus import GpuSpec, load_gpu
from ..judging.judge import as_resolved, passed
from ..units import GIB, Interval, Quantity, format_gib
from .case import Case
from .catalogue import Severity
from .finding import Finding
from .rules_limits import stands
from .rules_starts import starts_differ
from .weight_share import light_weights

#: Ranks, and starts, differ by less than this for no reason that anybody could find (communication buffers: 0.25).
_DIFFERENCE_BYTES = GIB // 2
#: What a driver keeps of an idle card that was not measured, at most (an H200: 0.60 GiB).
_DRIVERS_BYTES = GIB
#: From this share of the tokens on a lack is a cost.
_COSTS = 0.05


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
    rank, used = max(case.in_use_before.items(), key=lambda item: item[1])
    own = gpu.total_bytes - gpu.idle_free_bytes if gpu.idle_free_bytes is not None else _DRIVERS_BYTES
    taken = used - own
    if taken < _DIFFERENCE_BYTES:
        return ()
    most = gpu.idle_free_bytes is None
    where = f" on the card of {rank}" if rank else ""
    drivers = f"{'at most ' if most else ''}{format_gib(own)} of them the driver's own"
    seen = f"{format_gib(used)} were in use{where} before the server started (NVML), {drivers}"
    return (_taken_by_others(case, seen, taken, rank, or_more=most),)


def _by_the_log(case: Case, gpu: GpuSpec) -> tuple[Finding, ...]:
    config, least = case.config, case.pools.least(case.pools.pre)
    if config is None or least is None:
        return ()
    usual = gpu.free_before_load(config.parallel.gpus, config.engine.version).bytes
    if _less_free(case):  # that one rank has less is a finding of its own: then it is the others that tell
        least = sorted(case.pools.pre.values(), key=lambda free: free.bytes)[1]
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
    tokens = _tokens_of(case, size)
    share = _share(case, tokens)
    more = " or more" if or_more else ""
    return Finding(
        id="memory-taken-by-others",
        cause=(
            f"{seen}. Other programs{buffers} hold {format_gib(size)}{more}{_as_tokens(tokens)}. The same flags give "
            "other pools whenever that changes; nvidia-smi names who holds it."
        ),
        severity=_severity(share),
        evidence=_begin_lines(case, rank),
        lost=share,
    )


def ranks_disagree(case: Case) -> tuple[Finding, ...]:
    """Ranks with other pools than the rest, or one with less free memory, by which all are sized."""
    return (*_other_pools(case), *_less_free(case)) if stands(case) else ()


def _other_pools(case: Case) -> tuple[Finding, ...]:
    targets = [one for one in case.pools.ranks if one.role == "target" and one.kv_tokens is not None]
    tokens = {one.rank: one.kv_tokens for one in targets if one.kv_tokens is not None}
    if len(set(tokens.values())) < 2:
        return ()
    each = ", ".join(f"{rank or 'rank 0'} {count:,}" for rank, count in tokens.items())
    asked = case.pools.requested.get("kv_tokens")
    total = sum(tokens.values())
    together = f"together {total:,}" + (f", max_total_tokens {asked:,}" if isinstance(asked, int) else "")
    return (
        Finding(
            id="ranks-disagree",
            cause=(
                f"The KV pools of the ranks differ: {each} tokens ({together}). SGLang sizes all ranks alike, by the "
                "one with least memory: these hold parts of the tokens, or are not one server's. No figure of one "
                "rank is the server's."
            ),
            severity="notice",
            evidence=tuple(line for one in targets for line in case.line(one.lines.get("kv_tokens")))[:4],
        ),
    )


def _less_free(case: Case) -> tuple[Finding, ...]:
    """The rank with least free memory lacks what the others have and nobody can use."""
    before = dict(case.pools.pre)
    when = "before loading"
    free = before if len(before) > 1 else _after_pools(case)
    if free is not before:
        when = "beside the pools"
    if len(free) < 2:
        return ()
    (rank, least), (other, next_least), *more = sorted(free.items(), key=lambda item: item[1].bytes)
    missing = next_least.bytes - least.bytes
    if missing < _DIFFERENCE_BYTES:
        return ()
    who = f"{'every other rank' if more else other} {format_gib(next_least.bytes)}{' or more' if more else ''}"
    tokens = _tokens_of(case, missing)
    share = _share(case, tokens)
    return (
        Finding(
            id="ranks-disagree",
            cause=(
                f"{rank} has {format_gib(least.bytes)} free {when}, {who}: "
                f"{format_gib(missing)} less, held by something else on that card (a display, another program). "
                f"All ranks are sized by the one with least{_as_tokens(tokens)}."
            ),
            severity=_severity(share),
            evidence=_begin_lines(case, rank) if free is before else _end_lines(case, free),
            lost=share,
        ),
    )


def _after_pools(case: Case) -> dict[str, Quantity]:
    """Rank -> free after its last pool, where every rank logged as many pools."""
    found: dict[str, RankPools] = {}
    for pools in case.pools.ranks:
        if pools.available is not None:
            found[pools.rank] = pools
    roles = {pools.role for pools in found.values()}
    return {rank: pools.available for rank, pools in found.items() if pools.available is not None and len(roles) == 1}


def _tokens_of(case: Case, size: int) -> tuple[int, str] | None:
    """KV tokens that so much more free memory per rank would be, and what that rests on."""
    budget, config = case.budgets.get("measured"), case.config
    known = case.pools.kv_tokens
    if budget is not None and config is not None and known is not None:
        try:
            more = predict(
                as_resolved(config, case.pools),
                free=_shifted(budget.free, size),
                passed_fraction=passed(config, case.pools),
            )
        except SpecbenchError:
            return None
        now, then = budget.limits["kv_tokens"].value, more.limits["kv_tokens"].value
        if now is not None and then is not None and then.point > now.point:
            return then.point - now.point, "predicted on this log's memory"
    cell = _logged_cell(case)
    return None if cell is None else (int(size / cell), "at most, by the logged size of a token")


def _shifted(free: FreeMemory, size: int) -> FreeMemory:
    def up(interval: Interval) -> Interval:
        return Interval(interval.low + size, interval.point + size, interval.high + size)

    return dataclasses.replace(free, pre=up(free.pre), post=up(free.post))


def _logged_cell(case: Case) -> float | None:
    """Bytes of a KV token on a rank, the draft's share included; None: not logged."""
    rank = next((one.rank for one in case.pools.ranks if one.role == "target" and one.kv is not None), None)
    pools = [one for one in case.pools.ranks if one.rank == rank and one.kv is not None and one.kv_tokens]
    cells = [one.kv.bytes / one.kv_tokens for one in pools if one.kv is not None and one.kv_tokens]
    return sum(cells) if cells and sum(cells) > 0 else None


def _as_tokens(tokens: tuple[int, str] | None) -> str:
    return "" if tokens is None else f", which costs about {tokens[0]:,} KV tokens ({tokens[1]})"


def _share(case: Case, tokens: tuple[int, str] | None) -> float | None:
    known = case.pools.kv_tokens
    return None if tokens is None or not known else tokens[0] / (known + tokens[0])


def _severity(share: float | None) -> Severity:
    return "costly" if share is not None and share >= _COSTS else "notice"


def _begin_lines(case: Case, rank: str | None) -> tuple[Line, ...]:
    """The line with the free memory before loading, of that rank; the first one where it is not known."""
    lines = [number for number, text in case.log.evidence.items() if "Load weight begin" in text]
    own = [number for number in lines if rank and f"{rank}]" in case.log.evidence[number]]
    return tuple(line for number in (own or lines)[:1] for line in case.line(number))


def _end_lines(case: Case, free: Mapping[str, Quantity]) -> tuple[Line, ...]:
    last = {pools.rank: pools.lines.get("available") for pools in case.pools.ranks if pools.rank in free}
    return tuple(line for number in last.values() for line in case.line(number))[:4]
