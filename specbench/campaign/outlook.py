"""A campaign before it starts: what is to run, as which configuration of this machine, and what it will cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..configuration.config import RunConfig
from ..machine_file import doubts, place
from ..params import Campaign
from ..paths import resolve, runs_root
from ..records.record import RunRecord
from .bill import Bill, bill
from .jobs import page_jobs, run_jobs
from .resume import Standing, standings
from .types import Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A campaign before it starts."""

    root: Path
    standings: tuple[Standing, ...]
    placed: Mapping[str, RunConfig]  # name -> the configuration as this machine runs it
    bill: Bill  # of what is to run
    doubts: tuple[str, ...] = ()  # of the machine file

    @property
    def to_run(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if standing.to_run)


def outlook(campaign: Campaign, out: Path | None = None, choices: Choices | None = None) -> Outlook:
    """What running the campaign would do and cost. Starts and writes nothing.

    ConfigError or RecordError: a recording that is not there, an engine that this machine does not have.
    """
    chosen = choices or Choices()
    root = out or runs_root() / campaign.name
    for config in campaign.runs:
        if config.engine.replay is not None:
            RunRecord.open(resolve(config.engine.replay, kind=f"{config.name}: engine.replay"))
    if chosen.resume:
        found = standings(campaign.runs, root, retry_failed=chosen.retry_failed)
    else:
        found = tuple(Standing(config=config, state="new") for config in campaign.runs)
    placed = {config.name: place(config, chosen.places) if chosen.places else config for config in campaign.runs}
    todo = [placed[standing.config.name] for standing in found if standing.to_run]
    pages_of = len(campaign.runs) if todo else 0
    costs = bill(todo, root, pages_of=pages_of, page_jobs=page_jobs(), at_once=run_jobs(todo))
    told = doubts([standing.config for standing in found if standing.to_run], chosen.places) if chosen.places else ()
    return Outlook(root=root, standings=found, placed=placed, bill=costs, doubts=told)
