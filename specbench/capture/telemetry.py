"""GPU memory over time: NVML samples in a thread, each with the phase of the run.

In: nothing but time. Out: `GpuSample`s of all GPUs, or the reason why there are none. A phase mark takes a sample at
once, so that the first figure of a phase is not the last of the one before.

The non-obvious thing: while a server starts, memory alone is read every 1 to 10 ms, and of these only changes are kept,
each with the last sample before it. So every level at which memory stood for some milliseconds is known with its
beginning and its end, which is what the free memory that the engine read is found from (see `freeread`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from ..host.nvml import GpuReading, MemoryReader, MemoryReading, Reader, memory_reader
from ..host.nvml import reader as nvml_reader
from ..records.types import GpuSample
from .runclock import RunClock

#: The phase in which memory is watched closely.
START = "start"
#: Seconds between two looks at the memory while starting: at rest, and for `_STIR_S` after something happened.
_REST_S, _QUICK_S, _STIR_S = 0.01, 0.001, 1.0
#: At most this share of a core goes into looking at memory, however many GPUs there are; but a look that cost a lot
#: delays the next one by no more than this.
_SHARE, _LONGEST_PAUSE_S = 0.2, 0.05
#: A file of some 100 kB; a start has some hundred changes.
_MOST_CHANGES = 20_000
#: Whole samples, all GPUs together; from here on every second one is dropped and the interval doubles.
_MOST_SAMPLES = 24_000


@dataclass(slots=True)
class _Last:
    """What was last read of one GPU."""

    memory: tuple[int, int, int]
    t_s: float
    phase: str
    kept: bool


@dataclass(slots=True)
class _Moment:
    """The samples of one moment."""

    samples: list[GpuSample]
    whole: bool = True  # with utilization and clocks; False: memory alone
    mark: bool = False  # the first of a phase


@dataclass(slots=True)
class _Kept:
    moments: list[_Moment] = field(default_factory=list)
    whole: int = 0  # samples
    changes: int = 0


class Telemetry:
    """Samples while its `with` block runs. `unavailable` says why there are no samples; None when there are."""

    def __init__(
        self,
        interval_s: float = 0.5,
        reader: Reader | str | None = None,
        *,
        memory: MemoryReader | None = None,
        clock: RunClock | None = None,
    ) -> None:
        """`reader` reads all GPUs, or is the reason why nothing can; None: NVML of this machine. `memory` reads their
        memory alone; None: that of this machine, or with a `reader` that one."""
        found = nvml_reader() if reader is None else reader
        self._read = None if isinstance(found, str) else found
        self.unavailable = found if isinstance(found, str) else None
        quick: MemoryReader | str | None = memory
        if quick is None:
            quick = memory_reader() if reader is None else self._read
        self._read_memory = None if isinstance(quick, str) else quick
        self._interval_s = self._began_with_s = interval_s
        self._clock = clock or RunClock()
        self._phase = "before"
        self._broke = ""
        self._kept = _Kept()
        self._last: dict[int, _Last] = {}
        self._stirred = 0.0  # until when memory is looked at quickly, by the monotonic clock
        self._cost_s = 0.0  # processor time of the last look
        self._stopping = False
        self._wake = threading.Event()  # the phase changed, or the end has come
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gpu-telemetry", daemon=True)

    def __enter__(self) -> Telemetry:
        if self._read is not None:
            self._sample(mark=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._read is not None:
            self._sample(mark=True)

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        """In the order of time."""
        with self._lock:
            kept = [sample for moment in self._kept.moments for sample in moment.samples]
        return tuple(sorted(kept, key=lambda sample: sample.t_s))

    @property
    def words(self) -> str:
        """For the record: how was sampled, or why not."""
        if self.unavailable:
            return self.unavailable
        thinned = "" if self._interval_s == self._began_with_s else f", thinned to every {self._interval_s:g} s"
        if self._read_memory is None:
            return f"NVML every {self._began_with_s:g} s{thinned}, all GPUs{self._broke}"
        cut = "" if self._kept.changes < _MOST_CHANGES else f" (cut after {_MOST_CHANGES:,} of them)"
        return (
            f"NVML every {self._began_with_s:g} s{thinned}, all GPUs{self._broke}; "
            f"while starting memory every 1 to 10 ms, changes only{cut}"
        )

    @property
    def watched(self) -> bool:
        """Every level that memory had while the server started was seen."""
        return self._read_memory is not None and not self._broke and self._kept.changes < _MOST_CHANGES

    def phase(self, name: str) -> None:
        """From now on samples belong to phase `name`."""
        self._phase = name
        if self._read is not None and self._thread.is_alive():
            self._sample(mark=True)
        self._wake.set()

    def stir(self) -> None:
        """Something happened (a line was logged): memory is looked at as often as possible for a second."""
        self._stirred = time.monotonic() + _STIR_S

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        due = time.monotonic() + self._interval_s
        while True:
            left_s = max(0.0, due - time.monotonic())
            watching = self._phase == START and self._read_memory is not None and self._read is not None
            if self._wake.wait(min(left_s, self._pause_s()) if watching else left_s):
                self._wake.clear()
            if self._stopping:
                return
            if time.monotonic() >= due:
                self._sample()
                due = time.monotonic() + self._interval_s
            elif watching:
                self._look()

    def _pause_s(self) -> float:
        usual_s = _QUICK_S if time.monotonic() < self._stirred else _REST_S
        return max(usual_s, min(self._cost_s / _SHARE, _LONGEST_PAUSE_S))

    def _look(self) -> None:
        """Memory alone; kept is what changed, with the last sample before it."""
        if self._read_memory is None or self._kept.changes >= _MOST_CHANGES:
            return
        # Processor time: the driver holds a reader up for 0.1 s and more while it sets up a GPU for a process, which
        # costs nothing and is no reason to look away afterwards, when it matters.
        began = time.thread_time()
        try:
            readings = self._read_memory()
        except Exception:  # the next whole sample meets the same, and says it
            return
        self._cost_s = time.thread_time() - began
        t_s = self._clock.seconds()
        with self._lock:
            for reading in readings:
                memory = (reading.used_bytes, reading.free_bytes, reading.total_bytes)
                last = self._last.get(reading.gpu)
                if last is not None and last.memory == memory:
                    last.t_s, last.phase, last.kept = t_s, self._phase, False
                    continue
                self._keep_before(reading.gpu)
                self._keep(_Moment([_row(reading, t_s, self._phase)], whole=False))
                self._last[reading.gpu] = _Last(memory, t_s, self._phase, kept=True)
                self.stir()

    def _sample(self, *, mark: bool = False) -> None:
        if self._read is None:
            return
        try:
            readings = self._read()
        except Exception as error:  # a lost GPU must not end the run; the record says that samples stop here
            self._read, self._broke = None, f"; sampling stopped after {self._clock.seconds():g} s: {error}"
            return
        t_s = self._clock.seconds()
        with self._lock:
            for reading in readings:
                memory = (reading.used_bytes, reading.free_bytes, reading.total_bytes)
                if mark or (reading.gpu in self._last and self._last[reading.gpu].memory != memory):
                    self._keep_before(reading.gpu)
                self._last[reading.gpu] = _Last(memory, t_s, self._phase, kept=True)
            self._keep(_Moment([_row(reading, t_s, self._phase) for reading in readings], mark=mark))
            if self._kept.whole >= _MOST_SAMPLES:
                self._thin()

    def _keep_before(self, gpu: int) -> None:
        """The last sample before a change, when it was not kept: until then memory stood still."""
        last = self._last.get(gpu)
        if last is not None and not last.kept:
            self._keep(_Moment([_row(MemoryReading(gpu, *last.memory), last.t_s, last.phase)], whole=False))

    def _keep(self, moment: _Moment) -> None:
        self._kept.moments.append(moment)
        if moment.whole:
            self._kept.whole += len(moment.samples)
        else:
            self._kept.changes += 1

    def _thin(self) -> None:
        """A run of many hours: every second whole sample goes, marks and changes stay."""
        kept, number = [], 0
        for moment in self._kept.moments:
            if moment.whole and not moment.mark:
                number += 1
                if number % 2:
                    continue
            kept.append(moment)
        self._kept.moments = kept
        self._kept.whole = sum(len(moment.samples) for moment in kept if moment.whole)
        self._interval_s *= 2


def _row(reading: MemoryReading, t_s: float, phase: str) -> GpuSample:
    whole = reading if isinstance(reading, GpuReading) else None
    return GpuSample(
        t_s=t_s,
        phase=phase,
        gpu=reading.gpu,
        used_bytes=reading.used_bytes,
        free_bytes=reading.free_bytes,
        total_bytes=reading.total_bytes,
        utilization_pct=whole.utilization_pct if whole else None,
        power_w=whole.power_w if whole else None,
        sm_clock_mhz=whole.sm_clock_mhz if whole else None,
        memory_clock_mhz=whole.memory_clock_mhz if whole else None,
        temperature_c=whole.temperature_c if whole else None,
    )
