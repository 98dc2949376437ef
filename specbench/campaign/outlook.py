"""A campaign before it starts: what is to run, as which configuration of this machine, and what it will cost."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..errors import RecordError
from ..machine_file import Places, doubts, place, unready
from ..params import Campaign
from ..paths import resolve, runs_root
from ..records.listing import Skipped, not_started
from ..records.record import RunRecord
from ..terms import Verdict
from .bill import Bill, Clock, Cost, bill, expected_budget
from .fitting import Calls, calls
from .jobs import page_jobs, run_jobs
from .resume import Standing, refuse_other_gpus, standings
from .types import Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A campaign before it starts."""

    root: Path
    standings: tuple[Standing, ...]
    placed: Mapping[str, RunConfig]  # name -> the configuration as this machine runs it
    bill: Bill  # of what is to run
    doubts: tuple[str, ...] = ()  # of the machine file
    calls: Calls | None = None  # of the deadline; None: there is none, or nothing is to run

    @property
    def skipped(self) -> dict[str, Skipped]:
        """Name -> why it is not started, and what that saves."""
        return {cost.config.name: _skipped(cost) for cost in self.bill.skipped}

    @property
    def to_run(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if standing.to_run)


def outlook(campaign: Campaign, out: Path | None = None, choices: Choices | None = None) -> Outlook:
    """What running the campaign would do and cost. Starts and writes nothing.

    ConfigError or RecordError: a recording that is not there, an engine that this machine does not have, a folder whose
    runs are of other GPUs.
    """
    chosen = choices or Choices()
    root = out or runs_root() / campaign.name
    for config in campaign.runs:
        if config.engine.replay is not None:
            RunRecord.open(resolve(config.engine.replay, kind=f"{config.name}: engine.replay"))
    with contextlib.suppress(RecordError):  # a list that cannot be read: told when it is written, or resumed
        refuse_other_gpus(campaign.runs, root)
    if chosen.resume:
        found = standings(campaign.runs, root, retry_failed=chosen.retry_failed)
    else:
        found = tuple(Standing(config=config, state="new") for config in campaign.runs)
    placed = {config.name: place(config, chosen.places) if chosen.places else config for config in campaign.runs}
    found = tuple(_pruned(standing, placed[standing.config.name], chosen.skip) for standing in found)
    todo = [placed[standing.config.name] for standing in found if standing.to_run]
    spared = [placed[standing.config.name] for standing in found if standing.state == "skipped"]
    pages_of = len(campaign.runs) - len(spared) if todo else 0
    costs = bill(todo, root, skipped=spared, pages_of=pages_of, page_jobs=page_jobs(), at_once=run_jobs(todo))
    told = _doubts([standing.config for standing in found if standing.to_run], chosen.places) if chosen.places else ()
    return Outlook(root=root, standings=found, placed=placed, bill=costs, doubts=told, calls=_calls(todo, root, chosen))


def _doubts(configs: Sequence[RunConfig], places: Places) -> tuple[str, ...]:
    starts = [config for config in configs if config.engine.replay is None and config.engine.attach is None]
    return (*unready(starts, places), *doubts(starts, places)) if starts else ()


def _calls(todo: Sequence[RunConfig], root: Path, chosen: Choices) -> Calls | None:
    if chosen.deadline_s is None or not todo:
        return None
    before_s = time.monotonic() - chosen.began_s
    at_once = run_jobs(todo)
    return calls(Clock(root), todo, chosen.deadline_s, page_jobs=page_jobs(), at_once=at_once, before_s=before_s)


def _pruned(standing: Standing, placed: RunConfig, skip: frozenset[Verdict]) -> Standing:
    """Not to run, when no free memory that is possible lets it end otherwise. A failure that is there already stays."""
    budget = expected_budget(placed) if skip and standing.to_run else None
    if budget is None or not set(budget.verdicts) <= skip:
        return standing
    name, word = standing.config.name, _worst(budget)
    if standing.state == "retried":
        why = f"{name}: is predicted to be {word} again: stays as it is"
        return dataclasses.replace(standing, state="failed", why=why)
    why = f"{name}: {not_started(word)}: {budget.reason}"
    return dataclasses.replace(standing, state="skipped", why=why)


def _worst(budget: MemoryBudget) -> Verdict:
    """The better of its verdicts, which all are as bad or worse: 'capped' where it may be refused as well."""
    return "capped" if "capped" in budget.verdicts else "refused"


def _skipped(cost: Cost) -> Skipped:
    assert cost.budget is not None
    config = cost.config
    return Skipped(
        predicted=_worst(cost.budget),
        reason=cost.budget.reason,
        what=f"{config.engine.version} · {config.speculative.algorithm} · TP {config.parallel.tp_size}",
        asked_requests=config.memory.max_running_requests,
        saved_s=round(cost.total_s, 1),
        saved_gpu_s=round(cost.gpu_s, 1),
    )
