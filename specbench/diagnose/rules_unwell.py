"""Rules about a server that says itself that it is unwell, and goes on. In: a case. Out: a finding per complaint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engines.contract import Notice
from ..units import counted
from .case import Case
from .catalogue import FindingId
from .fault import sourced
from .finding import Finding, Remedy
from .hangs import stacks


def noticed(case: Case) -> tuple[Finding, ...]:
    """A server that says itself that it is unwell, and goes on."""
    found = []
    for kind, finding_id, explain in _UNWELL:
        notices = [notice for notice in case.log.notices if notice.kind == kind]
        if notices and not any(failure.kind == kind for failure in case.log.failures):
            text, remedies = explain(case, notices)
            found.append(
                Finding(
                    id=finding_id,
                    cause=text,
                    severity="costly",
                    evidence=tuple(line for notice in notices[:3] for line in case.line(notice.line)),
                    remedies=remedies,
                )
            )
    return tuple(found)


def _unhealthy(case: Case, notices: Sequence[Notice]) -> tuple[str, tuple[Remedy, ...]]:
    seconds = notices[0].values.get("seconds")
    waited = f"{seconds:g} s" if isinstance(seconds, float) else "the time it is given"
    longer = str(int(3 * seconds)) if isinstance(seconds, float) else "60"
    return (
        (
            f"{counted(len(notices), 'health check')} failed: nothing came back from the model within {waited}, and "
            "/health answered 503 (what watches it may restart it). A step took longer, as one does that compiles "
            "kernels and a long prefill, or the scheduler hangs: then its watchdog ends the server later."
        ),
        sourced(
            case,
            {},
            "waits longer: right for slow steps, of no use for a hang",
            env={"SGLANG_HEALTH_CHECK_TIMEOUT": longer},
        ),
    )


def _leaking(case: Case, notices: Sequence[Notice]) -> tuple[str, tuple[Remedy, ...]]:
    return (
        (
            f"With nothing running, the {notices[0].values.get('pool', 'pool')} does not add up (said "
            f"{counted(len(notices), 'time')}, and only every 1,000th is): a fault of the engine, to be reported. What "
            "has leaked is lost until the next start."
        ),
        (),
    )


def _slow_step(case: Case, notices: Sequence[Notice]) -> tuple[str, tuple[Remedy, ...]]:
    seconds = notices[0].values.get("timeout_s")
    waited = f"{seconds:g} s" if isinstance(seconds, float) else "the time it is given"
    return (
        (
            f"The {notices[0].values.get('name', 'scheduler')} did not finish a step within {waited} "
            f"({counted(len(notices), 'time')}); the watchdog is soft, so the server went on. {stacks(case)}"
        ),
        (),
    )


#: Kind of a notice -> finding, and what it means.
_UNWELL: tuple[tuple[str, FindingId, Callable[[Case, Sequence[Notice]], tuple[str, tuple[Remedy, ...]]]], ...] = (
    ("health_check_failed", "health-check-failed", _unhealthy),
    ("memory_leak", "memory-leak", _leaking),
    ("soft_watchdog_timeout", "watchdog-timeout", _slow_step),
)
