"""A campaign: every configuration run, diagnosed and written up. In: configurations. Out: run folders and pages.

For each configuration a run folder with the executed run notebook and the record; then, when all have run, the executed
diagnosis (a remedy is compared with the runs that tried it), the analysis over all, one page each and `index.html`.
A configuration that fails does not stop the others. With a deadline the pages are written in the time that is left for
them; what has not run is said, and `resume` goes on there: in the same folder, or in a copy of it on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..configuration.config import RunConfig
from ..errors import LaunchError, RecordError
from ..lifecycle.preflight import unusable, without_gpus
from ..params import Campaign
from ..records import listing
from ..records.folder_lock import alone
from ..records.folders import make_folder
from ..units import counted
from ..workbook.workers import worker_pool
from . import report
from .jobs import page_jobs
from .outlook import Outlook, outlook
from .runs import Runs, points
from .types import CampaignResult, Choices, Event, Watch


def run_campaign(
    campaign: Campaign,
    out: Path | None = None,
    progress: Watch | None = None,
    choices: Choices | None = None,
    before: Callable[[Outlook], None] | None = None,
) -> CampaignResult:
    """Run the configurations into `out` (default `runs/<campaign>` of the workbook) and write the report there.

    Before anything starts: ConfigError or RecordError for a recording that is not there, an engine that this machine
    does not have, a folder in which another resumed campaign is at work or nothing can be written; LaunchError when no
    configuration has a usable engine and its GPUs. `before` is called with what is ahead when all that is well. Where
    some have them, the others fail together, before the first start.
    """
    watch, chosen = progress or (lambda event: None), choices or Choices()
    ahead = outlook(campaign, out, chosen)
    root = ahead.root
    to_run = [ahead.placed[standing.config.name] for standing in ahead.to_run]
    broken = _unstartable(to_run)
    make_folder(root)
    with alone(root, exclusive=chosen.resume):
        if before is not None:
            before(ahead)
        for standing in ahead.standings:
            if standing.why:
                watch(Event(run=standing.config.name, phase=standing.why, done=0, total=0, notice=True))
        unlisted = _list(campaign, ahead)
        runs = Runs(ahead, chosen, watch, unlisted)
        runs.refuse(broken)
        runs.all()
        stage = _stage(watch, len(runs.results))
        until = None if chosen.deadline_s is None else chosen.began_s + chosen.deadline_s
        problems: tuple[str, ...] = ()
        if runs.results or ahead.skipped or any(listing.run_folders(root)):
            new = {result.folder for result in runs.results.values()}
            jobs = page_jobs()
            with worker_pool(jobs) as pool:
                limit = None if until is None else report.Limit(until_s=until, page_s=runs.page_s, jobs=jobs)
                _, problems = report.build(root, pool, stage, limit=limit, first=new)
    return CampaignResult(
        name=campaign.name,
        folder=root,
        index=root / report.INDEX,
        points=tuple(points(ahead, runs.results)),
        skipped=ahead.skipped,
        problems=(*unlisted, *problems),
        left=runs.left,
        least_s=runs.least_s(),
    )


def _unstartable(to_run: Sequence[RunConfig]) -> dict[str, str]:
    """Name -> why its engine or its GPUs cannot be used. LaunchError when none of several, or the only one, can."""
    short = without_gpus(to_run)
    engines = unusable([config for config in to_run if config.name not in short])
    broken = short | engines
    if broken and len(broken) == len(to_run):
        first = next(iter(broken.values()))
        others = len({*engines.values()} - {first})
        raise LaunchError(f"{first} {counted(others, 'other engine')} cannot be used either." if others else first)
    return broken


def _list(campaign: Campaign, ahead: Outlook) -> list[str]:
    """Writes what makes up the campaign; why that was not possible."""
    plan = {standing.config.name: standing.to_run for standing in ahead.standings}
    try:
        listing.plan(ahead.root, campaign.name, plan, skipped=ahead.skipped, about=campaign.about)
    except RecordError as error:  # the runs may be possible, and their pages
        return [str(error)]
    return []


def report_folder(root: Path, progress: Watch | None = None) -> tuple[Path, tuple[str, ...]]:
    """Diagnose the records of a folder anew and rebuild all its pages. Returns the front page and the problems."""
    with worker_pool(page_jobs()) as pool:
        return report.build(root, pool, _stage(progress or (lambda event: None)))


def _stage(watch: Watch, before: int = 0) -> Callable[[str, int, int], None]:
    """Pages count on from the `before` configurations that have run."""

    def show(phase: str, done: int, total: int) -> None:
        watch(Event(run=None, phase=phase, done=before + done, total=before + total, finished=done == total))

    return show
