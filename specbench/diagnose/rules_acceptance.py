"""Rules about the acceptance of drafts, from decode lines alone: about nothing, or less and less.

Whether speculation pays is another question, which needs the same server without it: `against`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..units import counted
from .against import LOW
from .case import Case
from .finding import Finding

#: Tokens per round below which no recorded server came near its break-even: 1.5 (DFLASH, one request on one H200) to
#: 2.0 (8 requests on two), by the time per token with and without speculation.
_HARDLY = 1.2
_FEW_LINES = 5

#: A fall is told from this share of the tokens per round on, over at least so many lines, and for a context that is at
#: least so many times as long.
_FALL, _LEAST_LINES, _LONGER = 0.25, 24, 2.0


def hardly_accepted(case: Case) -> tuple[Finding, ...]:
    """Rounds that give hardly more than their bonus token. A record with random weights says so beside its figures."""
    arguments = case.log.server_args or {}
    random = arguments.get("load_format") == "dummy"
    columns = (case.column("accept_length"), case.column("running_requests"), case.column("line"))
    rows = [row for row in zip(*columns, strict=True) if row[0] is not None and row[1]]
    if len(rows) < _FEW_LINES or (random and not case.bare):
        return ()
    mean = sum(accepted * running for accepted, running, _ in rows) / sum(running for _, running, _ in rows)
    if mean >= _HARDLY:
        return ()
    algorithm = arguments.get("speculative_algorithm")
    who = "Speculation" if algorithm is None else f"Speculation with {algorithm}"
    why = (
        "The weights are random (--load-format dummy): this is by construction and says nothing of a trained draft."
        if random
        else "Whether it pays is judged against the same server without speculation: --against RECORD|LOG."
    )
    return (
        Finding(
            id=LOW,
            cause=(
                f"{who} gives {mean:.2f} tokens per verify round ({counted(len(rows), 'decode line')}, weighted by "
                f"running requests), and one of them comes without any draft; each round drafts and verifies. {why}"
            ),
            severity="notice",
            evidence=tuple(line for row in (rows[0], rows[-1]) for line in case.line(row[2])),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    line: int
    accepted: float
    tokens_each: float  # KV tokens of each running request


@dataclass(frozen=True, slots=True)
class _Third:
    lines: int
    accepted: float  # median
    lower_quartile: float
    tokens_each: float  # median


def decays(case: Case) -> tuple[Finding, ...]:
    """Acceptance that falls as requests grow, or as time goes by: thirds of the lines, by their medians."""
    names = ("line", "accept_length", "tokens", "running_requests")
    lines = [
        _Line(line, accepted, tokens / running)
        for line, accepted, tokens, running in zip(*(case.column(name) for name in names), strict=True)
        if accepted is not None and tokens and running
    ]
    if len(lines) < _LEAST_LINES:
        return ()
    by_context = sorted(lines, key=lambda line: line.tokens_each)
    first, _, last = thirds = _thirds(by_context)
    if last.tokens_each >= _LONGER * first.tokens_each and _falls(thirds):
        return (_finding(case, "context", thirds, (by_context[0], by_context[-1])),)
    thirds = _thirds(lines)
    if _falls(thirds):
        return (_finding(case, "time", thirds, (lines[0], lines[-1])),)
    return ()


_Thirds = tuple[_Third, _Third, _Third]


def _thirds(lines: Sequence[_Line]) -> _Thirds:
    one, two = len(lines) // 3, len(lines) - len(lines) // 3
    return _third(lines[:one]), _third(lines[one:two]), _third(lines[two:])


def _third(lines: Sequence[_Line]) -> _Third:
    accepted = [line.accepted for line in lines]
    return _Third(
        lines=len(lines),
        accepted=statistics.median(accepted),
        lower_quartile=statistics.quantiles(accepted, n=4)[0],
        tokens_each=statistics.median(line.tokens_each for line in lines),
    )


def _falls(thirds: _Thirds) -> bool:
    """From the first third to the last, and nowhere up again. The last lies below what the first had in three lines of
    four, so that chance does not make it."""
    first, middle, last = thirds
    slack = 0.1 * (first.accepted - last.accepted)
    return (
        last.accepted <= (1 - _FALL) * first.accepted
        and last.accepted < first.lower_quartile
        and last.accepted - slack <= middle.accepted <= first.accepted + slack
    )


def _finding(case: Case, by: Literal["context", "time"], thirds: _Thirds, ends: tuple[_Line, _Line]) -> Finding:
    first, _, last = thirds
    if by == "context":
        what, names = "Acceptance falls as requests grow", ("shortest", "longest")
        why = "The draft follows the target less well in a long context."
    else:
        what, names = "Acceptance falls over time", ("first", "last")
        why = "Requests of the same length are accepted less: they are others, or the draft fails."
    more = first.accepted / last.accepted
    return Finding(
        id="acceptance-decays",
        cause=(
            f"{what}: {first.accepted:.2f} tokens per round at {first.tokens_each:,.0f} tokens of each request "
            f"({names[0]} third, {first.lines} decode lines), {last.accepted:.2f} at {last.tokens_each:,.0f} "
            f"({names[1]} third, {last.lines}; medians). The same text takes {more:.1f} times as many rounds. {why}"
        ),
        severity="costly",
        evidence=tuple(line for end in ends for line in case.line(end.line)),
        lost=1 - last.accepted / first.accepted,
    )
