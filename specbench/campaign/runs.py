"""The configurations of one call, run: one by one, or a few at a time, as long as there is time for them.

In: an `Outlook` and the choices. Out: a `PointResult` for each that ran, and why the others did not. Recordings play
several at a time; real engines run one after the other, since they share the GPUs. With a deadline a configuration
starts only when it is expected to end in time, and one that would not is ended with its record kept.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from pathlib import Path

from ..configuration.config import RunConfig
from ..errors import RecordError, SpecbenchError
from ..reading.outcome import in_words
from ..records import listing
from ..records.folders import new_run_folder
from ..studies.study import ERROR, RUN_NOTEBOOK, Study, study
from ..workbook.notebooks import execute, source
from ..workbook.progress import latest, notices
from ..workbook.workers import worker_pool
from . import report
from .bill import Clock
from .fitting import ENDING_S, ending_s, least_deadline_s, needs_s
from .jobs import page_jobs, run_jobs
from .outlook import Outlook
from .resume import asked
from .types import Choices, Event, PointResult, Watch

_POLL_S = 0.25


class _OverdueError(Exception):
    """A run did not end when it was told to."""


class Runs:
    """Those that are waiting, running, done and left."""

    def __init__(self, ahead: Outlook, chosen: Choices, watch: Watch, unlisted: list[str]) -> None:
        self._ahead, self._chosen, self._watch, self._unlisted = ahead, chosen, watch, unlisted
        self._waiting = [standing.config for standing in ahead.to_run]
        self._running: dict[Future[str | None], tuple[RunConfig, Path, float]] = {}
        self._clock = Clock(ahead.root)
        self._before_s = time.monotonic() - chosen.began_s  # of the command, until the first can start
        known = listing.read(ahead.root)
        here = (standing.config.name for standing in ahead.standings if standing.state != "skipped")
        names = {*(known.runs if known else ()), *here}
        # A page per configuration of the folder, those of earlier runs too, and the front page.
        self._total = len(self._waiting) + len(names) + 1
        self._said: dict[str, int] = {}  # notices of each configuration that were shown
        self.results: dict[str, PointResult] = {}
        self.left: dict[str, str] = {}

    def refuse(self, broken: Mapping[str, str]) -> None:
        """Those whose engine cannot be used fail at once, and it is said once for each engine."""
        for why in dict.fromkeys(broken.values()):
            names = [name for name, reason in broken.items() if reason == why]
            self._say(names[0], f"cannot be run: {', '.join(names)}: {' '.join(why.splitlines())}")
        for config in [config for config in self._waiting if config.name in broken]:
            self._waiting.remove(config)
            folder = new_run_folder(self._ahead.root, config.name)
            self._list(config, folder)
            self._ended(config, folder, _no_record(config, folder, broken[config.name]))

    def all(self) -> None:
        """Run them. What is not run is in `left`, with the reason."""
        jobs = run_jobs([self._ahead.placed[config.name] for config in self._waiting]) if self._waiting else 1
        try:
            with worker_pool(jobs) as pool:
                while self._waiting or self._running:
                    self._start(pool, jobs)
                    if self._running:
                        self._look()
                    elif self._waiting:
                        self._leave()
        except _OverdueError:  # its worker was interrupted: there is no record
            for config, folder, _ in self._running.values():
                error = "it did not end when the deadline came, and was interrupted: it is to run again"
                self._ended(config, folder, _no_record(config, folder, error))
            self._running.clear()
            self._leave()

    def _start(self, pool: Executor, jobs: int) -> None:
        for config in list(self._waiting):
            if len(self._running) >= jobs:
                return
            placed = self._ahead.placed[config.name]
            if self._chosen.deadline_s is not None and self._needs_s(config) > self._time_s(starting=1):
                continue  # a shorter one may still fit
            self._waiting.remove(config)
            folder = new_run_folder(self._ahead.root, config.name)
            if folder.name != config.name:
                self._say(config.name, f"{config.name} exists: this run is {folder.name}")
            self._list(config, folder)
            self._clock.expect(placed)
            limited = self._chosen.deadline_s is not None
            until = time.monotonic() + self._time_s(starting=1) - ending_s(placed) if limited else None
            future = pool.submit(run_point, placed, folder, until)
            self._running[future] = (config, folder, time.monotonic())

    def _list(self, config: RunConfig, folder: Path) -> None:
        try:
            listing.begin(self._ahead.root, config.name, folder, asked(config))
        except RecordError as error:
            if str(error) not in self._unlisted:
                self._unlisted.append(str(error))

    def _look(self) -> None:
        """Wait a moment; take what has ended, show how far the others are."""
        finished, _ = wait(self._running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for future in finished:
            config, folder, began = self._running.pop(future)
            self._notices(config, folder)
            result, found = _result(config, folder, future)
            if found is not None:
                self._clock.saw(found.record, time.monotonic() - began)
            self._ended(config, folder, result)
            if found is not None and found.record.status.cut_short:
                self.left[config.name] = found.record.status.reason
        for config, folder, _ in self._running.values():
            self._notices(config, folder)
            seen = latest(folder / report.PROGRESS)
            if seen is not None:
                self._tell(config.name, str(seen))
        if self._running and self._time_s() < -ENDING_S:
            raise _OverdueError

    def _ended(self, config: RunConfig, folder: Path, result: PointResult) -> None:
        self.results[config.name] = result
        if result.status is None and self._time_s() < ENDING_S:
            self.left[config.name] = result.error or "it was interrupted"
        (folder / report.PROGRESS).unlink(missing_ok=True)
        self._tell(config.name, in_words(result.outcome), finished=True)

    def _leave(self) -> None:
        """Nothing that is waiting fits into the time that is left."""
        for config in self._waiting:
            left_s = max(0.0, self._time_s(starting=1))
            self.left[config.name] = f"needs about {self._needs_s(config):.0f} s, {left_s:.0f} s were left for it"
        self._waiting.clear()

    @property
    def page_s(self) -> float:
        """Seconds of a page, by what this call has taken."""
        return self._clock.own.page_s

    def least_s(self) -> float | None:
        """The smallest deadline in which a call like this one runs one of those that are left; None: none is left."""
        needs = [self._needs_s(standing.config) for standing in self._ahead.to_run if standing.config.name in self.left]
        return least_deadline_s(self._clock, min(needs), self._before_s, page_jobs()) if needs else None

    def _needs_s(self, config: RunConfig) -> float:
        return needs_s(self._clock, self._ahead.placed[config.name])

    def _time_s(self, starting: int = 0) -> float:
        """Seconds for further runs: what is left, less the pages of this call and of `starting` further runs."""
        runs = len(self.results) + len(self._running) + starting
        return self._chosen.left_s() - self._clock.own.pages_s(runs, page_jobs())

    def _tell(self, run: str, phase: str, *, finished: bool = False) -> None:
        self._watch(Event(run=run, phase=phase, done=len(self.results), total=self._total, finished=finished))

    def _notices(self, config: RunConfig, folder: Path) -> None:
        """What a run has to say once, as soon as it says it."""
        told = notices(folder / report.PROGRESS)
        for text in told[self._said.get(config.name, 0) :]:
            self._say(config.name, f"{config.name}: {text}")
        self._said[config.name] = len(told)

    def _say(self, run: str, text: str) -> None:
        self._watch(Event(run=run, phase=text, done=len(self.results), total=self._total, notice=True))


def run_point(config: RunConfig, folder: Path, until_s: float | None = None) -> str | None:
    """Execute the run notebook for one configuration into its folder; the error that stopped it, or None.

    `until_s`: when it must have begun to end its server.
    """
    return execute(
        source(RUN_NOTEBOOK),
        folder / RUN_NOTEBOOK,
        {"params": None, **config.stated(), "out": str(folder)},
        progress=folder / report.PROGRESS,
        until_s=until_s,
    )


def points(ahead: Outlook, results: Mapping[str, PointResult]) -> Iterator[PointResult]:
    """Of every configuration its newest run, in the campaign's order."""
    for standing in ahead.standings:
        if standing.config.name in results:
            yield results[standing.config.name]
        elif standing.folder is not None and standing.state != "skipped":
            try:
                yield _point(standing.config, study(standing.folder), earlier=True)
            except SpecbenchError as error:
                yield PointResult(
                    name=standing.config.name,
                    folder=standing.folder,
                    status=None,
                    outcome="no_record",
                    error=str(error),
                    earlier=True,
                )


def _result(config: RunConfig, folder: Path, future: Future[str | None]) -> tuple[PointResult, Study | None]:
    try:
        error = future.result()
    except SpecbenchError as problem:  # a worker that was killed: the others go on
        error = str(problem)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    try:
        found = study(folder)
    except RecordError as missing:
        return _no_record(config, folder, error or str(missing)), None
    return _point(config, found, error), found


def _point(config: RunConfig, found: Study, error: str | None = None, *, earlier: bool = False) -> PointResult:
    status = found.record.status.status
    return PointResult(
        name=config.name, folder=found.folder, status=status, outcome=found.outcome, error=error, earlier=earlier
    )


def _no_record(config: RunConfig, folder: Path, error: str) -> PointResult:
    with contextlib.suppress(OSError):
        (folder / ERROR).write_text(error, encoding="utf-8")
    return PointResult(name=config.name, folder=folder, status=None, outcome="no_record", error=error)
