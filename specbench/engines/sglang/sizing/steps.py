"""The steps that all solvers share: tokens from what is left, requests from tokens and slots."""

from __future__ import annotations

from dataclasses import replace

from ....lanes import least, most, whole
from ....units import GIB
from .contract import Demand, Pools, Refusal, Rule

#: Tokens of a request that no input has: one of the context or the pool, five more of the input's limit.
BESIDE_INPUT = 6
_ROOM_BESIDE = 100  # tokens, with those of `beyond_fitting`


def tokens(demand: Demand, rest_gib: float, slots: int) -> tuple[int, int]:
    """KV tokens that fit into `rest_gib`; and those of the pool, page by page, below the user's limit."""
    available, windows = whole(rest_gib * GIB), demand.windows
    if windows is None:
        # down, as 0.5.6 does; later releases make whole bytes first, which differs below zero only
        fit = whole(rest_gib * GIB // demand.cell_bytes)
        return fit, _limited(demand, fit + beyond_fitting(demand, slots))
    if windows.cap is not None:
        fit = (available - windows.cap * windows.bytes) // demand.cell_bytes
    elif windows.whole_cell_first:  # limit and pages hold for tokens of which every layer would keep all
        every_layer = demand.cell_bytes + windows.bytes
        fit = available // every_layer
        parted = _limited(demand, fit) * every_layer
        count = whole(parted / (demand.cell_bytes + windows.ratio * windows.bytes))
        return fit, count // demand.page_size * demand.page_size
    else:
        fit = whole(available // (demand.cell_bytes + windows.ratio * windows.bytes))
    return fit, _limited(demand, fit)


def beyond_fitting(demand: Demand, slots: int) -> int:
    """Tokens that the pool gets whether they fit or not: what all requests draft and verify at once (0.5.6)."""
    if not demand.tokens_beyond or demand.requests is None:
        return 0
    requests = demand.requests
    if demand.slot_bytes:
        requests = least(requests, slots // demand.slots_per_request)
    return requests * demand.tokens_beyond + _ROOM_BESIDE


def _limited(demand: Demand, fit: int) -> int:
    """Whole pages, below the user's limit."""
    fit = fit // demand.page_size * demand.page_size
    if demand.max_total_tokens is not None:
        fit = least(fit, demand.max_total_tokens) // demand.page_size * demand.page_size
    return fit


def window_tokens(demand: Demand, token_count: int) -> int:
    """Tokens of the pool of layers with a window, beside `token_count` of the others."""
    windows = demand.windows
    if windows is None:
        return 0
    if windows.cap is not None:
        return least(windows.cap, token_count) if demand.max_total_tokens is not None else windows.cap
    return whole(token_count * windows.ratio) // demand.page_size * demand.page_size


def requests_per_worker(rule: Rule, demand: Demand, divisor: int) -> int | None:
    """The asked requests of one data-parallel worker."""
    return None if demand.requests is None else share(rule, demand.requests, divisor)


def share(rule: Rule, requests: int, divisor: int) -> int:
    """Requests of one of `divisor` workers."""
    each = requests // divisor
    return most(1, each) if rule.guards_zero_division else each


def estimated(rule: Rule, demand: Demand, token_count: int, fitting: int) -> int:
    """Requests by the pool's tokens, or by those that fit before the user's limit."""
    estimate = whole((fitting if rule.requests_of_fitting else token_count) / demand.context_len * 512)
    return most(least(estimate, 4096), 2048)


def resolve_requests(rule: Rule, demand: Demand, slots: int, token_count: int, fitting: int | None = None) -> int:
    """`max_running_requests` as the engine resolves it, from tokens and slots. `fitting`: None: all of the tokens."""
    estimate = estimated(rule, demand, token_count, token_count if fitting is None else fitting)
    asked = requests_per_worker(rule, demand, demand.attention_dp)
    if asked is None:
        found = least(estimate, token_count // 2)
    elif rule.request_limit == "none":
        found = asked
    elif rule.request_limit == "estimate":
        found = least(asked, estimate)
    else:
        found = least(asked, token_count // 2)
    if demand.slot_bytes:
        found = least(found, slots // demand.slots_per_request)
    return found


def solve(rule: Rule, demand: Demand, rest_gib: float) -> Pools:
    """The pools of a rest: f × pre - weights, before state and scratch."""
    pools = rule.state(rule, demand, rest_gib)
    return pools if pools.refusal is not None else finish(rule, demand, pools)


def finish(rule: Rule, demand: Demand, pools: Pools) -> Pools:
    """Tokens and requests, from what the state has left over; with the checks of the rule's version."""
    if rule.refuses_no_room and pools.left_gib <= 0:
        return replace(pools, refusal="no_room")
    fitting, count = tokens(demand, pools.left_gib, pools.slots)
    windows = demand.windows
    if count <= 0:
        capped = windows is not None and windows.cap is not None
        return replace(
            pools, tokens=0, fitting=fitting, refusal="window_cap_too_large" if capped else "not_enough_memory"
        )
    beside = window_tokens(demand, count)
    requests = resolve_requests(rule, demand, pools.slots, count, fitting)

    def solved(*, requests: int, refusal: Refusal | None = None, allocated: bool = False) -> Pools:
        """Built, not `replace`d: a search makes thousands."""
        return Pools(
            slots=pools.slots,
            scratch_charged_bytes=pools.scratch_charged_bytes,
            tokens=count,
            requests=requests,
            left_gib=pools.left_gib,
            refusal=refusal,
            allocated=allocated,
            window_tokens=beside,
            fitting=fitting,
        )

    if windows is not None and windows.checked and windows.cap is None and windows.tokens + demand.page_size >= beside:
        return solved(refusal="window_too_small", requests=0)
    if requests <= 0 and demand.slot_bytes and rule.era in ("II", "III"):
        return solved(refusal="state_too_small", requests=0)
    if requests <= 0 and demand.slot_bytes and pools.slots < 0:  # no tensor has as many rows
        return solved(refusal="zero_requests", requests=0)
    if requests <= 0:
        return solved(refusal="zero_requests", requests=0, allocated=True)
    if least(demand.context_len, count) <= (BESIDE_INPUT if rule.asserts_input_len else 1):
        return solved(refusal="pool_too_short", requests=requests, allocated=True)
    return solved(requests=requests, allocated=True)


def state_only(slots: int, scratch_bytes: int, left_gib: float) -> Pools:
    """What is known when slots and scratch are settled and tokens are not."""
    return Pools(
        slots=slots,
        scratch_charged_bytes=scratch_bytes,
        tokens=None,
        requests=None,
        left_gib=left_gib,
        refusal=None,
        allocated=False,
    )
