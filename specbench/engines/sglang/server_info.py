"""What /server_info tells of memory and limits. In: its JSON. Out: `ServerInfo`; what it does not tell is None.

Up to 0.5.19 `memory_usage` has weight, kvcache and graph in GiB of two decimals; from 0.5.20 three decimals, graphs by
phase, and what was free after the start. The non-obvious thing: weight is the target's alone, kvcache is the target's
KV without state and scratch, and graph is the target's alone up to 0.5.19. All of it is of the first rank of the first
data-parallel worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...units import GIB, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Sizes with their rounding, counts as resolved."""

    version: str | None
    weights: Quantity | None  # of the target
    kv: Quantity | None  # of the target
    graphs: Quantity | None
    graphs_of: str  # "target", or "target and draft"
    free_after_start: Quantity | None
    kv_tokens: int | None
    token_capacity: int | None  # the same figure, as the scheduler tells it
    state_slots: int | None
    running_requests: int | None
    context_len: int | None
    max_input_tokens: int | None


def read(info: Mapping[str, Any] | None) -> ServerInfo | None:
    """None: there was no answer. An answer of another form gives figures that are None, never an exception."""
    if info is None:
        return None
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    state: Mapping[str, Any] = first if isinstance(first, dict) else {}
    told = state.get("memory_usage")
    usage: Mapping[str, Any] = told if isinstance(told, dict) else {}
    by_phase = isinstance(usage.get("graph"), dict)
    digits = 3 if by_phase or "startup_available" in usage else 2
    version = info.get("version")
    return ServerInfo(
        version=version if isinstance(version, str) else None,
        weights=_size(usage.get("weight"), digits),
        kv=_size(usage.get("kvcache"), digits),
        graphs=_sum(usage["graph"], digits) if by_phase else _size(usage.get("graph"), digits),
        graphs_of="target and draft" if by_phase else "target",
        free_after_start=_size(usage.get("startup_available"), digits),
        kv_tokens=_count(info.get("max_total_num_tokens")),
        token_capacity=_count(usage.get("token_capacity")),
        state_slots=_count(state.get("max_mamba_cache_size")),
        running_requests=_count(state.get("effective_max_running_requests_per_dp")),
        context_len=_count(info.get("context_length")),
        max_input_tokens=_count(info.get("max_req_input_len")),
    )


def _size(value: Any, digits: int) -> Quantity | None:
    """GiB as a number that was rounded to `digits` decimals."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        return None
    return Quantity(round(value * GIB), math.ceil(0.5 * 10**-digits * GIB))


def _sum(phases: Mapping[str, Any], digits: int) -> Quantity | None:
    sizes = [_size(value, digits) for value in phases.values()]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return Quantity(sum(size.bytes for size in known), sum(size.resolution_bytes for size in known))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
