"""A campaign: every configuration run, diagnosed and written up. In: configurations. Out: run folders and pages.

For each configuration a run folder with the executed run notebook and the record; then, when all have run, the executed
diagnosis (a remedy is compared with the runs that tried it), the analysis over all, one page each and `index.html`.
A configuration that fails does not stop the others. Recordings play several at a time; real engines run one after the
other, since they share the GPUs.

With a deadline a configuration starts only when it is expected to end in time, and one that would not is ended with its
record kept; the pages are written in the time that is left for them. What has not run is said, and `resume` goes on
there: in the same folder, or in a copy of it on another machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from ..configuration.config import RunConfig
from ..errors import ConfigError, LaunchError, RecordError, SpecbenchError
from ..lifecycle.preflight import unusable
from ..machine_file import Places, doubts, place
from ..params import Campaign
from ..paths import resolve, runs_root
from ..reading.outcome import in_words
from ..records import listing
from ..records.record import RunRecord, make_folder, new_run_folder
from ..studies.study import ERROR, RUN_NOTEBOOK, Study, study
from ..terms import Outcome, Status
from ..units import counted
from ..workbook.notebooks import execute, source
from ..workbook.progress import latest, notices
from ..workbook.workers import worker_pool
from . import report
from .bill import Bill, Clock, bill
from .resume import Standing, asked, standings

_POLL_S = 0.25
_MAX_JOBS = 4
#: Pages need a core and 400 MB each, and a GPU waits for them while its machine is held: those of a campaign of 14 runs
#: are made in one round where there are cores for it, and half of the memory.
_MAX_PAGE_JOBS = 16
_PAGE_BYTES = 400 * 10**6
#: What a run needs after it was told to end: the rest of the notebook; of an engine its grace period and GPU memory.
_ENDING_S = 20.0
_REPLAY_ENDING_S = 5.0
#: On a loaded machine even a replay takes so long, and what is begun is to come to its end.
_SHORTEST_S = 15.0
#: A configuration that was ended for a deadline is given so much more than was not enough.
_MORE = 1.5
#: The next call may be slower than this one by so much, and needs to have made progress.
_SLOWER = 1.2


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
    left: Mapping[str, str] = field(default_factory=dict)  # configurations that are still to run -> why they did not
    least_s: float | None = None  # the smallest deadline in which one that is left can run; None: none is left

    @property
    def complete(self) -> bool:
        """Every configuration left a record."""
        return not self.left and all(point.status is not None for point in self.points)

    @property
    def all_served(self) -> bool:
        """Every configuration served what was asked, or started as asked where nothing was to be sent."""
        return not self.left and all(point.outcome in ("served", "started") for point in self.points)


Watch = Callable[[Event], None]


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
    costs = bill(todo, root, pages_of=pages_of, page_jobs=_page_jobs(), at_once=_jobs(todo))
    told = doubts([standing.config for standing in found if standing.to_run], chosen.places) if chosen.places else ()
    return Outlook(root=root, standings=found, placed=placed, bill=costs, doubts=told)


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
    configuration has a usable engine. `before` is called with what is ahead when all that is well. Where some have one,
    the others fail together, before the first start.
    """
    watch = progress or (lambda event: None)
    chosen = choices or Choices()
    ahead = outlook(campaign, out, chosen)
    root = ahead.root
    broken = unusable([ahead.placed[standing.config.name] for standing in ahead.to_run])
    if broken and len(broken) == len(ahead.to_run):
        first, *others = dict.fromkeys(broken.values())
        raise LaunchError(f"{first} {counted(len(others), 'other engine')} cannot be used either." if others else first)
    make_folder(root)
    with _alone(root, exclusive=chosen.resume):
        if before is not None:
            before(ahead)
        for standing in ahead.standings:
            if standing.why:
                watch(Event(run=standing.config.name, phase=standing.why, done=0, total=0, notice=True))
        unlisted: list[str] = []
        try:
            to_run = {standing.config.name: standing.to_run for standing in ahead.standings}
            listing.plan(root, campaign.name, to_run, about=campaign.about)
        except RecordError as error:  # the runs may be possible, and their pages
            unlisted.append(str(error))
        runs = _Runs(ahead, chosen, watch, unlisted)
        runs.refuse(broken)
        runs.all()
        stage = _stage(watch, len(runs.results))
        until = None if chosen.deadline_s is None else chosen.began_s + chosen.deadline_s
        problems: tuple[str, ...] = ()
        if runs.results or any(listing.run_folders(root)):
            new = {result.folder for result in runs.results.values()}
            jobs = _page_jobs()
            with worker_pool(jobs) as pool:
                limit = None if until is None else report.Limit(until_s=until, page_s=runs.page_s, jobs=jobs)
                _, problems = report.build(root, pool, stage, limit=limit, first=new)
    return CampaignResult(
        name=campaign.name,
        folder=root,
        index=root / report.INDEX,
        points=tuple(_points(ahead, runs.results)),
        problems=(*unlisted, *problems),
        left=runs.left,
        least_s=runs.least_s(),
    )


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


