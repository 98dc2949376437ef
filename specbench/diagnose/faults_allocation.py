"""Allocations that failed: what was asked of the card, what it had, and which pool took the rest.

In: a case, its failure (torch's text), and where it happened. Out: a fault; its remedies are tried by prediction, or
rest on the log's own figures where nothing can be predicted.
"""

from __future__ import annotations

import math

from ..engines.contract import Failure
from ..planning.wishes import LEAST_SLACK_BYTES
from ..units import GIB, format_gib
from .case import Case
from .catalogue import FindingId
from .fault import Fault, sourced
from .finding import Remedy
from .logged_memory import large_graphs, largest, scratch_of_request, taken

#: Where an allocation failed -> finding.
_IDS: dict[str, FindingId] = {
    "start": "out-of-memory-start",
    "pools": "out-of-memory-pools",
    "graphs": "out-of-memory-graphs",
    "serving": "out-of-memory-serving",
}
#: What a driver keeps of a card, and a process that only looks at it, is less.
_HELD_BYTES = 2 * GIB
_WHERE = {
    "pools": "while the pools were allocated",
    "graphs": "at graph capture",
    "start": "while starting",
}


def out_of_memory(case: Case, failure: Failure, where: str) -> Fault:
    """torch could not allocate. `where`: start, pools, graphs, serving."""
    requested, free = (_bytes(failure, name) for name in ("requested_bytes", "free_bytes"))
    missing = max(0, (requested or 0) - (free or 0))
    head = (
        "Out of GPU memory while serving: activations did not fit beside the pools."
        if where == "serving"
        else f"Out of GPU memory {_WHERE[where]}: the static fraction leaves too little outside the budget."
    )
    if (others := _held_by_others(failure)) is not None:
        return Fault(
            id=_IDS[where],
            cause=(
                f"Out of GPU memory: other processes hold {_size(others)} of the card{_which(failure)}, which no "
                f"setting of this server changes (nvidia-smi names them).{_allocation(failure)}"
            ),
            evidence=case.pool_lines(),
            lost=1.0,
        )
    return Fault(
        id=_IDS[where],
        cause=f"{head}{_allocation(failure)}{largest(case)}{large_graphs(case)}{taken(case)}{_slack(case)}",
        remedies=case.less_memory(missing) or case.remedies() or _less_by_hand(case, failure, missing, where),
        evidence=case.pool_lines(),
        lost=1.0,
    )


def _held_by_others(failure: Failure) -> int | None:
    """Of the total that torch names, what is neither free nor this process's; None: not told, or next to nothing."""
    total, free, own = (_bytes(failure, name) for name in ("total_bytes", "free_bytes", "in_use_bytes"))
    if total is None or free is None or own is None:
        return None
    others = total - free - own
    return others if others >= _HELD_BYTES else None


def _which(failure: Failure) -> str:
    number = failure.values.get("gpu")
    return f" (GPU {number} of those that the process sees)" if isinstance(number, int) else ""


def _allocation(failure: Failure) -> str:
    """What was asked of the card and what it had, as torch says."""
    requested, free, total = (_bytes(failure, name) for name in ("requested_bytes", "free_bytes", "total_bytes"))
    if requested is None:
        return ""
    asked = f" {_size(requested)} were asked for"
    if free is None:
        return f"{asked}."
    of = "" if total is None else f" of {_size(total)}"
    gap = f": {_size(requested - free)} are missing" if requested > free else ", but not in one piece"
    return f"{asked}, {_size(free)}{of} were free{gap}."


def _less_by_hand(case: Case, failure: Failure, missing: int, where: str) -> tuple[Remedy, ...]:
    """Where nothing can be predicted: from the log's own figures."""
    found: tuple[Remedy, ...] = ()
    total, fraction = _bytes(failure, "total_bytes"), case.asked_fraction
    if total and fraction:
        lower = math.floor((fraction - (missing + LEAST_SLACK_BYTES) / total) * 100) / 100
        if 0 < lower < fraction:
            found += sourced(
                case,
                {"memory.mem_fraction_static": lower},
                f"leaves {format_gib(round((fraction - lower) * total))} more outside the pools, {_size(missing)} "
                "are missing",
            )
    each = scratch_of_request(case)
    requests = None if each is None else each.requests
    if each is not None and requests is not None and requests > 1:
        fewer = max(1, requests // 2)
        freed = (requests - fewer) * each.size_bytes
        if freed > missing:
            found += sourced(
                case,
                {"memory.max_running_requests": fewer},
                f"asks for {fewer} instead of {requests}: {requests - fewer} × {_size(each.size_bytes)} = "
                f"{format_gib(freed)} less of scratch, as logged",
            )
    if where == "graphs":
        found += sourced(
            case, {"memory.cuda_graph_max_bs": 8}, "graphs of smaller batches only: larger ones run without"
        )
    return found


def _slack(case: Case) -> str:
    slack = case.budget.terms["slack"].bytes if case.budget and "slack" in case.budget.terms else None
    if slack is None:
        return ""
    if slack.point < 0:
        return f" By the prediction the pools take {format_gib(-slack.point)} more than the card has."
    return f" By the prediction {format_gib(slack.point)} would be left for graphs and activations."


def _bytes(failure: Failure, name: str) -> int | None:
    value = failure.values.get(name)
    return value if isinstance(value, int) else None


def _size(size_bytes: int) -> str:
    """GiB, or MiB below one."""
    return format_gib(size_bytes) if size_bytes >= GIB else f"{size_bytes / 2**20:.2f} MiB"
