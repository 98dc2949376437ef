"""What a run measures: an engine that it starts, a replay that it starts, or a server that somebody else started.

In: a RunConfig. Out: a `Subject`, which says what is asked of it before the start, how it is reached, and what a record
of it has to say. `run` takes the same steps with each of them.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..budget.predict import predict
from ..budget_types import MemoryBudget
from ..capture.watching import Watching
from ..configuration.config import RunConfig
from ..errors import ConfigError, SpecError
from ..lifecycle import leftovers, time_limit
from ..lifecycle.attach import Attached, attached
from ..lifecycle.emulating import Emulating, emulating
from ..lifecycle.headroom import headroom
from ..lifecycle.launch import launch
from ..lifecycle.ports import check_address
from ..lifecycle.preflight import Checked, preflight
from ..lifecycle.served_config import AsServed, as_served
from ..lifecycle.server import Server
from ..load.sending import Progress, Sending
from ..records.redaction import Redaction
from ..replay.itself import UNTOLD, Played, pace
from ..terms import Origin
from .carried import Carried, carried
from .environment import environment, of_attached
from .recorded import replayed

#: Called while a server starts, with seconds waited.
Tick = Callable[[float], None]


class Subject(abc.ABC):
    """One server as a run sees it."""

    origin: Origin = "measured"  # of its figures
    redaction: Redaction | None = None  # of what must not be in the record
    starts = True  # the run starts it and ends it
    exit_code_known = True

    def __init__(self, config: RunConfig, checked: Checked) -> None:
        """`config`: that which the server has. `checked`: what is known of its engine before it starts."""
        self.config, self.checked = config, checked

    def budget(self) -> MemoryBudget | None:
        """What the workload has to fit into; None: not known before it is asked to serve."""
        return predicted(self.config)

    def check(self) -> None:
        """Before anything is written. ConfigError or LaunchError: it cannot be run, or not as it is described."""
        time_limit.check(time_limit.until_s())

    def warnings(self) -> tuple[str, ...]:
        """What must be seen at once, right before the start."""
        return ()

    def notes(self) -> tuple[str, ...]:
        """What a reader of the record must know of the server. Ask after `warnings`."""
        return self.checked.notes

    def recorded_notes(self) -> tuple[str, ...]:
        """Of a replay: that it is one, and what was noted when it was recorded."""
        return ()

    def has_answers(self) -> bool:
        """Whether there is a point in sending the workload."""
        return not self.config.workload.load_only

    def watching(self, log_path: Path) -> Watching:
        """What is to be watched while it runs."""
        return Watching(self.config, log_path)

    @abc.abstractmethod
    def serving(
        self, log_path: Path, tick: Tick, ready_within_s: float
    ) -> contextlib.AbstractContextManager[Server | Attached]:
        """The server for the time of the run. `ready_within_s`: seconds left of the campaign's deadline."""

    def answered(self, sending: Sending) -> Origin:
        """The origin of the figures, now that there are answers: an attached server may turn out to be a replay."""
        return self.origin

    def phases(self, start_s: float, sent: Mapping[str, float], stop_s: float) -> dict[str, float]:
        """Seconds by phase."""
        return {"start": round(start_s, 3), **sent, "stop": round(stop_s, 3)}

    def carried(self, log_path: Path) -> Carried | None:
        """Of a replay that left the log at `log_path`: what was watched when it was recorded. None: nothing."""
        return None

    def environment(self, server: Server | Attached, gpu_telemetry: str) -> dict[str, Any]:
        """The content of env.json, without what was watched."""
        return environment(self.config, server.argv, gpu_telemetry, server.gpu_memory, None, self.checked)


