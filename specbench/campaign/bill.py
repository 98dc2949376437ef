"""What a campaign will cost, before it starts: how many starts, and how long each configuration takes.

In: configurations (as this machine runs them), and the folder of the campaign, whose own measured runs are the best
clock there is. Out: a `Cost` per configuration and a `Bill`. What the figures rest on, and what is not known, is said.

The non-obvious thing: requests that cannot run together wait, so the time of a workload follows from the predicted
number of running requests; a configuration that is predicted to be refused costs its start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import speculative
from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..errors import ConfigError, SpecbenchError
from ..gpus import load_gpu, parts_of_a_card
from ..load.workload import steps_of
from ..paths import resolve
from ..reading import duration_rows
from ..reading.spent import spent
from ..records.caveats import on_cpu, random_weights
from ..records.listing import run_folders
from ..records.record import RunRecord
from ..running.recorded import as_recorded
from ..running.subject import predicted
from ..terms import Verdict
from ..units import counted
from .own_time import OwnTime
from .seen_starts import SeenStarts
from .start_rows import durations, in_words, kind_of, nearest, on_the_cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one configuration takes, seconds."""

    config: RunConfig
    budget: MemoryBudget | None  # None: not predicted
    start_s: float  # until the server is ready, or has refused
    workload_s: float  # warm-up and all steps; 0: nothing is sent, or nothing is answered
    beside_s: float  # notebook, end of the server
    is_start: bool  # a real engine is started
    gpus: int  # that it holds; 0: a replay, a server of someone else, or one on the CPU
    notes: tuple[str, ...] = ()  # what the figures rest on where that is not the very case

    @property
    def total_s(self) -> float:
        return self.start_s + self.workload_s + self.beside_s

    @property
    def gpu_s(self) -> float:
        """Seconds for each GPU that it holds."""
        return self.total_s * self.gpus

    @property
    def verdict(self) -> Verdict | None:
        """What the prediction expects; None: not predicted."""
        return None if self.budget is None else self.budget.verdict

    @property
    def fault(self) -> str | None:
        """A known fault of the engine that ends such a server, in a sentence; None: none known."""
        return None if self.budget is None else self.budget.fault

    @property
    def out_of_memory(self) -> str | None:
        """That graphs and a full prefill likely do not fit outside the budget, with the arithmetic; None: they do."""
        return None if self.budget is None else self.budget.out_of_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What running configurations is expected to take: seconds, and GPU seconds."""

    costs: tuple[Cost, ...]
    pages_s: float
    at_once: int = 1  # configurations that run at the same time
    skipped: tuple[Cost, ...] = ()  # what is not started would have taken this beside them

    @property
    def saved_gpu_s(self) -> float:
        """GPU seconds of what is not started."""
        return sum(cost.gpu_s for cost in self.skipped)

    @property
    def starts(self) -> int:
        """Real engines that are started."""
        return sum(cost.is_start for cost in self.costs)

    @property
    def total_s(self) -> float:
        seconds = [cost.total_s for cost in self.costs]
        return max(sum(seconds) / self.at_once, max(seconds, default=0.0)) + self.pages_s

    @property
    def held_s(self) -> float:
        """Seconds in which GPUs are in use, whatever their number."""
        return sum(cost.total_s for cost in self.costs if cost.gpus)

    @property
    def gpu_s(self) -> float:
        """GPU seconds: each GPU counts."""
        return sum(cost.gpu_s for cost in self.costs)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for cost in self.costs for note in cost.notes))


def bill(
    configs: Iterable[RunConfig],
    root: Path | None = None,
    *,
    skipped: Iterable[RunConfig] = (),
    pages_of: int = 0,
    page_jobs: int = 1,
    at_once: int = 1,
) -> Bill:
    """Of configurations that run one after the other, or `at_once` of them at a time; the first start of a version on
    a number of GPUs compiles its kernels, unless a run of `root` on this machine did. Pages are written of `pages_of`
    runs, `page_jobs` at a time. `skipped`: are not run; their kernels count as compiled where the others compile them.
    """
    clock = Clock(root)
    costs, spared = ([_expected(clock, config) for config in some] for some in (configs, skipped))
    return Bill(
        costs=tuple(costs),
        pages_s=clock.own.pages_s(pages_of, page_jobs),
        at_once=at_once,
        skipped=tuple(spared),
    )


def _expected(clock: Clock, config: RunConfig) -> Cost:
    cost = clock.cost(config)
    clock.expect(config)
    return cost


def expected_budget(config: RunConfig) -> MemoryBudget | None:
    """By the configuration alone, of a replay by that of its recording; None: not predicted, or a server of someone
    else, which runs already."""
    if _attached(config):
        return None
    if config.engine.replay is None:
        return predicted(config)
    try:
        return predicted(as_recorded(config, _recording(config)).config)
    except SpecbenchError:
        return None


class Clock:
    """How long things take, better known with every run of the folder that was measured."""

    def __init__(self, root: Path | None = None) -> None:
        self._starts = SeenStarts()
        self._at_least: dict[str, float] = {}  # configuration -> seconds that were not enough for it
        self.own = OwnTime(durations())
        records: list[RunRecord] = []
        for folder in run_folders(root) if root is not None and root.is_dir() else ():
            try:
                record = RunRecord.open(folder)
            except SpecbenchError:
                continue
            time = spent(folder, record)
            self._took(record, time.run_s)
            if _is_start(record):
                records.append(record)
            if time.diagnosis_s is not None:
                self.own.saw_page(time.diagnosis_s)
        self._starts.read(records)

    def saw(self, record: RunRecord, wall_s: float | None = None) -> None:
        """A run of this call; `wall_s`: all that it took, from the notebook's start to its end."""
        self._took(record, wall_s)
        if _is_start(record):
            self._starts.saw(record)

    def _took(self, record: RunRecord, wall_s: float | None) -> None:
        status, config = record.status, record.config
        taken_s = sum(seconds for phase, seconds in status.phases.items() if phase != "stop")
        if status.cut_short:
            self._at_least[config.name] = taken_s
            return
        self._at_least.pop(config.name, None)
        if wall_s is not None:
            is_replay = config.engine.replay is not None
            self.own.saw_run(wall_s - (_as_paced_s(config) if is_replay else taken_s), is_replay=is_replay)

    def expect(self, config: RunConfig) -> None:
        """A start that will have been made."""
        if config.engine.replay is None:
            self._starts.expect(config)

    def compiles(self, config: RunConfig) -> bool:
        """Whether kernels of its version are still to be compiled here, as far as is known."""
        return self._starts.compiles(config)

    def cost(self, config: RunConfig) -> Cost:
        if config.engine.replay is not None:
            return self._of_replay(config)
        budget = predicted(config)
        notes: list[str] = []
        refused = budget is not None and budget.verdict == "refused"
        workload_s = 0.0 if refused else _workload_s(config, budget, notes)
        attached = _attached(config)
        return Cost(
            config=config,
            budget=budget,
            start_s=0.0 if attached else self._start_s(config, notes),
            workload_s=workload_s,
            beside_s=self.own.beside_s(is_replay=False),
            is_start=not attached,
            gpus=0 if attached or on_cpu(config) else _cards(config),
            notes=tuple(notes),
        )

    def least_s(self, config: RunConfig) -> float:
        """Seconds that were not enough when it was ended for a deadline; 0: it was not."""
        return self._at_least.get(config.name, 0.0)

    def _of_replay(self, config: RunConfig) -> Cost:
        """A replay takes what was recorded, by its speed."""
        notes: tuple[str, ...] = ()
        start_s = workload_s = 0.0
        budget = None
        try:
            record = _recording(config)
            budget = predicted(as_recorded(config, record).config)
            start_s, workload_s = _paced(config, record)
        except SpecbenchError:
            notes = (f"{config.name}: cannot be played: its recording is not there, or is that of another server",)
        return Cost(
            config=config,
            budget=budget,
            start_s=start_s,
            workload_s=workload_s,
            beside_s=self.own.beside_s(is_replay=True),
            is_start=False,
            gpus=0,
            notes=notes,
        )

    def _start_s(self, config: RunConfig, notes: list[str]) -> float:
        kind, cold = kind_of(config), self._starts.compiles(config)
        if cold and (elsewhere := self._starts.elsewhere(config)) is not None:
            notes.append(elsewhere)
        seen_s = self._starts.seconds(kind, cold)
        if seen_s is not None:
            return seen_s
        if kind.on_cpu:
            return float(_on_cpu("a start", config, notes)["start_s"])
        row = nearest(kind, cold)
        wanted = in_words(kind.version, kind.gpus, kind.graphs, cold)
        found = in_words(row["version"], row["gpus"], row["cuda_graphs"], row["cold"])
        estimated = row in durations()["estimated"]
        if wanted != found or estimated:
            taken = f"taken as that of {found}" if wanted != found else f"{row['seconds']} s"
            why = f", which is estimated: {row['source']}" if estimated else ""
            notes.append(f"no recorded start of {wanted}: {taken}{why}")
        if not random_weights(config):
            notes.append("the recorded starts read no weights from disk: add the time that this machine needs for it")
        if (config.model, config.gpu.name) != (duration_rows.MODEL, duration_rows.GPU):
            known = f"{duration_rows.MODEL} on {duration_rows.GPU}"
            notes.append(f"{config.model} on {config.gpu.name}: taken as {known}")
        return float(row["seconds"])


