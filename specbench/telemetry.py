"""GPU memory over time: NVML samples in a thread, each with the phase of the run.

In: nothing but time. Out: `GpuSample`s of all GPUs, or the reason why there are none. A phase mark takes a sample at
once, so that the first figure of a phase is not the last of the one before.
"""

from __future__ import annotations

import threading
import time

from .nvml import Reader
from .nvml import reader as nvml_reader
from .record_types import GpuSample


class Telemetry:
    """Samples while its `with` block runs. `unavailable` says why there are no samples; None when there are."""

    def __init__(self, interval_s: float = 0.5, reader: Reader | str | None = None) -> None:
        """`reader` reads all GPUs, or is the reason why nothing can; None: NVML of this machine."""
        found = nvml_reader() if reader is None else reader
        self._read = None if isinstance(found, str) else found
        self.unavailable = found if isinstance(found, str) else None
        self._interval_s = interval_s
        self._phase = "before"
        self._broke = ""
        self._samples: list[GpuSample] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="gpu-telemetry", daemon=True)

    def __enter__(self) -> Telemetry:
        self._began = time.perf_counter()
        if self._read is not None:
            self._sample()
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._read is not None:
            self._sample()

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        """In the order of time."""
        with self._lock:
            return tuple(self._samples)

    @property
    def words(self) -> str:
        """For the record: how was sampled, or why not."""
        return self.unavailable or f"NVML every {self._interval_s:g} s, all GPUs{self._broke}"

    def phase(self, name: str) -> None:
        """From now on samples belong to phase `name`."""
        self._phase = name
        if self._read is not None and self._thread.is_alive():
            self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        if self._read is None:
            return
        t_s = round(time.perf_counter() - self._began, 3)
        try:
            readings = self._read()
        except Exception as error:  # a lost GPU must not end the run; the record says that samples stop here
            self._read, self._broke = None, f"; sampling stopped after {t_s:g} s: {error}"
            return
        with self._lock:
            for reading in readings:
                self._samples.append(
                    GpuSample(
                        t_s=t_s,
                        phase=self._phase,
                        gpu=reading.gpu,
                        used_bytes=reading.used_bytes,
                        free_bytes=reading.free_bytes,
                        total_bytes=reading.total_bytes,
                        utilization_pct=reading.utilization_pct,
                        power_w=reading.power_w,
                    )
                )
