"""What pools took by the log's own figures, in sentences. In: a case. Out: a sentence; "" where it is not logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..engines.contract import GraphCapture, RankPools
from ..units import MIB, Quantity, counted, format_gib
from .case import Case

#: CUDA graphs are told from this share of what was free when the pools stood.
LARGE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestScratch:
    """The speculative scratch of one running request, as logged."""

    size_bytes: int
    requests: int  # for which the scratch was made


def largest(case: Case) -> str:
    """Names the speculative scratch when it is larger than the pool that serves tokens, as logged."""
    target = _of(case, "target")
    if target is None or target.scratch_ssm is None or target.kv is None:
        return ""
    scratch = scratch_bytes(target)
    if scratch <= target.kv.bytes:
        return ""
    return (
        f" The speculative scratch alone took {format_gib(scratch)}, more than the KV pool "
        f"({format_gib(target.kv.bytes)}): {scratch_arithmetic(case, target)}."
    )


def large_graphs(case: Case) -> str:
    """Names CUDA graphs that took most of what the pools left, as logged."""
    captures = max(graph_captures(case).values(), key=graphs_bytes, default=[])
    taken, left = graphs_bytes(captures), left_by_pools(case, captures)
    if not left or taken < LARGE_SHARE * left:
        return ""
    return (
        f" CUDA graphs took {format_gib(taken)} of the {format_gib(left)} that were free when the pools stood "
        f"({taken / left:.0%})."
    )


def taken(case: Case) -> str:
    """Every part of one rank that the log names, largest first."""
    target, draft = _of(case, "target"), _of(case, "draft")
    if target is None:
        return ""
    parts = {
        "weights": target.weights.bytes if target.weights else None,
        "draft weights": draft.weights.bytes if draft and draft.weights else None,
        "state slots": _sum(target.state_conv, target.state_ssm),
        "scratch": _sum(target.scratch_conv, target.scratch_ssm),
        "KV": target.kv.bytes if target.kv else None,
        "draft KV": draft.kv.bytes if draft and draft.kv else None,
        "graphs": _sum(target.graphs, draft.graphs if draft else None),
    }
    known = sorted(((size, name) for name, size in parts.items() if size), reverse=True)
    if len(known) < 2:
        return ""
    named = ", ".join(f"{name} {format_gib(size)}" for size, name in known)
    rank = f" by {target.rank}" if target.rank else ""
    return f" Logged{rank}: {named}."


def scratch_of_request(case: Case) -> RequestScratch | None:
    """From the pool's line: it has one row more than there are running requests.

    Without a prefix cache there is a slot for each request, so the slots tell how many the scratch was made for.
    """
    target = _of(case, "target")
    total = None if target is None else _sum(target.scratch_ssm, target.scratch_conv)
    requests = case.pools.running_requests
    if requests is None and (case.log.server_args or {}).get("disable_radix_cache") is True:
        requests = case.pools.state_slots
    if not total or not requests:
        return None
    return RequestScratch(size_bytes=total // (requests + 1), requests=requests)


def scratch_arithmetic(case: Case, rank: RankPools) -> str:
    """(64 requests + 1) × 16 draft tokens × 48.05 MiB; where the log does not tell both, how many states it holds."""
    if rank.scratch_ssm is None or rank.state_ssm is None or rank.state_ssm.bytes <= 0 or (rank.state_slots or 0) < 1:
        return "one state for each draft token of each request"
    slots = rank.state_slots or 0
    each = rank.state_ssm.bytes / (slots + 1)
    states = round(rank.scratch_ssm.bytes / each)
    size = f"{each / MIB:.2f} MiB"
    requests, drafts = case.pools.running_requests or case.wanted_requests, _draft_tokens(case)
    if requests and drafts and abs((requests + 1) * drafts - states) * 50 < states:  # two digits are logged: 2%
        return f"({requests:,} requests + 1) × {drafts} draft tokens × {size} of state (as logged per slot)"
    return (
        f"about {states:,} states of {size} (as logged per slot), one for each draft token of each request, "
        f"beside {counted(slots, 'slot')}"
    )


def _draft_tokens(case: Case) -> int | None:
    known = case.budget.details.get("draft_tokens") if case.budget is not None else None
    if known is not None:
        return known.point
    asked = (case.log.server_args or {}).get("speculative_num_draft_tokens")
    return asked if isinstance(asked, int) else None


def scratch_bytes(rank: RankPools) -> int:
    """Speculative scratch of the rank, as logged; 0: none is."""
    return _sum(rank.scratch_ssm, rank.scratch_conv) or 0


def state_bytes(rank: RankPools) -> int:
    """State slots of the rank, as logged; 0: none are."""
    return _sum(rank.state_ssm, rank.state_conv) or 0


def graph_captures(case: Case) -> Mapping[str, list[GraphCapture]]:
    """Rank -> its captures whose size is logged."""
    found: dict[str, list[GraphCapture]] = {}
    for capture in case.log.graphs:
        if capture.used is not None and capture.used.bytes > 0:
            found.setdefault(capture.rank, []).append(capture)
    return found


def graphs_bytes(captures: list[GraphCapture]) -> int:
    """What they took together."""
    return sum(one.used.bytes for one in captures if one.used is not None)


def left_by_pools(case: Case, captures: list[GraphCapture]) -> int | None:
    """Free on that rank after its last pool and before its first graph."""
    if not captures:
        return None
    first = min(one.line for one in captures)
    ends = [end for end in case.log.pool_ends if end.rank == captures[0].rank and end.line < first]
    return max(ends, key=lambda end: end.line).available.bytes if ends else None


def _of(case: Case, role: str) -> RankPools | None:
    return next((pools for pools in case.pools.ranks if pools.role == role), None)


def _sum(*sizes: Quantity | None) -> int | None:
    known = [size.bytes for size in sizes if size is not None]
    return sum(known) if known else None
