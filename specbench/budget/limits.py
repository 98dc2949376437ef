"""Limits of a budget, each with its formula in words and in figures.

In: a solved case. Out: counts of the server (of one data-parallel worker), which all of its ranks share.
"""

from __future__ import annotations

from collections.abc import Callable

from ..budget_types import PredictedLimit
from ..engines.sglang.resolve import Settings
from ..engines.sglang.sizing.contract import Demand, Pools
from ..engines.sglang.sizing.steps import BESIDE_INPUT, beyond_fitting, estimated
from ..lanes import least, most
from ..terms import Limit
from ..units import GIB, Interval
from .case import Case, over

#: Instead of a formula, where there is nothing to count: not the same as a figure that is not predicted.
NO_STATE = "the model keeps no state"


def state_slots(pools: Pools) -> int:
    """Of one data-parallel worker; 0 where the solver's figure is below (it refuses then)."""
    return most(pools.slots, 0)


def running_requests(pools: Pools) -> int | None:
    """At once, of one worker; 0: refused. None: refused before they were computed."""
    return 0 if pools.refusal and pools.refusal != "pool_too_short" else pools.requests


def kv_tokens(pools: Pools) -> int | None:
    """None: the pools were not allocated."""
    return pools.tokens if pools.allocated else None


def max_input_tokens(wanted: Demand) -> Callable[[Pools], int | None]:
    """Of pools: tokens that an input must be shorter than (managers/tp_worker.py, max_req_input_len); None: no pool
    that holds a request."""

    def longest(pools: Pools) -> int | None:
        if not pools.allocated or not pools.tokens or pools.refusal == "pool_too_short":
            return None
        return least(wanted.context_len, pools.tokens) - BESIDE_INPUT

    return longest


def limits(case: Case) -> dict[Limit, PredictedLimit]:
    """Every limit of one worker over the span of free memory, with its formula in words and in numbers."""
    resolved, wanted, pools = case.settings, case.demand, case.span.point.pools
    rule = resolved.rule.label
    stateful = case.slot.layers > 0
    per_request = resolved.slots_per_request
    found: dict[Limit, PredictedLimit] = {}

    def add(limit: Limit, value: Interval | None, formula: str, numbers: str) -> None:
        found[limit] = PredictedLimit(limit=limit, value=value, formula=formula, numbers=numbers, rule=rule)

    slots = over(case, state_slots) if stateful else None
    add("state_slots", slots, *(_slot_formula(case) if stateful else (NO_STATE, "")))
    add(
        "slots_per_request",
        Interval.exact(per_request) if stateful else None,
        _per_request_words(resolved) if stateful else NO_STATE,
        str(per_request) if stateful else "",
    )
    requests = over(case, running_requests)
    bound, bound_numbers = _bound_by_tokens(resolved, wanted, pools)
    asked = wanted.requests if wanted.requests is not None else "none asked"
    add(
        "running_requests",
        requests,
        f"smallest of asked, {bound}" + (", slots // slots per request" if stateful else ""),
        f"asked {asked}, {bound_numbers}"
        + (f", {pools.slots} // {per_request} = {pools.slots // per_request}" if stateful else ""),
    )
    tokens, beyond = over(case, kv_tokens), beyond_fitting(wanted, pools.slots)
    if tokens is None:
        add("kv_tokens", None, "not predicted: the start is refused before the pools are allocated", "")
    else:
        add(
            "kv_tokens",
            tokens,
            f"what state and scratch leave // bytes of a token (target + {case.cell.draft_words}{_beside(wanted)})"
            + (", and what all requests draft and verify at once, whether it fits or not" if beyond else ""),
            f"{_of_tokens(wanted, int(pools.left_gib * GIB))}{f' + {beyond:,}' if beyond else ''} = {pools.tokens:,}",
        )
    add(
        "context_len",
        Interval.exact(wanted.context_len),
        "--context-length, else the model's own",
        str(wanted.context_len),
    )
    longest = over(case, max_input_tokens(wanted))
    add(
        "max_input_tokens",
        longest,
        "min(context, tokens) - 1 - 5" if longest else "not predicted: no pool",
        f"min({wanted.context_len:,}, {pools.tokens:,}) - 6 = {longest.point:,}" if longest else "",
    )
    return found


