"""What the client itself cost while it measured: CPU seconds, and how late its event loop was.

In: an event loop that receives streams. Out: a ClientLoad. A client that is busy reads the clock late, so its TTFT and
TPOT are its own and no longer the server's; these figures tell. A loop that stands still for a second delays every tick
that was due in it, so each of them counts: one long stop weighs as much as it would have for the chunks that waited.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from array import array
from dataclasses import dataclass

#: Waking up costs 20 µs on a plain host and 150 µs in a sandbox (measured on that of an H200): a hundred of them a
#: second are 0.2 to 1.5 % of a core. Where few chunks come, that is most of what a chunk seems to cost.
TICK_S = 0.01
#: The ticks that one stop of the loop delays are counted up to this many: a suspended machine is not a busy client.
_MOST_MISSED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad:
    """Of the time between start and stop. Lag: how much later than asked the loop ran a timer, a millisecond of
    coarseness of the system's own timers included."""

    wall_s: float
    cpu_s: float  # of the loop's thread: sending, receiving, taking times, and the ticks of this meter
    process_cpu_s: float  # of the whole process, other threads included: they share one interpreter
    chunks: int  # received
    ticks: int
    lag_p50_s: float | None  # None: stopped before the first tick
    lag_p99_s: float | None
    lag_max_s: float | None


class LoadMeter:
    """Measures from `start` to `stop`; both are called in the loop's own thread, while the loop runs."""

    def __init__(self, tick_s: float = TICK_S) -> None:
        self._tick_s = tick_s
        self._lags = array("d")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = time.perf_counter()
        self._began_cpu_s, self._began_process_s = time.thread_time(), time.process_time()
        self._due = self._loop.time() + self._tick_s
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self, chunks: int) -> ClientLoad:
        """`chunks`: how many were received in all since the start."""
        cpu_s, process_s = time.thread_time() - self._began_cpu_s, time.process_time() - self._began_process_s
        if self._timer is not None:
            self._timer.cancel()
        lags = sorted(self._lags)
        return ClientLoad(
            wall_s=time.perf_counter() - self._began,
            cpu_s=cpu_s,
            process_cpu_s=process_s,
            chunks=chunks,
            ticks=len(lags),
            lag_p50_s=_ranked(lags, 0.50),
            lag_p99_s=_ranked(lags, 0.99),
            lag_max_s=lags[-1] if lags else None,
        )

    def _tick(self) -> None:
        now = self._loop.time()
        self._lags.extend(late(self._due, now, self._tick_s))
        self._due = max(self._due, self._due + self._tick_s * math.floor((now - self._due) / self._tick_s))
        self._due += self._tick_s
        self._timer = self._loop.call_at(self._due, self._tick)


def settle() -> None:
    """Before times are taken: leaves all that exists out of later garbage collections, until `gc.unfreeze`.

    A collection over the objects of a process with aiohttp and pydantic stops the loop for 25 ms (measured), and over
    those of a notebook's kernel for longer; it comes when many requests begin at once.
    """
    gc.collect()
    gc.freeze()


def late(due: float, now: float, tick_s: float) -> list[float]:
    """Seconds by which each tick from the one at `due` on is late at `now`; those not due yet are none."""
    missed = min(_MOST_MISSED, max(0, math.floor((now - due) / tick_s)))
    return [max(0.0, now - due - number * tick_s) for number in range(missed + 1)]


def _ranked(values: list[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted values: one that occurred."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None
