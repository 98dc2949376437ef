"""What the engine got, per rank and role, beside what it was asked: the log's values gathered into one table.

In: a `ServerLog`, and the answer of `/server_info` when there is one. Out: a `PoolReport`. Nothing is computed that
the engine did not print, but sums (pools of one role, graphs), the minimum over ranks, and the longest input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..engines.contract import KvPool, Notice, PoolReport, RankPools, ServerLog, WeightsLoaded
from ..engines.sglang.server_info import ServerInfo, read, whole_count
from ..rank_names import by_value, in_order
from ..terms import ROLES, Role
from ..units import Quantity, format_count

#: What a request was made for -> the engine's name of the argument.
_ASKED = {
    "running_requests": "max_running_requests",
    "state_slots": "max_mamba_cache_size",
    "kv_tokens": "max_total_tokens",
    "context_len": "context_length",
    "mem_fraction_static": "mem_fraction_static",
}

#: A request's tokens end one before the pool's and the context's, and five are kept for its output:
#: max_req_len = min(context_len - 1, kv_tokens - 1), max_req_input_len = max_req_len - 5 (managers/tp_worker.py).
_KEPT_TOKENS = 6


def report(log: ServerLog, server_info: Mapping[str, Any] | None = None) -> PoolReport:
    """Pools and limits of a server.

    `requested` is what the engine says that it was asked (its arguments as it prints them: defaults that it fills in
    before printing count as asked). Limits are the least over all ranks. `max_input_tokens` is the server's own figure
    when `server_info` has it, else min(context_len, kv_tokens) - 6, for which both must be known.
    """
    told = read(server_info or {})
    ranks = tuple(_rank_pools(log, rank, role) for rank in _ranks(log) for role in ROLES if _has(log, rank, role))
    target = [pools for pools in ranks if pools.role == "target"]
    kv_tokens = _least(
        [row.kv_tokens for row in log.resolved],
        [pools.kv_tokens for pools in target],
        [told.kv_tokens],
    )
    context_len = _least([row.context_len for row in log.resolved], [told.context_len])
    return PoolReport(
        ranks=ranks,
        requested=_requested(log, server_info or {}),
        running_requests=_least(
            [row.running_requests for row in log.resolved],
            [told.running_requests],
            _said(log, "resolved"),
        ),
        state_slots=_least(
            [pools.state_slots for pools in target],
            [told.state_slots],
            _said(log, "state_slots"),
        ),
        kv_tokens=kv_tokens,
        context_len=context_len,
        max_input_tokens=_longest_input(told, context_len, kv_tokens),
        pre=dict(log.memory_before),
        post=_post(log),
        communication={rank: init.values["used"] for rank, init in distributed_inits(log).items()},
        disagreements=(*_between_ranks(ranks), *_with_summary(log, target), *_with_server(log, told)),
    )


def distributed_inits(log: ServerLog) -> dict[str, Notice]:
    """Rank -> the line that ends the distributed init of its target: what that rank loads next is the target,
    or a log that has its beginning ends before anything is loaded.

    A draft's own init takes nothing, which is no figure of the target. Where a log lacks its beginning, what is loaded
    is not always known to be a draft (a plain class, a load that did not end): there an init that took nothing is
    not the target's either.
    """
    found: dict[str, Notice] = {}
    loading: dict[str, list[WeightsLoaded]] = {}  # of a rank, in the order of the lines
    for load in sorted(log.weights, key=lambda load: load.line):
        loading.setdefault(load.rank, []).append(load)
    for notice in log.notices:
        if notice.kind != "distributed_ready" or notice.rank in found:
            continue
        loads = loading.get(notice.rank, [])
        begins = log.server_args_line is not None and log.server_args_line < notice.line
        if not (loads or begins) or (loads and (loads[0].line < notice.line or loads[0].role != "target")):
            continue
        if begins or notice.values["used"].bytes > 0:
            found[notice.rank] = notice
    return found


def _requested(log: ServerLog, info: Mapping[str, Any]) -> dict[str, Any]:
    args: Mapping[str, Any] = log.server_args or info
    return {name: args.get(argument) for name, argument in _ASKED.items()}


def _longest_input(told: ServerInfo, context_len: int | None, kv_tokens: int | None) -> int | None:
    if told.max_input_tokens is not None:
        return told.max_input_tokens
    if context_len is None or kv_tokens is None:
        return None
    return min(context_len, kv_tokens) - _KEPT_TOKENS


def _said(log: ServerLog, value: str) -> list[int | None]:
    """A figure of the warnings about capped requests: all that is left when the summary is missing."""
    kinds = ("requests_capped_by_state", "requests_reduced")
    return [whole_count(notice.values.get(value)) for notice in log.notices if notice.kind in kinds]


def _least(*sources: Sequence[int | None]) -> int | None:
    """The least figure of the first source that has any."""
    for source in sources:
        known = [count for value in source if (count := whole_count(value)) is not None]
        if known:
            return min(known)
    return None


# ── one rank and role ────────────────────────────────────────────────────────────────────────────────────────────────


def _ranks(log: ServerLog) -> list[str]:
    """All ranks that speak of memory, TP2 before TP10."""
    every = {entry.rank for rows in (log.weights, log.state_pools, log.kv_pools, log.graphs) for entry in rows}
    return in_order(every)


def _has(log: ServerLog, rank: str, role: Role) -> bool:
    rows = (log.weights, log.state_pools, log.kv_pools, log.graphs)
    return any(entry.rank == rank and entry.role == role for row in rows for entry in row)


def _rank_pools(log: ServerLog, rank: str, role: Role) -> RankPools:
    lines: dict[str, int] = {}
    loads = [load for load in log.weights if (load.rank, load.role) == (rank, role) and load.used is not None]
    if loads:
        lines["weights"] = loads[-1].line
    states = [pool for pool in log.state_pools if (pool.rank, pool.role) == (rank, role)]
    state = states[-1] if states else None
    if state is not None:
        lines |= dict.fromkeys(("state_slots", "state_conv", "state_ssm"), state.line)
        if state.scratch_ssm is not None:
            lines |= dict.fromkeys(("scratch_ssm", "scratch_conv"), state.line)
    kv = standing([pool for pool in log.kv_pools if (pool.rank, pool.role) == (rank, role)], role)
    if kv:
        lines |= dict.fromkeys(("kv_tokens", "k", "v", "kv", "dtype", "label"), _leading(kv).line)
    captures = [graph for graph in log.graphs if (graph.rank, graph.role) == (rank, role) and graph.used is not None]
    if captures:
        lines["graphs"] = captures[-1].line
    ends = [end for end in log.pool_ends if (end.rank, end.role) == (rank, role)]
    if ends:
        lines["available"] = ends[-1].line
    return RankPools(
        rank=rank,
        role=role,
        weights=_sum(load.used for load in loads) if role == "draft" else (loads[-1].used if loads else None),
        state_slots=whole_count(state.slots) if state else None,
        state_conv=state.conv if state else None,
        state_ssm=state.ssm if state else None,
        scratch_ssm=state.scratch_ssm if state else None,
        scratch_conv=state.scratch_conv if state else None,
        kv_tokens=whole_count(_leading(kv).tokens) if kv else None,
        k=_sum(pool.k for pool in kv),
        v=_sum(pool.v for pool in kv),
        kv=_sum(pool.kv for pool in kv),
        dtype=_leading(kv).dtype if kv else None,
        label=" + ".join(pool.label for pool in kv if pool.label) or None,
        graphs=_sum(capture.used for capture in captures),
        available=ends[-1].available if ends else None,
        lines=lines,
    )


def standing(pools: Sequence[KvPool], role: Role) -> list[KvPool]:
    """The pools that stand: of a target the last of each label, of a draft all (one per draft layer in some)."""
    if role == "draft":
        return list(pools)
    return list({pool.label: pool for pool in pools}.values())


def _leading(pools: Sequence[KvPool]) -> KvPool:
    """The pool whose tokens bound a request: full attention's; a window's pool is smaller on purpose."""
    return next((pool for pool in pools if pool.label != "SWA"), pools[0])


def _sum(quantities: Iterable[Quantity | None]) -> Quantity | None:
    """Sum of all, None when there are none or one is not logged."""
    every = list(quantities)
    if not every or any(quantity is None for quantity in every):
        return None
    return Quantity.total(quantity for quantity in every if quantity is not None)


def _post(log: ServerLog) -> dict[str, Quantity]:
    """Rank -> free memory when its pools are sized: at the last end of a load before its first pool line.

    Up to 0.5.13 the draft loads after the pools, so there it is the target's load; later versions load both before. Of
    a rank whose pool lines are not in the log, what loads before the pools of another.
    """
    lines = [*((pool.rank, pool.line) for pool in log.state_pools), *((pool.rank, pool.line) for pool in log.kv_pools)]
    first: dict[str, int] = {}
    for rank, line in lines:
        first[rank] = min(first.get(rank, line), line)
    early = {load.role for load in log.weights if load.line < first.get(load.rank, 0)}
    post: dict[str, Quantity] = {}
    for rank in _ranks(log):
        loads = [load for load in log.weights if load.rank == rank and load.available is not None]
        if rank in first:
            before = [load for load in loads if load.line < first[rank]]
        else:
            before = [load for load in loads if not early or load.role in early]
        last = max(
            before or [load for load in loads if load.role == "target"], key=lambda load: load.line, default=None
        )
        if last is not None and last.available is not None:
            post[rank] = last.available
    return post


# ── what should agree and does not ───────────────────────────────────────────────────────────────────────────────────


def _between_ranks(ranks: Sequence[RankPools]) -> list[str]:
    found = []
    for role in ROLES:
        rows = [pools for pools in ranks if pools.role == role]
        slots = {pools.rank: pools.state_slots for pools in rows if pools.state_slots is not None}
        tokens = {pools.rank: pools.kv_tokens for pools in rows if pools.kv_tokens is not None}
        for what, values in (("state slots", slots), ("KV tokens", tokens)):
            if len(set(values.values())) > 1:
                each = ", ".join(f"{format_count(value)} ({named})" for named, value in by_value(values))
                found.append(f"{role}: {what} differ between ranks: {each}")
    return found


def _with_summary(log: ServerLog, target: Sequence[RankPools]) -> list[str]:
    """The summary is printed last: after sizing behind graph capture it is lower than the pool's line."""
    tokens = {pools.rank: pools.kv_tokens for pools in target}
    return [
        f"KV tokens of {row.rank or 'rank 0'}: the pool's line says {format_count(tokens[row.rank])}, "
        f"the summary {format_count(row.kv_tokens)}"
        for row in log.resolved
        if row.kv_tokens is not None and tokens.get(row.rank) not in (None, row.kv_tokens)
    ]


def _with_server(log: ServerLog, told: ServerInfo) -> list[str]:
    logged = _least([row.kv_tokens for row in log.resolved])
    if told.kv_tokens is None or logged is None or told.kv_tokens == logged:
        return []
    return [f"KV tokens: the log's summary says {format_count(logged)}, /server_info {format_count(told.kv_tokens)}"]