class StartedEngine(Subject):
    """A real engine, started by this run."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config, Checked(installed=None, notes=()))
        self._emulated: Emulating | None = None
        self._gpus: tuple[int, ...] | None = None  # NVML indices that count: see `headroom`
        self._before: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # left by earlier runs; of the GPUs

    def check(self) -> None:
        super().check()
        check_address(self.config)
        self.checked = preflight(self.config)
        self._emulated = emulating(self.config)

    def warnings(self) -> tuple[str, ...]:
        room, left = headroom(self.config), leftovers.warnings()
        self._gpus, self._before = room.gpus, (left, room.notes)
        return (*left, *room.warnings)

    def notes(self) -> tuple[str, ...]:
        left, of_gpus = self._before
        return (*left, *self.checked.notes, *(self._emulated.notes if self._emulated else ()), *of_gpus)

    def serving(
        self, log_path: Path, tick: Tick, ready_within_s: float
    ) -> contextlib.AbstractContextManager[Server | Attached]:
        passed = self._emulated.emulation.passed if self._emulated else None
        return launch(
            self.config,
            log_path=log_path,
            tick=tick,
            passed_fraction=passed,
            gpus=self._gpus,
            ready_within_s=ready_within_s,
        )

    def environment(self, server: Server | Attached, gpu_telemetry: str) -> dict[str, Any]:
        told = environment(
            self.config,
            server.argv,
            gpu_telemetry,
            server.gpu_memory,
            None,
            self.checked,
            self._emulated,
            server.added_env,
        )
        return {**told, "server_gpus": None if self._gpus is None else list(self._gpus)}


class StartedReplay(Subject):
    """A recorded server, played by a process that this run starts. Its configuration is the recorded one."""

    origin = "recorded"

    def __init__(self, asked: RunConfig) -> None:
        self._replayed = replayed(asked)
        self._record = self._replayed.record
        self.exit_code_known = self._record.status.exit_code is not None
        super().__init__(self._replayed.config, Checked(installed=None, notes=self._replayed.notes))

    def recorded_notes(self) -> tuple[str, ...]:
        speed = self.config.engine.replay_speed
        told = pace(None if isinstance(speed, str) else speed)
        notes = [f"replay of the record {self._record.name}, {told}; all times of requests are in recorded time"]
        if not self.config.workload.load_only and not self._record.requests():
            notes.append("the replayed record is load only: no request was recorded, so the workload has no latencies")
        return (*notes, *_kept(self._record.status.notes))

    def has_answers(self) -> bool:
        """Of a load-only recording only requests that cannot fit have an answer: the engine's error."""
        return super().has_answers() and (bool(self._record.requests()) or self.config.workload.allow_overflow)

    def serving(
        self, log_path: Path, tick: Tick, ready_within_s: float
    ) -> contextlib.AbstractContextManager[Server | Attached]:
        return launch(self.config, log_path=log_path, tick=tick, gpus=(), ready_within_s=ready_within_s)

    def carried(self, log_path: Path) -> Carried | None:
        return carried(self._record, self.config.workload, log_path)

    def environment(self, server: Server | Attached, gpu_telemetry: str) -> dict[str, Any]:
        return environment(self.config, server.argv, gpu_telemetry, server.gpu_memory, self._replayed, self.checked)


class AttachedServer(Subject):
    """A server of somebody else: an engine, or a replay that says so. It is left running."""

    starts = False

    def __init__(self, asked: RunConfig, progress: Progress | None) -> None:
        """Waits until it is healthy, no longer than the campaign has time.

        LaunchError: it is not there. ConfigError: it is another than is described.
        """
        self._server, timeout_s = Attached(asked), asked.engine.ready_timeout_s
        self._server.connect(
            timeout_s,
            (lambda waited_s: progress("attach", int(waited_s), int(timeout_s))) if progress else None,
            time_limit.until_s(),
        )
        self._played: Played | None = self._server.played
        self.redaction = self._server.redaction
        served: AsServed = as_served(asked, self._server.info)
        super().__init__(served.config, Checked(installed=self._server.version, notes=served.notes))
        self.origin = "measured" if self._played is None else "recorded"

    def budget(self) -> MemoryBudget | None:
        """Its pool is what it is; the one predicted for the card in the params may be another."""
        return None

    def warnings(self) -> tuple[str, ...]:
        return tuple(self._server.notes)

    def recorded_notes(self) -> tuple[str, ...]:
        if self._played is None:
            return ()
        times = "were taken as they came" if self._played is UNTOLD else "are in recorded time"
        said = f"the attached server is no engine: replay of {self._played.words}; all times of requests {times}"
        return (said, *_kept(self._played.notes))

    def watching(self, log_path: Path) -> Watching:
        return Watching(self.config, log_path, self._server.not_sampled, replayed=self._played is not None)

    def serving(
        self, log_path: Path, tick: Tick, ready_within_s: float
    ) -> contextlib.AbstractContextManager[Server | Attached]:
        return attached(self._server, log_path)

    def answered(self, sending: Sending) -> Origin:
        if self._played is None and any(trace.replayed_exactly is not None for trace in sending.traces):
            self._played, self.origin = UNTOLD, "recorded"
        return self.origin

    def phases(self, start_s: float, sent: Mapping[str, float], stop_s: float) -> dict[str, float]:
        return dict(sent)

    def environment(self, server: Server | Attached, gpu_telemetry: str) -> dict[str, Any]:
        env = super().environment(server, gpu_telemetry)
        return of_attached(env, self._server, self._played)


def subject(asked: RunConfig, progress: Progress | None = None) -> Subject:
    """What a run of `asked` measures."""
    if asked.engine.replay is not None:
        return StartedReplay(asked)
    if asked.engine.attach is not None:
        return AttachedServer(asked, progress)
    return StartedEngine(asked)


def predicted(config: RunConfig) -> MemoryBudget | None:
    """The budget from the configuration alone; None when this model or algorithm cannot be sized."""
    try:
        return predict(config)
    except (ConfigError, SpecError):
        return None


def _kept(notes: Iterable[str]) -> list[str]:
    """Notes of a recording that hold of its replay too."""
    return [note for note in notes if not note.startswith(("load only:", "replay of"))]
