"""Rules about a log of several starts: what the last one got otherwise than the one before it, with the same arguments.

In: a case. Out: findings, where the same server got less memory, or where its CUDA graphs took more. The non-obvious
thing: free memory before loading is read before anything of the server but its CUDA context is there, so that a
difference is somebody else's (a program, or the start before, which was not yet gone).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engines.contract import GraphCapture, Line, PoolReport, ServerLog
from ..reading.pools import report
from ..units import GIB, Quantity, format_count, format_gib
from .case import Case
from .finding import Finding
from .logged_memory import graphs_bytes

#: Starts differ by less than this for no reason that anybody could find.
_DIFFERENCE_BYTES, _GROWTH = GIB // 2, 0.25
#: Arguments in which two starts of one server may differ: none of them decides memory.
_OWN = frozenset(("port", "host", "nccl_port", "random_seed", "dist_init_addr", "served_model_name", "log_level"))
_COSTS = 0.05


def starts_differ(case: Case) -> tuple[Finding, ...]:
    """Less, or more, free memory before loading than the same server had a start earlier."""
    before = _the_same_before(case.log)
    if before is None:
        return ()
    earlier = report(before)
    then, now = earlier.least(earlier.pre), case.pools.least(case.pools.pre)
    if then is None or now is None or abs(now.bytes - then.bytes) < _DIFFERENCE_BYTES:
        return ()
    less = now.bytes < then.bytes
    lost = _share_lost(earlier, case.pools)
    return (
        Finding(
            id="starts-differ",
            cause=(
                f"With the same arguments {format_gib(now.bytes)} were free before loading, "
                f"{format_gib(abs(now.bytes - then.bytes))} {'less' if less else 'more'} than at the start before in "
                f"this log ({format_gib(then.bytes)}){_tokens(earlier, case.pools)}: another program, or a server "
                f"that was not yet gone, {'holds' if less else 'held'} memory of the card."
            ),
            severity="costly" if lost is not None and lost >= _COSTS else "notice",
            evidence=(*_loading(before, then), *_loading(case.log, now)),
            lost=lost,
        ),
    )


def graphs_grew(case: Case) -> tuple[Finding, ...]:
    """CUDA graphs that took more than those of the start before, with the same arguments."""
    before = _the_same_before(case.log)
    if before is None:
        return ()
    then, now = _graphs(before), _graphs(case.log)
    known = [rank for rank in now if rank in then]
    if not known:
        return ()
    rank = max(known, key=lambda one: graphs_bytes(now[one]) - graphs_bytes(then[one]))
    grown, base = graphs_bytes(now[rank]) - graphs_bytes(then[rank]), graphs_bytes(then[rank])
    if grown < _DIFFERENCE_BYTES or grown < _GROWTH * base:
        return ()
    where = f" on {rank}" if rank else ""
    return (
        Finding(
            id="graphs-grew",
            cause=(
                f"CUDA graphs took {format_gib(graphs_bytes(now[rank]))}{where}, {format_gib(grown)} more than at the "
                f"start before in this log ({format_gib(base)}), with the same arguments: that much less is left for "
                "activations. Compiled kernels that one start loads and the other does not count as graphs too."
            ),
            severity="notice",
            evidence=tuple(
                log.at(one.line, log.evidence[one.line])
                for log, captures in ((before, then[rank]), (case.log, now[rank]))
                for one in captures
                if one.line in log.evidence
            ),
        ),
    )


def _the_same_before(log: ServerLog) -> ServerLog | None:
    """The start before, when it had the same arguments, as far as they may decide memory."""
    before = log.previous
    if before is None or before.server_args is None or log.server_args is None:
        return None
    return before if _deciding(before.server_args) == _deciding(log.server_args) else None


def _deciding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in _OWN}


def _tokens(then: PoolReport, now: PoolReport) -> str:
    """'; it has 309,479 KV tokens instead of 521,476'."""
    if then.kv_tokens is None or now.kv_tokens is None or then.kv_tokens == now.kv_tokens:
        return ""
    return f"; it has {format_count(now.kv_tokens)} KV tokens instead of {format_count(then.kv_tokens)}"


def _share_lost(then: PoolReport, now: PoolReport) -> float | None:
    if not then.kv_tokens or now.kv_tokens is None or now.kv_tokens >= then.kv_tokens:
        return None
    return 1 - now.kv_tokens / then.kv_tokens


def _loading(log: ServerLog, free: Quantity) -> tuple[Line, ...]:
    """The line that told this free memory before loading."""
    loads = [load for load in log.weights if load.role == "target" and load.before == free]
    begins = (number for load in loads for number in sorted(log.evidence, reverse=True) if number < load.line)
    return tuple(
        log.at(number, log.evidence[number]) for number in begins if "Load weight begin" in log.evidence[number]
    )[:1]


def _graphs(log: ServerLog) -> dict[str, list[GraphCapture]]:
    """rank -> its captures, of a start that captured them all."""
    found: dict[str, list[GraphCapture]] = {}
    if log.ready_line is None and not log.resolved:
        return found
    for capture in log.graphs:
        if capture.used is not None:
            found.setdefault(capture.rank, []).append(capture)
    return found
