"""Rules about starts that failed and servers that died. One function per cause; each returns its findings."""

from __future__ import annotations

from ..engines.contract import Failure, Line
from ..units import counted, format_gib, gib
from .case import Case
from .engine_fault import TO_REPORT, KnownFault, known_fault
from .finding import Finding

#: failure kind -> finding id. What is not here is a crash of its own kind.
_IDS = {
    "bad_arguments": "refused-arguments",
    "bad_environment": "bad-environment",
    "state_pool_too_small": "refused-state-pool",
    "zero_requests": "refused-state-pool",
    "weights_leave_no_room": "refused-weights",
    "not_enough_memory": "refused-no-memory",
    "memory_pool_too_small": "refused-no-memory",
    "memory_unbalanced": "refused-unbalanced",
    "graph_capture_failed": "out-of-memory-graphs",
}


def failed(case: Case) -> tuple[Finding, ...]:
    """The first failure of the log is the cause; those after it (SIGQUIT, killed children) are consequences."""
    if not case.log.failures:
        return _silent_end(case)
    failure = case.log.failures[0]
    after_ready = case.log.ready_line is not None and failure.line > case.log.ready_line
    finding_id = _id(failure, after_ready)
    evidence = (*_shortage_lines(case, finding_id), *_failure_lines(case, failure))
    fault = known_fault(case, failure) if finding_id in ("crashed-serving", "crashed-start") else None
    wants_remedies = finding_id.startswith(("refused-", "out-of-memory")) and finding_id != "refused-unbalanced"
    return (
        Finding(
            id=finding_id,
            cause=_cause(case, failure, finding_id, fault),
            severity="fatal",
            evidence=evidence,
            remedies=fault.remedies if fault is not None else case.remedies() if wants_remedies else (),
        ),
    )


def _id(failure: Failure, after_ready: bool) -> str:
    if failure.kind == "cuda_oom" or "OutOfMemory" in (failure.exception or ""):
        where = "serving" if after_ready else {"pools": "pools", "graphs": "graphs"}.get(failure.phase, "start")
        return f"out-of-memory-{where}"
    known = _IDS.get(failure.kind)
    if known is not None:
        return known
    if after_ready:
        return "crashed-serving"
    return "refused-arguments" if failure.phase == "arguments" else "crashed-start"


def _cause(case: Case, failure: Failure, finding_id: str, fault: KnownFault | None) -> str:
    said = f"{failure.exception}: {failure.text}" if failure.exception else failure.text
    said = said if len(said) <= 240 else said[:237] + "…"
    slots, per_request = case.pools.state_slots, case.limit("slots_per_request")
    match finding_id:
        case "refused-state-pool" if slots is not None and per_request:
            return (
                f"The state pool got {slots} slots and one request needs {per_request}: {slots} // {per_request} = "
                f"{slots // per_request} requests can run, so the server refuses to start.{_scratch(case)}"
            )
        case "refused-state-pool":
            return f"The state pool is too small for a single request.{_scratch(case)} The engine says: {said}"
        case "refused-weights":
            return (
                f"Weights, state slots and speculative scratch leave nothing for KV.{_scratch(case)} The engine blames "
                "the weights, and proposes a larger mem_fraction_static."
            )
        case "refused-no-memory":
            return f"Nothing is left for the KV pool.{_scratch(case)} The engine says: {said}"
        case "out-of-memory-pools" | "out-of-memory-graphs" | "out-of-memory-start":
            what = {"pools": "while the pools were allocated", "graphs": "at graph capture"}
            where = what.get(finding_id.removeprefix("out-of-memory-"), "while starting")
            return (
                f"Out of GPU memory {where}: the static fraction leaves too little outside the budget."
                f"{_largest(case)}{_slack(case)}"
            )
        case "out-of-memory-serving":
            why = "activations did not fit beside the pools"
            return f"Out of GPU memory while serving: {why}.{_largest(case)}{_slack(case)}"
        case "refused-arguments":
            return f"The engine refuses the arguments: {said}"
        case "bad-environment":
            return (
                f"The engine's Python environment lacks something: {said} (Nothing about memory: repair that "
                "environment, or name another interpreter in engine.python; specbench doctor --python PATH tells what "
                "it has.)"
            )
        case "refused-unbalanced":
            return f"One GPU has much less free memory than another: someone else uses it. {said}"
        case "crashed-serving":
            died = f"The server died while serving{_batch(case)}: {said}"
            return f"{died} ({TO_REPORT})" if fault is None else f"{fault.cause} {died}"
        case _:
            return f"{f'{fault.cause} ' if fault is not None else ''}The server died while starting: {said}"


