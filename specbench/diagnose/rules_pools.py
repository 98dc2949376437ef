"""Rules about pools out of proportion: scratch above the pool that it serves, slots or tokens that nobody can use, a
draft whose KV outgrows the target's.

In: a case. Out: findings whose sizes are the log's own (per slot and per token: a pool's size by its count), so no
prediction is needed to see them; remedies are predicted.
"""

from __future__ import annotations

import math

from ..engines.contract import RankPools
from ..units import Quantity, counted, format_gib
from .case import Case
from .finding import Finding, Remedy
from .logged_memory import scratch_arithmetic, scratch_bytes, state_bytes
from .queueing import verb
from .rules_limits import capped, context_above_pool, stands

#: Scratch of a server that serves as asked is told from this share of the free memory before loading on.
_MUCH_OF_CARD = 0.25
#: Slots that no request can hold are told where they take this share of the pools' memory (a ratio of 0.5 gives the
#: states a third, the default of 0.9 almost half), from this multiple of what requests hold on; of so many slots from
#: a smaller one on. A number of slots alone tells nothing: with eight ranks a slot is half of what it is with four.
_SHARE_OF_POOLS, _TIMES = 0.3, 10
_MANY_SLOTS, _MANY_TIMES = 1000, 4
#: Of a server that is short of tokens even this multiple is worth a word.
_SHORT_TIMES = 2
#: No version runs more requests than this when none are asked for (_resolve_max_num_reqs: 2,048 to 4,096).
_MOST_REQUESTS = 4096
#: Most slots that a request ever holds (extra_buffer with overlap).
_MOST_SLOTS_EACH = 5
#: Tokens beyond what all requests can hold together are told from this multiple on.
_MANY_TOKENS = 2


def scratch_above_pool(case: Case) -> tuple[Finding, ...]:
    """Speculative scratch that is larger than the pool of KV tokens, or of states where no KV is logged. Of a server
    that gives what it was asked for only where it is much of the card: it is the price of speculation, and was paid.
    """
    rank = max((one for one in case.pools.ranks if scratch_bytes(one)), key=scratch_bytes, default=None)
    if rank is None or not stands(case):  # where memory ran out, that finding names it (`logged_memory`)
        return ()
    scratch, state, kv = scratch_bytes(rank), state_bytes(rank), rank.kv
    if scratch <= (state if kv is None else kv.bytes) or (kv is None and not state):
        return ()
    if _as_asked(case) and scratch < _MUCH_OF_CARD * _free_before(case):
        return ()
    beside = [f"{scratch / kv.bytes:.1f} times the KV pool ({format_gib(kv.bytes)})"] if kv and kv.bytes else []
    beside += [f"{scratch / state:.1f} times the state pool ({format_gib(state)})"] if state else []
    costs = tokens_short(case)
    return (
        Finding(
            id="scratch-above-pool",
            cause=(
                f"The speculative scratch takes {format_gib(scratch)}, {' and '.join(beside)}: "
                f"{scratch_arithmetic(case, rank)}."
            ),
            severity="costly" if costs else "notice",
            evidence=case.line(rank.lines.get("scratch_ssm")),
            remedies=tuple(remedy for remedy in case.smaller_scratch() if costs or not _asks_less(remedy)),
        ),
    )


def _asks_less(remedy: Remedy) -> bool:
    """That is a fix of what is lost; where nothing is, it would lose something."""
    return "memory.max_running_requests" in remedy.set


def _free_before(case: Case) -> float:
    """Bytes free before loading, on the rank with least; endless where it is not logged."""
    least = case.pools.least(case.pools.pre)
    return math.inf if least is None else least.bytes


def slots_beyond_use(case: Case) -> tuple[Finding, ...]:
    """Far more state slots than the running requests can hold: the default ratio knows nothing of the requests."""
    rank = next((one for one in case.pools.ranks if one.role == "target" and one.state_slots is not None), None)
    slots = case.pools.state_slots
    if rank is None or not slots or not stands(case):
        return ()
    requests = case.pools.running_requests or case.wanted_requests
    each = case.limit("slots_per_request") or _MOST_SLOTS_EACH
    held = (requests or _MOST_REQUESTS) * each
    short = tokens_short(case)
    if not (slots >= held * _SHORT_TIMES if short else _many(rank, slots, held)):
        return ()
    who = f"even {_MOST_REQUESTS:,} requests, the most, hold"
    if requests:
        who = f"{counted(requests, 'request')} {verb('hold', requests)}"
    times = f"{requests or _MOST_REQUESTS:,} × {each}" + ("" if case.limit("slots_per_request") else " at most")
    return (
        Finding(
            id="slots-beyond-use",
            cause=(
                f"The state pool has {slots:,} slots, of which {who} {held:,} ({times}). Only states of cached "
                f"prefixes can use the other {slots - held:,}{_worth(rank, slots - held)}.{_seen_used(case)}"
            ),
            severity="costly" if short else "notice",
            evidence=case.line(rank.lines.get("state_slots")),
            remedies=case.give_slots_back(),
        ),
    )