def _is_start(record: RunRecord) -> bool:
    """Whether an engine of ours was started for it, and none ended it."""
    return record.status.origin == "measured" and not record.status.cut_short and not _attached(record.config)


def _attached(config: RunConfig) -> bool:
    """Whether the server is someone else's, already started."""
    return config.engine.attach is not None


def _workload_s(config: RunConfig, budget: MemoryBudget | None, notes: list[str]) -> float:
    running = None if budget is None else budget.limits["running_requests"].value
    at_once = max(1, running.point) if running is not None else 1
    if running is None and not config.workload.load_only:
        notes.append("where running requests are not predicted, requests are taken to run one by one")
    if on_cpu(config):
        some = [] if config.workload.load_only else notes
        return _requests_s(config, at_once, float(_on_cpu("a request", config, some)["token_s"]), 0.0)
    table = durations()["decode_s"]
    algorithm = speculative.canonical(config.speculative.algorithm)
    if algorithm not in table and not config.workload.load_only:
        notes.append(f"no recorded token times of {algorithm}: taken as DFLASH's")
    decode_s = float(table.get(algorithm, table["DFLASH"])["seconds"])
    prefill_s = 1.0 / float(durations()["prefill_tokens_per_s"]["tokens"])
    return _requests_s(config, at_once, decode_s, prefill_s)


