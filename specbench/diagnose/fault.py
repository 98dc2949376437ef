"""One fault explained, and changes that rest on the engine's source instead of a prediction.

In: a case, a change. Out: a remedy of basis "source", or None where this engine version is known to refuse the
change. What a prediction can speak about is tried by `Case.remedies` and its like instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..engines import check
from ..engines.contract import Failure, Line, Notice, ServerLog
from ..engines.sglang.command import flags_for
from ..engines.sglang.logs.formats import EXAMINED
from ..errors import SpecbenchError
from .case import Case
from .catalogue import FindingId, Severity
from .finding import Remedy

#: The notice of a server that was asked to stop (SIGTERM).
STOP_ASKED = "stop_asked"
#: The longest quotation of the engine within a sentence.
_QUOTED = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a failure means. Its line is added to the evidence by the rule."""

    id: FindingId
    cause: str
    remedies: tuple[Remedy, ...] = ()
    evidence: tuple[Line, ...] = ()  # what led to it, before the failure's own line
    severity: Severity = "fatal"
    lost: float | None = None


def said(failure: Failure) -> str:
    """The engine's own words as a sentence, shortened to what another can hold."""
    text = " ".join((f"{failure.exception}: {failure.text}" if failure.exception else failure.text).split())
    if len(text) > _QUOTED:
        return text[: _QUOTED - 1] + "…"
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."


def while_serving(log: ServerLog, failure: Failure) -> bool:
    """Whether it had begun to serve: ready; or, in a paste without the start, with batches or in the event loop.

    A start that meets its end in its own warm-up, before it says that it is ready, has not served anybody.
    """
    if log.ready_line is not None and failure.line > log.ready_line:
        return True
    if log.weights or log.kv_pools or log.server_args_line is not None:
        return False
    batches = (*log.decode.get("line", ())[:1], *log.prefill.get("line", ())[:1])
    return any(line < failure.line for line in batches) or failure.phase == "serving"


def until_stopped(log: ServerLog) -> Iterator[Notice]:
    """What the log notes, up to the line in which somebody asks the server to stop, and with it."""
    for notice in log.notices:
        yield notice
        if notice.kind == STOP_ASKED:
            return


def last_batch(case: Case) -> tuple[Line, ...]:
    """The last batch line, as evidence."""
    lines = sorted((*case.log.decode.get("line", ())[-1:], *case.log.prefill.get("line", ())[-1:]))
    return tuple(line for number in lines[-1:] for line in case.line(number))


def flags_version(case: Case, likely: str | None = None) -> str:
    """The release whose flags are named: the server's; else `likely` (one that prints the text); else the newest."""
    return case.rules_version or case.log.version_range[1] or likely or EXAMINED[-1]


def sourced(
    case: Case,
    change: Mapping[str, Any],
    note: str,
    *,
    version: str | None = None,
    env: Mapping[str, str] | None = None,
    dropped: str | None = None,
    results: bool = False,
    flags: str = "",
    decided_by: tuple[str, ...] = (),
) -> tuple[Remedy, ...]:
    """The change as a remedy whose effect the engine's source tells; () where its arguments would be refused.

    `env`: variables to be set beside it. `dropped`: a flag of the present command line that has to go.
    `flags`: of a change to a default, which adds no flag by itself.
    `decided_by`: keys in which another run must be equal to have tried it; default: those of the change.
    `version`: whose flag names are used when the log does not tell.
    """
    whole = {**change, **{f"engine.env.{name}": value for name, value in (env or {}).items()}}
    if not _accepted(case, whole):
        return ()
    variables = " ".join(f"{name}={value}" for name, value in (env or {}).items())
    words = (
        *((f"without {dropped}",) if dropped else ()),
        *((f"{variables} in the server's environment",) if variables else ()),
        note,
    )
    return (
        Remedy(
            set=whole,
            flags=flags or flags_for(dict(change), flags_version(case, version)),
            basis="source",
            predicted={},
            verdict=None,
            note="; ".join(words),
            changes_results=results,
            decided_by=decided_by or tuple(whole),
        ),
    )


def _accepted(case: Case, change: Mapping[str, Any]) -> bool:
    """Whether the version takes the changed arguments; True where the configuration is not known."""
    if case.config is None:
        return True
    try:
        return not check(case.config.replace(change))
    except (ValidationError, SpecbenchError):
        return False