def _worth(rank: RankPools, idle: int) -> str:
    """', 23.43 GiB, the room of 16,379,000 KV tokens', by the sizes of the log."""
    state = state_bytes(rank)
    if not state or rank.state_slots is None:
        return ""
    size = state * idle / (rank.state_slots + 1)
    if rank.kv is None or not rank.kv_tokens or not rank.kv.bytes:
        return f": {format_gib(size)}"
    tokens = size / (rank.kv.bytes / rank.kv_tokens)
    return f": {format_gib(size)}, the room of about {round(tokens, -3):,.0f} KV tokens"


def _many(rank: RankPools, slots: int, held: int) -> bool:
    state, idle = state_bytes(rank), slots - held
    pools = state + scratch_bytes(rank) + (0 if rank.kv is None else rank.kv.bytes)
    much = rank.kv is None or idle * state >= _SHARE_OF_POOLS * pools * (slots + 1)
    many = idle >= _MANY_SLOTS and slots >= held * _MANY_TIMES
    return much and (many or (rank.kv is not None and slots >= held * _TIMES))


def _seen_used(case: Case) -> str:
    known = [usage for usage in case.column("state_usage") if usage is not None]
    return f" At most {max(known):.0%} of the slots were in use while it served." if known else ""


def tokens_beyond_use(case: Case) -> tuple[Finding, ...]:
    """More KV tokens than all requests can hold together, and no prefix cache that could use the rest."""
    requests, context, tokens = case.pools.running_requests, case.pools.context_len, case.pools.kv_tokens
    radix_off = (case.log.server_args or {}).get("disable_radix_cache") is True
    if (
        not (requests and context and tokens and radix_off and stands(case))
        or tokens < requests * context * _MANY_TOKENS
    ):
        return ()
    rank = next((one for one in case.pools.ranks if one.role == "target" and one.kv is not None), None)
    most = requests * context
    idle = tokens - most
    size = "" if rank is None or rank.kv is None else f" ({format_gib(rank.kv.bytes * idle / tokens)})"
    return (
        Finding(
            id="tokens-beyond-use",
            cause=(
                f"The KV pool has {tokens:,} tokens, {tokens / most:.1f} times what {counted(requests, 'request')} of "
                f"a whole context hold ({requests} × {context:,} = {most:,}): {idle:,} tokens{size} are never used, "
                "since there is no prefix cache."
            ),
            severity="notice",
            evidence=case.pool_lines()[-1:],
        ),
    )


def draft_kv_above_target(case: Case) -> tuple[Finding, ...]:
    """A draft whose KV takes more than the target's: its layers cost more per token than the model that it helps."""
    for draft in case.pools.ranks:
        target = next((one for one in case.pools.ranks if (one.rank, one.role) == (draft.rank, "target")), None)
        if draft.role != "draft" or draft.kv is None or target is None or target.kv is None:
            continue
        if draft.kv.bytes - target.kv.bytes <= draft.kv.resolution_bytes + target.kv.resolution_bytes:
            continue  # as far as a log's two decimals tell
        pools = [pool for pool in case.log.kv_pools if (pool.rank, pool.role) == (draft.rank, "draft")]
        each = [f"{_per_token(pool.kv, pool.tokens)}" for pool in pools]
        several = f" in {len(pools)} pools ({', '.join(each[:8])})" if len(pools) > 1 else ""
        return (
            Finding(
                id="draft-kv-above-target",
                cause=(
                    f"The draft's KV takes {format_gib(draft.kv.bytes)}{several}, the target's "
                    f"{format_gib(target.kv.bytes)}: {_per_token(draft.kv, draft.kv_tokens)} for the draft against "
                    f"{_per_token(target.kv, target.kv_tokens)} for the target."
                ),
                severity="costly" if tokens_short(case) else "notice",
                evidence=tuple(line for pool in (target, draft) for line in case.line(pool.lines.get("kv"))),
                remedies=case.smaller_draft_kv(),
            ),
        )
    return ()


def _per_token(size: Quantity | None, tokens: int | None) -> str:
    if size is None or not tokens:
        return "not logged"
    about = "about " if size.resolution_bytes * 100 > size.bytes else ""  # of a small pool two decimals are few
    return f"{about}{size.bytes / tokens:,.0f} B per token"


# ── what a server is short of ────────────────────────────────────────────────────────────────────────────────────────


def _as_asked(case: Case) -> bool:
    """As many requests at once as asked, and tokens for a whole context."""
    asked, got = case.wanted_requests, case.pools.running_requests
    context, tokens = case.pools.context_len, case.pools.kv_tokens
    requests = asked is not None and got is not None and got >= asked
    return requests and context is not None and tokens is not None and tokens >= context


def tokens_short(case: Case) -> bool:
    """Whether the server lacks KV tokens, and no limit that was asked for is the reason."""
    if case.pools.requested.get("kv_tokens") == case.pools.kv_tokens is not None:
        return False
    found = (*context_above_pool(case), *capped(case))
    return any(one.severity == "costly" and one.id in ("context-above-pool", "capped-by-kv-tokens") for one in found)
