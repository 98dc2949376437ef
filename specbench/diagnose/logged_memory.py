"""What pools took by the log's own figures, in sentences. In: a case. Out: a sentence; "" where it is not logged."""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.contract import RankPools
from ..units import Quantity, format_gib
from .case import Case


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
    scratch = _sum(target.scratch_ssm, target.scratch_conv)
    if scratch is None or scratch <= target.kv.bytes:
        return ""
    pool = format_gib(target.kv.bytes)
    return f" The speculative scratch alone took {format_gib(scratch)}, more than the KV pool ({pool})."


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


def _of(case: Case, role: str) -> RankPools | None:
    return next((pools for pools in case.pools.ranks if pools.role == role), None)


def _sum(*sizes: Quantity | None) -> int | None:
    known = [size.bytes for size in sizes if size is not None]
    return sum(known) if known else None
