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

from ...terms import Limit
from ...units import GIB, Quantity

#: Limits that an answer states -> their names in it.
NAMES: Mapping[Limit, str] = {
    "state_slots": "max_mamba_cache_size",
    "running_requests": "effective_max_running_requests_per_dp",
    "kv_tokens": "max_total_num_tokens",
    "context_len": "context_length",
    "max_input_tokens": "max_req_input_len",
}
#: Those are in the state of a scheduler, the others in the answer itself.
_OF_STATE: frozenset[Limit] = frozenset({"state_slots", "running_requests"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Sizes with their rounding, counts as resolved."""

    weights: Quantity | None  # of the target
    kv: Quantity | None  # of the target
    graphs: Quantity | None
    graphs_of: str  # "target", or "target and draft"
    free_after_start: Quantity | None
    kv_tokens: int | None
    state_slots: int | None
    running_requests: int | None
    context_len: int | None
    max_input_tokens: int | None


def read(info: Mapping[str, Any]) -> ServerInfo:
    """An answer of another form gives figures that are None, never an exception."""
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    state: Mapping[str, Any] = first if isinstance(first, dict) else {}
    told = state.get("memory_usage")
    usage: Mapping[str, Any] = told if isinstance(told, dict) else {}
    by_phase = isinstance(usage.get("graph"), dict)
    digits = 3 if by_phase or "startup_available" in usage else 2
    counts = {limit: whole_count((state if limit in _OF_STATE else info).get(name)) for limit, name in NAMES.items()}
    return ServerInfo(
        weights=_size(usage.get("weight"), digits),
        kv=_size(usage.get("kvcache"), digits),
        graphs=_sum(usage["graph"], digits) if by_phase else _size(usage.get("graph"), digits),
        graphs_of="target and draft" if by_phase else "target",
        free_after_start=_size(usage.get("startup_available"), digits),
        kv_tokens=counts["kv_tokens"],
        state_slots=counts["state_slots"],
        running_requests=counts["running_requests"],
        context_len=counts["context_len"],
        max_input_tokens=counts["max_input_tokens"],
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
    return Quantity.total(known)


def whole_count(value: object) -> int | None:
    """A count as an engine states it; anything else is not said."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
