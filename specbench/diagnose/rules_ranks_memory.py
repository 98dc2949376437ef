"""Rules about ranks that differ: pools of other sizes, cards with less free memory than the others.

In: a case. Out: findings that name the ranks. SGLang sizes all ranks by the one with least, so that the others' memory
beyond it is used by nobody; from a tenth on it refuses to start (0.5.6 to 0.5.23: `_check_tp_memory_balance`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..engines.contract import Line, RankPools
from ..rank_names import by_value, in_words
from ..units import GIB, Quantity, format_gib
from .case import Case
from .finding import Finding
from .lost_tokens import as_tokens, begin_lines, severity, share, tokens_of
from .rules_limits import stands

#: Ranks differ by less than this for no reason that anybody could find.
_DIFFERENCE_BYTES = GIB // 2
#: … and cards before their distributed init by less than this: those of four ranks by 0.01 GiB, as logged.
_BETWEEN_CARDS = GIB // 4
_HELD = "held by something else on that card"
_TO_DO = (
    " To have it: end that process (nvidia-smi names it), or give the server other cards (CUDA_VISIBLE_DEVICES); no "
    "flag gives it back."
)


def ranks_disagree(case: Case) -> tuple[Finding, ...]:
    """Ranks with other pools than the rest, or one with less free memory, by which all are sized."""
    return (*_other_pools(case), *_less_free(case)) if stands(case) else ()


def _other_pools(case: Case) -> tuple[Finding, ...]:
    targets = [one for one in case.pools.ranks if one.role == "target" and one.kv_tokens is not None]
    tokens = {one.rank: one.kv_tokens for one in targets if one.kv_tokens is not None}
    if len(set(tokens.values())) < 2:
        return ()
    each = ", ".join(f"{count:,} ({ranks})" for ranks, count in by_value(tokens))
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
    """Ranks with least free memory lack what the others have and nobody can use."""
    found = lack(case)
    if found is None:
        return ()
    missing = found.next_least.bytes - found.least.bytes
    verb = "has" if len(found.behind) == 1 else "have"
    who = in_words(found.others) if len(found.others) < 2 else "every other rank"
    more = " or more" if len(found.others) > 1 else ""
    tokens = tokens_of(case, missing)
    lost = share(case, tokens)
    return (
        Finding(
            id="ranks-disagree",
            cause=(
                f"{in_words(found.behind)} {verb} {format_gib(found.least.bytes)} free {found.when}, {who} "
                f"{format_gib(found.next_least.bytes)}{more}: {format_gib(missing)} less, "
                f"{found.held_by}{_what(found)}.{_by_nvml(case, found)} All ranks are sized by the one with "
                f"least{as_tokens(tokens)}.{_TO_DO if found.held_by == _HELD else ''}"
            ),
            severity=severity(lost),
            evidence=begin_lines(case, found.behind[0])
            if found.when == LOADING
            else _end_lines(case, _after_pools(case)),
            lost=lost,
        ),
    )


def _what(found: Lack) -> str:
    if found.held_by != _HELD:
        return ""
    contexts = ", CUDA contexts of the other ranks" if found.behind == ["TP0"] else ""
    return f" (a display, another program{contexts})"


def _by_nvml(case: Case, found: Lack) -> str:
    """What was in use of these cards before the start, and of the others."""
    known = case.in_use_before
    mine = [known[rank] for rank in found.behind if rank in known]
    theirs = [known[rank] for rank in found.others if rank in known]
    if found.held_by != _HELD or not mine or not theirs or min(mine) - max(theirs) < _BETWEEN_CARDS:
        return ""
    return f" NVML saw {format_gib(min(mine))} in use there before the start, {format_gib(max(theirs))} elsewhere."


LOADING = "before loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Some ranks have less free memory than all others."""

    behind: Sequence[str]  # least first
    others: Sequence[str]
    least: Quantity
    next_least: Quantity  # of the others
    when: str
    held_by: str


def lack(case: Case) -> Lack | None:
    """What the distributed init took of each card is known of most logs: cards differ by what was free before it; what
    the inits took, which differed by 0.24 GiB on four cards, is told as what it is."""
    before, taken = dict(case.pools.pre), case.pools.communication
    if len(before) < 2:
        return _apart(_after_pools(case), _DIFFERENCE_BYTES, "beside the pools", _HELD)
    if not before.keys() <= taken.keys():
        return _apart(before, _DIFFERENCE_BYTES, LOADING, _HELD)
    cards = {
        rank: Quantity(free.bytes + taken[rank].bytes, free.resolution_bytes + taken[rank].resolution_bytes)
        for rank, free in before.items()
    }
    held = _apart(cards, _BETWEEN_CARDS, LOADING, _HELD)
    if held is not None:
        least, others = (min((before[rank] for rank in of), key=_size) for of in (held.behind, held.others))
        return None if others.bytes <= least.bytes else dataclasses.replace(held, least=least, next_least=others)
    by_init = _apart(before, _DIFFERENCE_BYTES, LOADING, "")
    if by_init is None:
        return None
    most = max(taken[rank].bytes for rank in by_init.behind)
    usual = max(taken[rank].bytes for rank in by_init.others)
    words = f"taken by its own distributed init: {format_gib(most)}, where the others' took {format_gib(usual)} at most"
    return dataclasses.replace(by_init, held_by=words)


def _size(quantity: Quantity) -> int:
    return quantity.bytes


def _apart(free: Mapping[str, Quantity], apart: int, when: str, held_by: str) -> Lack | None:
    """Those near the least, where others have so much more."""
    if len(free) < 2:
        return None
    order = sorted(free, key=lambda rank: free[rank].bytes)
    least = free[order[0]]
    others = [rank for rank in order if free[rank].bytes - least.bytes >= apart]
    if not others:
        return None
    return Lack(
        behind=[rank for rank in order if rank not in others],
        others=others,
        least=least,
        next_least=free[others[0]],
        when=when,
        held_by=held_by,
    )


def _after_pools(case: Case) -> dict[str, Quantity]:
    """Rank -> free after its last pool, where every rank logged as many pools."""
    found: dict[str, RankPools] = {}
    for pools in case.pools.ranks:
        if pools.available is not None:
            found[pools.rank] = pools
    roles = {pools.role for pools in found.values()}
    return {rank: pools.available for rank, pools in found.items() if pools.available is not None and len(roles) == 1}


def _end_lines(case: Case, free: Mapping[str, Quantity]) -> tuple[Line, ...]:
    last = {pools.rank: pools.lines.get("available") for pools in case.pools.ranks if pools.rank in free}
    return tuple(line for number in last.values() for line in case.line(number))[:4]
