"""What a campaign is told and what it leaves behind: choices, events on the way, and a result per configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..machine_file import Places
from ..records.listing import Skipped
from ..terms import Outcome, Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to show. `run` is None for the campaign's own stages."""

    run: str | None
    phase: str  # starting, ready, warmup, a step, diagnosis, analysis, …
    done: int  # configurations and pages finished so far
    total: int  # configurations and pages of the whole campaign
    finished: bool = False  # this run or stage has ended
    notice: bool = False  # `phase` is something to say once, not a phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How to go about a campaign."""

    places: Places | None = None  # where this machine has engines and models
    deadline_s: float | None = None  # seconds from `began_s` by which everything is done; None: no limit
    began_s: float = field(default_factory=time.monotonic)  # when the command started
    resume: bool = False  # configurations that are done are skipped, failed ones stay
    retry_failed: bool = False  # with resume: failed ones run again
    skip: frozenset[Verdict] = frozenset()  # what is predicted to end so with all possible free memory is not started

    def left_s(self) -> float:
        """Until the deadline."""
        limit = float("inf") if self.deadline_s is None else self.deadline_s
        return limit - (time.monotonic() - self.began_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """What one configuration left behind."""

    name: str
    folder: Path
    status: Status | None  # how the server ended; None: no record
    outcome: Outcome  # the run in one word
    error: str | None  # why there is no record, or why the notebook stopped
    earlier: bool = False  # of an earlier call, not run again


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    name: str
    folder: Path
    index: Path
    points: tuple[PointResult, ...]  # in the campaign's order, without those that have never run
    problems: tuple[str, ...]  # pages that could not be written as they should
    skipped: Mapping[str, Skipped] = field(default_factory=dict)  # configurations that were not to start -> why
    left: Mapping[str, str] = field(default_factory=dict)  # configurations that are still to run -> why they did not
    least_s: float | None = None  # the smallest deadline in which one that is left can run; None: none is left

    @property
    def complete(self) -> bool:
        """Every configuration that was to run left a record."""
        return not self.left and all(point.status is not None for point in self.points)

    @property
    def all_served(self) -> bool:
        """Every configuration served what was asked, or started as asked where nothing was to be sent."""
        as_asked = all(point.outcome in ("served", "started") for point in self.points)
        return as_asked and not self.left and not self.skipped


#: Called with everything that is to be shown.
Watch = Callable[[Event], None]
