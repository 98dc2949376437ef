"""What fits a deadline: whether one configuration still does, and how many calls of that deadline a campaign takes.

In: a `Clock`, configurations in their order, seconds. Out: what one needs, and `Calls`. A call starts whatever is
expected to end in time, in the campaign's order, and skips what is too long for the time that is left; the next goes on
with it.
`Runs` decides by the same arithmetic, with what things really took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..configuration.config import RunConfig
from .bill import Clock

#: What a run needs after it was told to end: the rest of the notebook; of an engine its grace period and GPU memory.
ENDING_S = 20.0
_REPLAY_ENDING_S = 5.0
#: On a loaded machine even a replay takes so long, and what is begun is to come to its end.
_SHORTEST_S = 15.0
#: A configuration that was ended for a deadline is given so much more than was not enough.
_MORE = 1.5
#: The next call may be slower than this one by so much, and needs to have made progress.
_SLOWER = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """A campaign in calls of one deadline, as far as the bill foretells it."""

    deadline_s: float
    runs: tuple[tuple[str, ...], ...]  # of each call, in the order in which they start
    never: tuple[str, ...] = ()  # too long for a call of their own
    least_s: float | None = None  # the deadline that does for all of `never`; None: it is empty


def ending_s(config: RunConfig) -> float:
    """Seconds that a run has after it was told to end. A server of someone else is left running."""
    is_ours = config.engine.replay is None and config.engine.attach is None
    return ENDING_S if is_ours else _REPLAY_ENDING_S


def needs_s(clock: Clock, config: RunConfig) -> float:
    """What must be left for it to be started."""
    return max(_SHORTEST_S, clock.cost(config).total_s, _MORE * clock.least_s(config)) + ending_s(config)


def least_deadline_s(clock: Clock, need_s: float, before_s: float, page_jobs: int) -> float:
    """The smallest deadline of a call that runs one which needs `need_s`, `before_s` after the command."""
    return _SLOWER * (before_s + need_s + clock.own.pages_s(1, page_jobs))


def calls(
    clock: Clock,
    configs: Sequence[RunConfig],
    deadline_s: float,
    *,
    page_jobs: int,
    at_once: int = 1,
    before_s: float = 0.0,
) -> Calls:
    """All of them, on one machine. The clock is used up: it expects what is said to run."""
    waiting, found = list(configs), list[tuple[str, ...]]()
    while waiting:
        started = _call(clock, waiting, deadline_s, page_jobs, at_once, before_s)
        if not started:
            break
        found.append(tuple(config.name for config in started))
        waiting = [config for config in waiting if config not in started]
    longest_s = max((needs_s(clock, config) for config in waiting), default=None)
    return Calls(
        deadline_s=deadline_s,
        runs=tuple(found),
        never=tuple(config.name for config in waiting),
        least_s=None if longest_s is None else least_deadline_s(clock, longest_s, before_s, page_jobs),
    )


def _call(
    clock: Clock, waiting: Sequence[RunConfig], deadline_s: float, page_jobs: int, at_once: int, now_s: float
) -> list[RunConfig]:
    started: list[RunConfig] = []
    ends_s: list[float] = []  # of those that are running
    while True:
        for config in waiting:
            left_s = deadline_s - now_s - clock.own.pages_s(len(started) + 1, page_jobs)
            if len(ends_s) < at_once and config not in started and needs_s(clock, config) <= left_s:
                ends_s.append(now_s + clock.cost(config).total_s)
                clock.expect(config)
                started.append(config)
        if not ends_s:
            return started
        now_s = min(ends_s)
        ends_s.remove(now_s)
