"""How a run ended, from what the process did and what its log says. The rule is one function, for runs and imports.

served     became ready and ran until we stopped it
refused    declined to start: an argument or sizing error, or out of memory while starting
crashed    ended by itself after it was ready, or by an error of another kind while starting (or hung after that error)
timed_out  was neither ready nor gone when the time was up, or was ended for a deadline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..engines.contract import Failure
from ..terms import Status

#: Errors by which an engine declines a configuration (names of `contract.Failure.kind`).
REFUSAL_KINDS = frozenset(
    {
        "bad_arguments",
        "state_pool_too_small",
        "weights_leave_no_room",
        "not_enough_memory",
        "zero_requests",
        "cuda_oom",
        "int8_pool_too_large",
        "memory_unbalanced",
        "memory_pool_too_small",
        "context_above_model",
        "backend_unsupported",
        "model_not_found",
        "model_unsupported",
    }
)


#: The error of a server that cannot listen where it was told to.
PORT_IN_USE = "port_in_use"
#: How the reason begins of a server whose processes went on without an answer, and were ended for that.
STOPPED_ANSWERING: Final = "stopped answering while serving"
#: `RunStatus.cut_short` of a start that lost the port which was chosen for it.
PORT: Final = "port"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    status: Status
    exit_code: int | None  # None: the process did not end by itself
    reason: str
    cause: str | None = None  # kind of the failure that its log tells; None: none, or it does not matter


def classify(
    *,
    ready: bool,
    ended_by_itself: bool,
    exit_code: int | None,
    failures: Sequence[Failure],
    answering: bool = True,
    timeout_s: float | None = None,
    hung: bool = False,
    lost: str | None = None,
) -> Ending:
    """`failures` as read from the log, the first is the cause; `timeout_s` when the wait for readiness ran out; `hung`
    when a start had failed by its log, its processes went on, and they were ended for that.

    `answering` is whether it was still healthy when the workload was done: a process can outlive its scheduler. `lost`
    names the rank that ended without a word of its own (see `reading.lost_rank`): `failures` are then what followed.
    """
    cause = _in_words(failures[0]) if failures else "the log names no cause"
    cause = cause if lost is None else f"{lost}: {cause}"
    code = "" if exit_code is None else f" ({_code_in_words(exit_code)})"
    code = " (it hung after its error, and was ended)" if hung else code
    if timeout_s is not None:
        return Ending(status="timed_out", exit_code=None, reason=f"not ready after {timeout_s:g} s; {cause}")
    if ready and not ended_by_itself and not answering:
        return Ending(status="crashed", exit_code=None, reason=f"{STOPPED_ANSWERING}: {cause}")
    if ready and not ended_by_itself:
        return Ending(status="served", exit_code=None, reason="ready, and ran until it was stopped")
    if ready:
        return Ending(status="crashed", exit_code=exit_code, reason=f"ended while serving{code}: {cause}")
    if failures and (failures[0].kind in REFUSAL_KINDS or failures[0].phase == "arguments"):
        return Ending(status="refused", exit_code=exit_code, reason=f"refused to start{code}: {cause}")
    what = "failed" if hung else "ended"
    kind = failures[0].kind if failures else None
    return Ending(status="crashed", exit_code=exit_code, reason=f"{what} while starting{code}: {cause}", cause=kind)


def _in_words(failure: Failure) -> str:
    text = " ".join(failure.text.split())
    return f"{failure.exception}: {text}" if failure.exception and failure.exception not in text else text


def _code_in_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
