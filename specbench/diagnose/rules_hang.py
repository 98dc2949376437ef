"""A rule about a bare log that ends while its first requests are under way. In: a case. Out: that it may hang.

A server that works and one that hangs log the same first lines, and so does a log that was cut there: it is a notice,
and only of a log that is whole from its arguments on and has no line after the last prefill. Of several ranks only the
first of each group logs batches, so what the others say last tells nothing of which one hangs.
"""

from __future__ import annotations

from ..reading.rank_progress import last_lines, named_ranks
from ..units import counted
from .bare_log import under_way
from .case import Case
from .finding import Finding
from .hangs import GET_PY_SPY
from .rank_lines import labelled

#: Of 0.5.6.post2 to 0.5.23, where it is not printed.
_WATCHDOG_S = 300


def perhaps_hangs(case: Case) -> tuple[Finding, ...]:
    """Prefills that no decode line, no later prefill of an empty server and no other line follows."""
    log = case.log
    lines, tokens = log.prefill.get("line", ()), log.prefill.get("new_tokens", ())
    whole = case.bare and log.server_args_line is not None and case.status in ("served", None)
    begun = [line for line, count in zip(lines, tokens, strict=True) if count and count > 1]
    if not whole or not begun or begun[-1] != log.lines_total or log.decode.get("line") or log.failures:
        return ()
    if under_way(log) is not None:  # some were answered
        return ()
    ranks = named_ranks(case.log)
    spoken = {line: rank for rank, line in last_lines(case.log).items()} if len(ranks) > 1 else {}
    return (
        Finding(
            id="perhaps-hangs",
            cause=(
                f"The log ends with {_requests(case)} that began{_at(case)}, and no line shows that one went on: the "
                f"server hangs, or the log was cut there.{_whose(ranks)} Where nothing more comes, `py-spy dump --pid` "
                f"of each sglang::scheduler process says where it stands ({GET_PY_SPY}). The engine's own watchdog "
                f"ends a step after {_watchdog(case):g} s (--watchdog-timeout), and then dumps these stacks itself."
            ),
            severity="notice",
            evidence=labelled(case, dict(sorted(spoken.items())[-8:])) or case.line(begun[-1]),
        ),
    )


def _requests(case: Case) -> str:
    """Those of the last prefill, and what ran beside them."""
    new, running = (case.log.prefill.get(name, (None,))[-1] for name in ("new_requests", "running_requests"))
    return counted((new or 0) + (running or 0), "request") if new else "requests"


def _at(case: Case) -> str:
    time = case.log.prefill.get("time", (None,))[-1]
    return "" if time is None else f", the last at {time}"


def _whose(ranks: list[str]) -> str:
    if len(ranks) < 2:
        return ""
    return (
        f" Of {len(ranks)} ranks one that stands still makes the others wait for it in a collective operation; only "
        "the first logs batches, so that another says less tells nothing."
    )


def _watchdog(case: Case) -> float:
    told = (case.log.server_args or {}).get("watchdog_timeout")
    return told if isinstance(told, int | float) and not isinstance(told, bool) and told > 0 else _WATCHDOG_S
