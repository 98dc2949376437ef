"""A campaign: every configuration run, diagnosed and written up. In: configurations. Out: run folders and pages.

For each configuration a run folder with the executed run notebook and the record; then, when all have run, the executed
diagnosis (a remedy is compared with the runs that tried it), the analysis over all, one page each and `index.html`.
A configuration that fails does not stop the others. Recordings play several at a time; real engines run one after the
other, since they share the GPUs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path

from . import listing, report
from .config import RunConfig
from .errors import RecordError, SpecbenchError
from .notebooks import execute, source
from .outcome import in_words
from .params import Campaign
from .paths import resolve, runs_root
from .progress import latest, notices
from .record import RunRecord, new_run_folder
from .studies import ERROR, RUN_NOTEBOOK, study
from .terms import Outcome, Status
from .workers import worker_pool

_POLL_S = 0.25
_MAX_JOBS = 4


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
class PointResult:
    """What one configuration left behind."""

    name: str
    folder: Path
    status: Status | None  # how the server ended; None: no record
    outcome: Outcome  # the run in one word
    error: str | None  # why there is no record, or why the notebook stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    name: str
    folder: Path
    index: Path
    points: tuple[PointResult, ...]
    problems: tuple[str, ...]  # pages that could not be written as they should

    @property
    def complete(self) -> bool:
        """Every configuration left a record."""
        return all(point.status is not None for point in self.points)

    @property
    def all_served(self) -> bool:
        """Every configuration served what was asked, or started as asked where nothing was to be sent."""
        return all(point.outcome in ("served", "started") for point in self.points)


Watch = Callable[[Event], None]


def run_campaign(campaign: Campaign, out: Path | None = None, progress: Watch | None = None) -> CampaignResult:
    """Run all configurations into `out` (default `runs/<campaign>` of the workbook) and write the report there.

    Before anything starts: ConfigError or RecordError for a recording that is not there, RecordError for an `out` in
    which nothing can be written.
    """
    watch = progress or (lambda event: None)
    root = out or runs_root() / campaign.name
    for config in campaign.runs:
        if config.engine.replay is not None:
            RunRecord.open(resolve(config.engine.replay, kind=f"{config.name}: engine.replay"))
    points = [(config, new_run_folder(root, config.name)) for config in campaign.runs]
    for config, folder in points:
        if folder.name != config.name:
            told = f"{config.name} exists: this run is {folder.name}"
            watch(Event(run=config.name, phase=told, done=0, total=len(points), notice=True))
    known = listing.read(root)
    # A page per configuration of the folder, those of earlier runs too, and the front page.
    total = len(points) + len({*(known.runs if known else ()), *(config.name for config in campaign.runs)}) + 1
    with worker_pool(_jobs(campaign.runs)) as pool:
        results = tuple(_run_all(pool, points, watch, total))
        unlisted: tuple[str, ...] = ()
        try:
            ran = [(point.name, point.folder) for point in results]
            listing.remember(root, campaign.name, ran, about=campaign.about)
        except RecordError as error:  # the runs are there, and their pages may still be
            unlisted = (str(error),)
        index, problems = report.build(root, pool, _stage(watch, len(points)))
    return CampaignResult(name=campaign.name, folder=root, index=index, points=results, problems=unlisted + problems)


def run_point(config: RunConfig, folder: Path) -> str | None:
    """Execute the run notebook for one configuration into its folder; the error that stopped it, or None."""
    return execute(
        source(RUN_NOTEBOOK),
        folder / RUN_NOTEBOOK,
        {"params": None, **config.stated(), "out": str(folder)},
        progress=folder / report.PROGRESS,
    )


def _jobs(configs: Sequence[RunConfig]) -> int:
    """How many run at once. A real engine needs its GPUs for itself."""
    if any(config.engine.replay is None for config in configs):
        return 1
    return max(1, min(_MAX_JOBS, os.cpu_count() or 1, len(configs)))


def _run_all(pool: Executor, points: Sequence[tuple[RunConfig, Path]], watch: Watch, total: int) -> list[PointResult]:
    running: dict[Future[str | None], int] = {
        pool.submit(run_point, config, folder): number for number, (config, folder) in enumerate(points)
    }
    results: dict[int, PointResult] = {}
    said: dict[int, int] = {}  # notices of each configuration that were shown

    def tell(number: int) -> None:
        config, folder = points[number]
        told = notices(folder / report.PROGRESS)
        for text in told[said.get(number, 0) :]:
            watch(Event(run=config.name, phase=f"{config.name}: {text}", done=len(results), total=total, notice=True))
        said[number] = len(told)

    while running:
        finished, _ = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for future in finished:
            number = running.pop(future)
            config, folder = points[number]
            tell(number)
            results[number] = _result(config, folder, future)
            (folder / report.PROGRESS).unlink(missing_ok=True)
            outcome = in_words(results[number].outcome)
            watch(Event(run=config.name, phase=outcome, done=len(results), total=total, finished=True))
        for number in running.values():
            config, folder = points[number]
            tell(number)
            seen = latest(folder / report.PROGRESS)
            if seen is not None:
                watch(Event(run=config.name, phase=str(seen), done=len(results), total=total))
    return [results[number] for number in sorted(results)]


def _result(config: RunConfig, folder: Path, future: Future[str | None]) -> PointResult:
    try:
        error = future.result()
    except SpecbenchError as problem:  # a worker that was killed: the others go on
        error = str(problem)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    try:
        found = study(folder)
    except RecordError as missing:
        error = error or str(missing)
        with contextlib.suppress(OSError):
            (folder / ERROR).write_text(error, encoding="utf-8")
        return PointResult(name=config.name, folder=folder, status=None, outcome="no_record", error=error)
    status = found.record.status.status
    return PointResult(name=config.name, folder=folder, status=status, outcome=found.outcome, error=error)


def _stage(watch: Watch, before: int = 0) -> Callable[[str, int, int], None]:
    """Pages count on from the `before` configurations that have run."""

    def show(phase: str, done: int, total: int) -> None:
        watch(Event(run=None, phase=phase, done=before + done, total=before + total, finished=done == total))

    return show


def report_folder(root: Path, progress: Watch | None = None) -> tuple[Path, tuple[str, ...]]:
    """Diagnose the records of a folder anew and rebuild all its pages. Returns the front page and the problems."""
    with worker_pool(max(1, min(_MAX_JOBS, os.cpu_count() or 1))) as pool:
        return report.build(root, pool, _stage(progress or (lambda event: None)))
