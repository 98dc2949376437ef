"""Which release wrote a bare log that does not name it: the one whose prediction explains the logged figures best.

In: the releases that the log's lines fit, and how a configuration of each looks. Out: one release, and on what ground.
Of several that explain the log equally well the newest is taken: who installs an engine today gets a newer one, and who
runs an old one mostly does so by an image whose tag is in the paste. Whether the others would predict other figures is
said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import PoolReport, ServerLog
from ..engines.sglang.logs.formats import EXAMINED
from ..errors import SpecbenchError
from ..judging.judge import budgets
from ..judging.reconcile import reconcile
from ..terms import Limit
from ..units import Interval, counted
from ..versions import version_key

_COMPARED: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens")
#: Refusals over memory: what the engine says then, the prediction has to say too.
_REFUSED = frozenset(
    {"state_pool_too_small", "zero_requests", "weights_leave_no_room", "not_enough_memory", "memory_pool_too_small"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release with what it explains."""

    version: str
    unexplained: int  # figures that were logged and are predicted otherwise; a wrong verdict counts as one
    explained: int
    predicted: tuple[Interval | None, ...]  # requests, slots, tokens

    def differs(self, other: Release) -> bool:
        """Whether no free memory within the intervals gives both the same figures."""
        return any(
            (mine is None) != (theirs is None)
            or (mine is not None and theirs is not None and (mine.high < theirs.low or theirs.high < mine.low))
            for mine, theirs in zip(self.predicted, other.predicted, strict=True)
        )


def fitting(log: ServerLog) -> tuple[str, ...]:
    """Releases whose wording the log's lines have, oldest first."""
    low, high = log.version_range
    inside = [
        version
        for version in EXAMINED
        if (low is None or version_key(low) <= version_key(version))
        and (high is None or version_key(version) <= version_key(high))
    ]
    return tuple("0.5.6.post2" if version == "0.5.6" else version for version in inside) or ((low,) if low else ())


def explaining(
    versions: tuple[str, ...], config_of: Callable[[str], RunConfig | None], log: ServerLog, pools: PoolReport
) -> tuple[Release, ...]:
    """Of each release what its prediction explains; without those of which nothing is predicted."""
    found = (_explained(version, config_of(version), log, pools) for version in versions)
    return tuple(release for release in found if release is not None)


def best(releases: tuple[Release, ...]) -> tuple[Release, ...]:
    """Those that explain the log best, the newest first. Empty: of none anything is predicted."""
    if not releases:
        return ()
    least = min((release.unexplained, -release.explained) for release in releases)
    equal = [release for release in releases if (release.unexplained, -release.explained) == least]
    return tuple(sorted(equal, key=lambda release: version_key(release.version), reverse=True))


def ground(releases: tuple[Release, ...], equal: tuple[Release, ...]) -> str:
    """Why the first of `equal` is taken, in a sentence."""
    chosen, others = equal[0], equal[1:]
    figures = f"its prediction explains {counted(chosen.explained, 'logged figure')}"
    if chosen.unexplained:
        figures += f", and {chosen.unexplained} not"
    worse = [release.version for release in releases if release not in equal]
    text = f"engine version assumed {chosen.version}: {figures}"
    if worse:
        text += f" ({_listed(worse)} {'explains' if len(worse) == 1 else 'explain'} fewer)"
    if not others:
        return text
    differ = [release.version for release in others if release.differs(chosen)]
    same = "which predict the same" if not differ else f"of which {_listed(differ)} would predict other figures"
    return f"{text}; the newest of {_listed([chosen.version, *(release.version for release in others)])}, {same}"


def _listed(versions: list[str]) -> str:
    ordered = sorted(versions, key=version_key)
    return ", ".join(ordered) if len(ordered) < 4 else f"{ordered[0]} to {ordered[-1]}"


def _explained(version: str, config: RunConfig | None, log: ServerLog, pools: PoolReport) -> Release | None:
    if config is None:
        return None
    try:
        found = budgets(config, pools)
    except SpecbenchError:
        return None
    rows = [row for row in reconcile(found, pools).rows if row.basis == "measured" or "measured" not in found]
    budget = found.get("measured") or found["config"]
    return Release(
        version=version,
        unexplained=sum(row.verdict == "off" for row in rows) + (not _ends_as_logged(budget, log)),
        explained=sum(row.verdict == "match" for row in rows),
        predicted=tuple(_interval(budget, limit) for limit in _COMPARED),
    )


def _ends_as_logged(budget: MemoryBudget, log: ServerLog) -> bool:
    """Whether the prediction refuses what the engine refused for its memory, and nothing that became ready."""
    if log.ready_line is not None:
        return "refused" not in budget.verdicts or len(budget.verdicts) > 1
    if log.failures and log.failures[0].kind in _REFUSED:
        return "refused" in budget.verdicts
    return True


def _interval(budget: MemoryBudget, limit: Limit) -> Interval | None:
    predicted = budget.limits.get(limit)
    return predicted.value if predicted else None
