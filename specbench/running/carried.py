"""What was watched when a server was recorded, for the record of its replay: GPUs, log times, /metrics, memory.

In: the recording, and of its replay the workload and the log that it left. Out: tables, and sections of env.json. They
are recorded figures, as is all in the record of a replay, and belong to what was recorded: a replay that was ended
early, or was sent something else, gets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..configuration.config import WorkloadSection
from ..errors import RecordError
from ..records.record import RunRecord
from ..records.types import GpuSample, LogArrival, MetricSample
from ..records.writer import RecordWriter

#: Said in the record of such a replay.
NOTE = "GPU samples, GPU memory, times of log lines and /metrics over time are those of the recording"
#: Of env.json: how was watched, which GPUs the ranks have, and who held their memory before and after.
_SECTIONS = ("capture", "gpu_telemetry", "gpu_memory", "gpu_memory_after", "server_gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """From the recording into the record of its replay."""

    gpu_samples: tuple[GpuSample, ...]
    log_arrivals: tuple[LogArrival, ...]
    metric_samples: tuple[MetricSample, ...]
    env: Mapping[str, Any]

    def write(self, writer: RecordWriter) -> None:
        writer.gpu_samples(self.gpu_samples)
        if self.log_arrivals:
            writer.log_arrivals(self.log_arrivals)
        if self.metric_samples:
            writer.metric_samples(self.metric_samples)


def carried(recording: RunRecord, workload: WorkloadSection, replayed_log: Path) -> Carried | None:
    """None: no GPU was sampled when it was recorded, its tables are damaged, or the replay was another."""
    try:
        if _sent(workload) != _sent(recording.config.workload) or not recording.gpu_samples():
            return None
        if recording.log_bytes() != replayed_log.read_bytes():
            return None
        return Carried(
            gpu_samples=recording.gpu_samples(),
            log_arrivals=recording.log_arrivals(),
            metric_samples=recording.metric_samples(),
            env={name: recording.env[name] for name in _SECTIONS if name in recording.env},
        )
    except (RecordError, OSError):
        return None


def _sent(workload: WorkloadSection) -> dict[str, Any]:
    """What decides which requests are sent: all but how long an answer is waited for."""
    return workload.model_dump(exclude={"request_timeout_s"})
