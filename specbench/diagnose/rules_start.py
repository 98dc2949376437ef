"""Rules about starts that failed and servers that died: which fault a failure is. One function per kind explains it.

The first failure of the log is the cause (`logs.failures.causes_first`); those after it (SIGQUIT, killed children,
other ranks) are consequences and no findings of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from ..engines.contract import Failure, Line
from ..reading.rank_progress import Waiting, named_ranks, progress, waiting
from . import faults_allocation as allocation
from . import faults_beside as beside
from . import faults_communication
from . import faults_crash as crash
from . import faults_memory as memory
from . import faults_outside as outside
from . import faults_ranks as ranks
from . import faults_running as running
from .case import Case
from .catalogue import FindingId
from .fault import STOP_ASKED, Fault, last_batch, sourced, until_stopped, while_serving
from .faults_arguments import refused
from .finding import Finding
from .rank_lines import labelled

#: failure kind -> what explains it. What is not here is a crash in the engine's own words.
_EXPLAINED: dict[str, Callable[[Case, Failure], Fault]] = {
    "bad_arguments": refused,
    "context_above_model": refused,
    # memory of a start
    "state_pool_too_small": memory.state_pool,
    "zero_requests": memory.state_pool,
    "weights_leave_no_room": memory.weights,
    "not_enough_memory": memory.nothing_left,
    "memory_pool_too_small": memory.nothing_left,
    "memory_unbalanced": beside.unbalanced,
    "int8_pool_too_large": beside.int8_pool,
    # while it runs
    "kv_pool_exhausted": running.kv_pool,
    "request_slots_exhausted": running.request_slots,
    "state_slots_exhausted": running.state_slots,
    "memory_leak": running.memory_leak,
    "watchdog_timeout": running.watchdog,
    "graph_capture_failed": crash.graphs,
    "gpu_fault": crash.gpu_fault,
    # outside its pools
    "bad_environment": outside.environment,
    "kernel_missing": outside.kernel_missing,
    "model_not_found": outside.model_missing,
    "model_unsupported": outside.model_unsupported,
    "backend_unsupported": outside.backend_unsupported,
    "port_in_use": outside.port,
    "communication_failed": faults_communication.communication,
    "collective_timeout": ranks.rank_missing,
    "rank_missing": ranks.rank_missing,
    "gpu_missing": ranks.gpu_missing,
    "host_memory": outside.host_memory,
    "disk_full": outside.disk_full,
    "process_died": outside.process_died,
    "child_failed": outside.child_failed,
    "warmup_failed": outside.warmup_failed,
}


def failed(case: Case) -> tuple[Finding, ...]:
    """The cause of a start that failed or a server that died."""
    if not case.log.failures:
        return _only_consequences(case) or _silent_end(case) or _waits(case)
    failure = case.log.failures[0]
    fault = _explained(case, failure)
    return (
        Finding(
            id=fault.id,
            cause=f"{fault.cause}{ranks.of_ranks(case, failure)}",
            severity=fault.severity,
            evidence=(*fault.evidence, *_failure_lines(case, failure)),
            remedies=fault.remedies,
            lost=fault.lost,
        ),
    )


def _explained(case: Case, failure: Failure) -> Fault:
    if failure.kind == "cuda_oom" or "OutOfMemory" in (failure.exception or ""):
        where = {"pools": "pools", "graphs": "graphs"}.get(failure.phase, "start")
        return allocation.out_of_memory(case, failure, "serving" if while_serving(case.log, failure) else where)
    if failure.kind == "cut_off" and failure.phase == "graphs" and not while_serving(case.log, failure):
        return crash.graphs(case, failure)
    explain = _EXPLAINED.get(failure.kind)
    if explain is not None:
        return explain(case, failure)
    return refused(case, failure) if failure.phase == "arguments" else crash.crashed(case, failure)


def _failure_lines(case: Case, failure: Failure) -> tuple[Line, ...]:
    return case.line(failure.line) or (case.log.at(failure.line, failure.text),)


#: Consequences that are printed when a child has failed.
_SIGNALLED = ("ended_by_signal", "process_died")


def _only_consequences(case: Case) -> tuple[Finding, ...]:
    """SIGQUIT or a killed process tree without the failure above it: a paste that begins too late.

    A process tree is killed at every orderly end too: alone it tells only where the server never became ready.
    """
    never_ready = case.log.ready_line is None and not case.log.decode.get("line") and case.status != "served"
    signs = [
        notice
        for notice in until_stopped(case.log)
        if notice.kind in (*_SIGNALLED, STOP_ASKED) or (notice.kind == "process_tree_killed" and never_ready)
    ]
    if not signs or case.status in ("served", "timed_out"):
        return ()
    stopped = signs[0].kind == STOP_ASKED
    if stopped and not never_ready:
        return ()
    return (
        Finding(
            id="ended-by-signal",
            cause=outside.STOPPED_EARLY if stopped else outside.only_consequences(signs[0].text),
            severity="fatal",
            evidence=tuple(line for notice in signs[:3] for line in case.line(notice.line)),
            lost=1.0,
        ),
    )


def _silent_end(case: Case) -> tuple[Finding, ...]:
    if case.status not in ("crashed", "refused", "timed_out"):
        return ()
    if case.stopped_answering:
        cause = _stopped_answering(case)
        return (Finding(id="stopped-answering", cause=cause, severity="fatal", evidence=last_batch(case)),)
    ids: dict[str, FindingId] = {"timed_out": "timed-out", "crashed": "ended-silently", "refused": "ended-silently"}
    words = {
        "timed_out": "was ended when its time was up",
        "crashed": "ended, and its log names no error (killed from outside, or out of host memory)",
        "refused": "refused to start, and its log names no error",
    }
    last = case.log.lines_total
    wait = (
        waiting(progress(case.log)) if case.status == "timed_out" and case.log.ready_line is None else Waiting(words="")
    )
    return (
        Finding(
            id=ids[case.status],
            cause=f"The server {words[case.status]}; its log has {last:,} lines. {wait.words}".rstrip(),
            severity="fatal",
            evidence=labelled(case, wait.last),
            remedies=sourced(case, {}, "NCCL then says how far it comes", env={"NCCL_DEBUG": "INFO"})
            if wait.communicating
            else (),
        ),
    )


def _stopped_answering(case: Case) -> str:
    """A step that is never over: of several ranks mostly one hangs, and what the others wait in says nothing."""
    timeout_s = None if case.config is None else case.config.workload.request_timeout_s
    within = "" if timeout_s is None else f" within the {timeout_s:g} s of a request"
    several = len(named_ranks(case.log)) > 1
    who = "One rank hangs and the others wait for it in a collective operation" if several else "Its scheduler hangs"
    return (
        f"The server gave no answer{within}, its processes went on until they were ended, and its log names no error. "
        f"{who}, or a step takes longer: `py-spy dump --pid` of each scheduler says where it stands. (The engine's own "
        "watchdog ends a step after 300 s, or --watchdog-timeout.)"
    )


def _waits(case: Case) -> tuple[Finding, ...]:
    """A log that ends while all ranks but some wait for these to begin to communicate: it may be that it hangs."""
    wait = waiting(progress(case.log))
    if case.log.ready_line is not None or not (wait.communicating and wait.behind):
        return ()
    return (
        Finding(
            id="rank-missing",
            cause=(
                f"When the log ends, {wait.words} Where it says no more, the start hangs, and what is behind knows why."
            ),
            severity="notice",
            evidence=labelled(case, wait.last),
        ),
    )
