"""Everything that is watched while a server runs, on one clock: GPUs, the log as it grows, and /metrics.

In: where the log is written, and the server once it is ready. Out: what goes into the record. Of a replay only the log
is looked at, for the progress display: the times of a replay are not those of an engine, and no GPU has a part in it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ..configuration.config import RunConfig
from ..engines.sglang.addresses import METRICS
from ..lifecycle.attach import Attached
from ..lifecycle.server import Server
from ..records.writer import RecordWriter
from .logtail import LogTail
from .metering import Metering
from .runclock import RunClock
from .starting import Starting
from .telemetry import START, Telemetry

_NOT_SAMPLED = "not sampled: a replay uses no GPU"
_METRICS_TIMEOUT_S = 10.0


class Watching:
    """Watches while its `with` block runs; `ready` and `phase` tell it how far the run is."""

    _began_s: float  # when the block began
    _starting: Starting

    def __init__(
        self, config: RunConfig, log_path: Path, not_sampled: str | None = None, *, replayed: bool = False
    ) -> None:
        """`not_sampled`: why the GPUs of this machine have no part in it; None: they have, unless it is a replay.

        `replayed`: the attached server is one.
        """
        self._config = config
        self._real = config.engine.replay is None and not replayed
        self._started_here = self._real and config.engine.attach is None
        self.clock = RunClock()
        self.telemetry = Telemetry(reader=not_sampled if self._real else _NOT_SAMPLED, clock=self.clock)
        self._tail = LogTail(log_path, self.clock, self._line)
        self._metering: Metering | None = None
        self._serving = ExitStack()
        self._all = ExitStack()

    def __enter__(self) -> Watching:
        self._all.enter_context(self.telemetry)
        self.telemetry.phase(START)
        self._began_s = self.clock.seconds()
        self._starting = Starting(self._began_s)
        self._all.enter_context(self._tail)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.close()
        self._all.close()

    def _line(self, line: bytes, t_s: float) -> None:
        self.telemetry.stir()
        self._starting.line(line, t_s)

    def now(self) -> str:
        """What the server is doing while it starts: 'loading weights (3 s)'."""
        return self._starting.now(self.clock.seconds())

    def ready(self, server: Server | Attached) -> None:
        """The server serves from now on, until `stopping`."""
        self._tail.started()
        self.telemetry.phase("ready")
        if not (self._real and self._config.engine.enable_metrics):
            return

        def ask() -> str | None:
            got = server.get(METRICS, _METRICS_TIMEOUT_S)
            return None if got.body is None else got.body.decode("utf-8", "replace")

        self._metering = self._serving.enter_context(Metering(ask, self.clock))

    def phase(self, name: str) -> None:
        """A step of the workload begins."""
        self.telemetry.phase(name)
        if self._metering is not None:
            self._metering.phase(name)

    def stopping(self) -> None:
        """The server is about to be ended."""
        self._serving.close()
        self.telemetry.phase("stop")

    # ── for the record, after the `with` block ───────────────────────────────────────────────────────────────────────

    def marks(self, ready_s: float | None) -> dict[str, float]:
        """Seconds since the start of the process at which something was seen. `ready`: /health answered 200."""
        seen = self._starting.marks if self._started_here else {}
        fired_up = seen.pop("ready", None)
        if fired_up is not None:
            seen["fired_up"] = fired_up
        return seen if ready_s is None else seen | {"ready": ready_s}

    def stages(self, ready_s: float | None) -> dict[str, float]:
        """The parts of the start in seconds; none of a replay, or of a server that was there already."""
        return self._starting.stages(ready_s) if self._started_here else {}

    def told(self) -> dict[str, Any]:
        """How was watched, for env.json."""
        return {
            "clock_unix_s": round(self.clock.unix_s, 4),  # of the origin of every t_s in this record
            "process_started_s": None if self._config.engine.attach else self._began_s,  # on that clock
            "gpu": self.telemetry.words,
            "memory_watched": self.telemetry.watched,  # every few milliseconds while starting, not cut short
            "log": self._tail.words if self._started_here else self._no_log_times(),
            "metrics": self._metering.words if self._metering is not None else self._no_metrics(),
        }

    def notes(self) -> tuple[str, ...]:
        """What a reader of the record must know."""
        return (self._tail.replaced,) if self._started_here and self._tail.replaced is not None else ()

    def write(self, writer: RecordWriter) -> None:
        """gpu.csv, log_times.csv.gz and metrics.csv.gz."""
        writer.gpu_samples(self.telemetry.samples)
        if self._started_here:
            writer.log_arrivals(self._tail.arrivals)
        if self._metering is not None:
            writer.metric_samples(self._metering.samples)

    def _no_log_times(self) -> str:
        return "not recorded: the times of a replay are its own" if not self._real else "not watched: attached"

    def _no_metrics(self) -> str:
        if not self._real:
            return "not asked: a replay"
        return "never ready" if self._config.engine.enable_metrics else "not asked: engine.enable_metrics is false"