def _jobs(configs: Sequence[RunConfig]) -> int:
    """How many run at once. A real engine needs its GPUs for itself."""
    if any(config.engine.replay is None for config in configs):
        return 1
    return max(1, min(_MAX_JOBS, os.cpu_count() or 1, len(configs)))


def _ending_s(config: RunConfig) -> float:
    """Seconds that a run has after it was told to end. A server of someone else is left running."""
    is_ours = config.engine.replay is None and config.engine.attach is None
    return _ENDING_S if is_ours else _REPLAY_ENDING_S


def _page_jobs() -> int:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(_MAX_PAGE_JOBS, os.cpu_count() or 1, memory_bytes // (2 * _PAGE_BYTES)))


class _OverdueError(Exception):
    """A run did not end when it was told to."""


class _Runs:
    """The configurations of one call: started one by one (or a few at a time) as long as there is time for them."""

    def __init__(self, ahead: Outlook, chosen: Choices, watch: Watch, unlisted: list[str]) -> None:
        self._ahead, self._chosen, self._watch, self._unlisted = ahead, chosen, watch, unlisted
        self._waiting = [standing.config for standing in ahead.to_run]
        self._running: dict[Future[str | None], tuple[RunConfig, Path, float]] = {}
        self._clock = Clock(ahead.root)
        self._before_s = time.monotonic() - chosen.began_s  # of the command, until the first can start
        known = listing.read(ahead.root)
        names = {*(known.runs if known else ()), *(standing.config.name for standing in ahead.standings)}
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
        jobs = _jobs([self._ahead.placed[config.name] for config in self._waiting]) if self._waiting else 1
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
            until = time.monotonic() + self._time_s(starting=1) - _ending_s(placed) if limited else None
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
        if self._running and self._time_s() < -_ENDING_S:
            raise _OverdueError

    def _ended(self, config: RunConfig, folder: Path, result: PointResult) -> None:
        self.results[config.name] = result
        if result.status is None and self._time_s() < _ENDING_S:
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
        if not needs:
            return None
        return _SLOWER * (self._before_s + min(needs) + self._clock.own.pages_s(1, _page_jobs()))

    def _needs_s(self, config: RunConfig) -> float:
        placed = self._ahead.placed[config.name]
        cost = self._clock.cost(placed)
        return max(_SHORTEST_S, cost.total_s, _MORE * self._clock.least_s(config)) + _ending_s(placed)

    def _time_s(self, starting: int = 0) -> float:
        """Seconds for further runs: what is left, less the pages of this call and of `starting` further runs."""
        runs = len(self.results) + len(self._running) + starting
        return self._chosen.left_s() - self._clock.own.pages_s(runs, _page_jobs())

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


def _points(ahead: Outlook, results: Mapping[str, PointResult]) -> Iterator[PointResult]:
    """Of every configuration its newest run, in the campaign's order."""
    for standing in ahead.standings:
        if standing.config.name in results:
            yield results[standing.config.name]
        elif standing.folder is not None:
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


@contextlib.contextmanager
def _alone(root: Path, *, exclusive: bool) -> Iterator[None]:
    """While a campaign is resumed, nobody else works in its folder. ConfigError: somebody does.

    The lock is the kernel's own on the folder: it ends with this process, and a copy of the folder has none.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{root}: another specbench run is at work there.\nWait until it has ended, or name another folder "
                "(--out)."
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(descriptor)


def _stage(watch: Watch, before: int = 0) -> Callable[[str, int, int], None]:
    """Pages count on from the `before` configurations that have run."""

    def show(phase: str, done: int, total: int) -> None:
        watch(Event(run=None, phase=phase, done=before + done, total=before + total, finished=done == total))

    return show


def report_folder(root: Path, progress: Watch | None = None) -> tuple[Path, tuple[str, ...]]:
    """Diagnose the records of a folder anew and rebuild all its pages. Returns the front page and the problems."""
    with worker_pool(_page_jobs()) as pool:
        return report.build(root, pool, _stage(progress or (lambda event: None)))