def _beside(wanted: Demand) -> str:
    """A clause on the pool of sliding-window layers."""
    windows = wanted.windows
    if windows is None:
        return ""
    if windows.cap is not None:
        return "), after the pool of the sliding-window layers, as large as the asked requests can fill (its cap"
    return f" + {windows.ratio:g} × bytes of a token in the sliding-window layers"


def _of_tokens(wanted: Demand, left: int) -> str:
    windows, cell = wanted.windows, f"{wanted.cell_bytes:,}"
    if windows is None:
        return f"{left:,} B // {cell} B"
    if windows.cap is not None:
        return f"({left:,} B - {windows.cap:,} × {windows.bytes:,} B) // {cell} B"
    return f"{left:,} B // ({cell} + {windows.ratio:g} × {windows.bytes:,}) B"


def _bound_by_tokens(resolved: Settings, wanted: Demand, pools: Pools) -> tuple[str, str]:
    """What the KV pool alone allows, in words and in figures."""
    tokens = pools.tokens
    if tokens is None:
        return "what the KV tokens allow", "KV tokens not known"
    context = wanted.context_len
    estimate = estimated(resolved.rule, wanted, tokens, pools.fitting)
    counted = pools.fitting if resolved.rule.requests_of_fitting else tokens
    half = f"{tokens:,} // 2 = {tokens // 2:,}"
    if resolved.rule.request_limit == "half_tokens" and wanted.requests is not None:
        return "tokens // 2", half
    if resolved.rule.request_limit == "none" and wanted.requests is not None:
        return "nothing that the tokens say", "no limit by tokens"
    words = "512 for every whole context of tokens, but at least 2,048 and at most 4,096"
    figures = f"{counted:,} / {context:,} × 512, within bounds {estimate:,}"
    if wanted.requests is None:
        return f"{words}, tokens // 2", f"{figures}, {half}"
    return words, figures


def _slot_formula(case: Case) -> tuple[str, str]:
    wanted, resolved = case.demand, case.settings
    left, slot = f"{case.span.point.rest_gib:z.4f} GiB", f"{wanted.slot_bytes + wanted.ring_slot_bytes:,} B"
    slots = case.span.point.pools.slots
    if wanted.explicit_slots is not None and not (wanted.radix and resolved.rule.scratch_per_slot):
        return "--max-mamba-cache-size", f"{wanted.explicit_slots} // {wanted.attention_dp} = {slots}"
    if not wanted.radix and wanted.requests is not None:
        return "one per asked request, as there is no radix cache", str(slots)
    share = f"× {wanted.ratio:g} / (1 + {wanted.ratio:g})"
    width, per_request = wanted.scratch_tokens, wanted.slots_per_request
    if not width:
        pad = " less one padding slot" if resolved.rule.charges_padding else ""
        return f"ratio's share of the rest // slot bytes{pad}", f"{left} {share} // {slot}{pad} = {slots}"
    match resolved.rule.era:
        case "0":
            return (
                "ratio's share of the rest // slot bytes // (1 + D)",
                f"{left} {share} // {slot} // {1 + width} = {slots}",
            )
        case "I":
            first = f"({left} - {wanted.requests} × {width} × {slot})"
            return (
                "ratio's share of the rest after the scratch of every asked request // slot bytes",
                f"{first} {share} // {slot} = {slots}",
            )
        case "II":
            return (
                "ratio's share of the rest // (slot bytes × (1 + D / slots per request))",
                f"{left} {share} // ({slot} × (1 + {width} / {per_request})) = {slots}",
            )
        case _:
            return (
                "(ratio's share of the rest - padding) // (slot bytes × (1 + D / slots per request))",
                f"({left} {share} - {1 + width} × {slot}) // ({slot} × (1 + {width} / {per_request})) = {slots}",
            )


def _per_request_words(resolved: Settings) -> str:
    if resolved.strategy is None:
        return "one: no radix cache"
    overlap = "with" if resolved.overlap else "without"
    return f"strategy {resolved.strategy}, {overlap} overlap scheduling"