def _cards(config: RunConfig) -> int:
    """GPUs that it holds: ranks that are shown shares of a card hold that one together."""
    try:
        parts = parts_of_a_card(load_gpu(config.gpu.name))
    except ConfigError:  # not in the table
        parts = 1
    return -(-config.gpu.count // parts)


def _on_cpu(what: str, config: RunConfig, notes: list[str]) -> Mapping[str, Any]:
    """The recorded server on the CPU by which one there is estimated."""
    row = on_the_cpu(kind_of(config).gpus)
    ranks = counted(row["ranks"], "rank")
    notes.append(f"how long {what} takes on this CPU is not known: taken as that of a tiny model, {ranks} on two cores")
    return row


def _requests_s(config: RunConfig, at_once: int, decode_s: float, prefill_s: float) -> float:
    total = 0.0
    for step in steps_of(config.workload):
        waves = math.ceil(step.requests / min(step.concurrency or step.requests, at_once))
        taken = step.requests * step.input_tokens * prefill_s + waves * step.max_new_tokens * decode_s
        total += max(taken, step.requests / step.request_rate) if step.request_rate else taken
    return total


def _recording(config: RunConfig) -> RunRecord:
    return RunRecord.open(resolve(config.engine.replay or "", kind="engine.replay"))


def _paced(config: RunConfig, record: RunRecord) -> tuple[float, float]:
    """Seconds of a replay's start and of its requests."""
    speed = config.engine.replay_speed
    pace = 0.0 if isinstance(speed, str) else 1.0 / speed
    start_s = pace * (record.status.ready_s or record.status.phases.get("total", 0.0))
    return start_s, pace * sum(max((trace.end_s or 0.0) for trace in step) for step in _by_step(record))


def _as_paced_s(config: RunConfig) -> float:
    """Seconds that a replay had to take; 0: its recording is not there any more."""
    try:
        return sum(_paced(config, _recording(config)))
    except SpecbenchError:
        return 0.0


def _by_step(record: RunRecord) -> Iterable[list[Any]]:
    steps: dict[str, list[Any]] = {}
    for trace in record.requests():
        steps.setdefault(trace.step, []).append(trace)
    return steps.values()