def _scratch(case: Case) -> str:
    """The arithmetic that explains most collapses: scratch of the requested requests against what there is."""
    budget = case.budget
    if budget is None or case.wanted_requests is None:
        return ""
    per_request = budget.details.get("scratch_per_request_bytes")
    rest = budget.details.get("rest_bytes")
    if per_request is None or rest is None or per_request.point == 0:
        return ""
    total = per_request.point * case.wanted_requests
    return (
        f" Speculation alone would take {case.wanted_requests} × {gib(per_request.point):.2f} = {format_gib(total)} of "
        f"scratch out of the {format_gib(rest.point)} that are left for pools after the weights (predicted)."
    )


def _largest(case: Case) -> str:
    """Names the speculative scratch when it is larger than the pool that serves tokens, as logged."""
    target = next((pools for pools in case.pools.ranks if pools.role == "target"), None)
    if target is None or target.scratch_ssm is None or target.kv is None:
        return ""
    scratch = target.scratch_ssm.bytes + (target.scratch_conv.bytes if target.scratch_conv else 0)
    if scratch <= target.kv.bytes:
        return ""
    pool = format_gib(target.kv.bytes)
    return f" The speculative scratch alone took {format_gib(scratch)}, more than the KV pool ({pool})."


def _slack(case: Case) -> str:
    slack = case.budget.terms["slack"].bytes if case.budget and "slack" in case.budget.terms else None
    if slack is None:
        return ""
    if slack.point < 0:
        return f" By the prediction the pools take {format_gib(-slack.point)} more than the card has."
    return f" By the prediction {format_gib(slack.point)} would be left for graphs and activations."


def _batch(case: Case) -> str:
    """What ran when it died: the last prefill or the requests that never got a token."""
    silent = [request for request in case.requests if request.error is not None and not request.chunks]
    if not silent:
        return ""
    first = silent[0]
    together = f"{first.concurrency} at once" if first.concurrency is not None else "open loop"
    answered = [request for request in case.requests if request.ok]
    ours = " (warm-up included)" if any(request.phase == "warmup" for request in answered) else ""
    return f" after {counted(len(answered), 'request')}{ours}, at the first batch of step {first.step} ({together})"


def _shortage_lines(case: Case, finding_id: str) -> tuple[Line, ...]:
    if finding_id.startswith(("refused-state", "refused-no", "out-of-memory")):
        return case.pool_lines()
    if finding_id == "refused-weights":
        numbers = [loaded.line for loaded in case.log.weights]
        return tuple(line for number in numbers for line in case.line(number))
    return ()


def _failure_lines(case: Case, failure: Failure) -> tuple[Line, ...]:
    return case.line(failure.line) or (case.log.at(failure.line, failure.text),)


def _silent_end(case: Case) -> tuple[Finding, ...]:
    if case.status not in ("crashed", "refused", "timed_out"):
        return ()
    words = {
        "timed_out": "was ended when its time was up",
        "crashed": "ended, and its log names no error (killed from outside, or out of host memory)",
        "refused": "refused to start, and its log names no error",
    }
    last = case.log.lines_total
    return (
        Finding(
            id={"timed_out": "timed-out", "crashed": "ended-silently", "refused": "ended-silently"}[case.status],
            cause=f"The server {words[case.status]}; its log has {last:,} lines.",
            severity="fatal",
            evidence=(),
        ),
    )
