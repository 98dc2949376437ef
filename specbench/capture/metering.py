"""/metrics of a ready server over time: a thread that asks, and keeps the figures that changed.

In: a function that gets the text. Out: `MetricSample`s. The non-obvious thing: SGLang answers /metrics in the process
and the event loop that stream the tokens, so asking costs the server a few milliseconds; the thread waits at least
fifty times as long as the answer took, and the record says how long that was.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ..engines.sglang.metrics import figures
from ..records.types import MetricSample
from .background import Background
from .runclock import RunClock

INTERVAL_S = 1.0
#: An answer that takes long is asked for less often.
_REST_PER_ANSWER = 50
#: Answers that may be missing before any came.
_GIVE_UP = 3
#: Changed figures (some 20 a second); after each so many the interval doubles, so that a day of them stays under 1 MB.
_DOUBLE_AFTER = 30_000


class Metering(Background):
    """Asks while its `with` block runs; `phase` names what follows."""

    def __init__(self, ask: Callable[[], str | None], clock: RunClock, interval_s: float = INTERVAL_S) -> None:
        """`ask` gives the text of /metrics, or None when there was no answer."""
        super().__init__("metrics")
        self._ask, self._clock, self._interval_s = ask, clock, interval_s
        self._phase = "ready"
        self._samples: list[MetricSample] = []
        self._known: dict[str, float] = {}
        self._took_s: list[float] = []
        self._missed = 0
        self._next_double = _DOUBLE_AFTER

    @property
    def samples(self) -> tuple[MetricSample, ...]:
        """In the order of time. Ask after the `with` block."""
        return tuple(self._samples)

    @property
    def words(self) -> str:
        """For the record: how often was asked, and what the answers took."""
        if not self._took_s:
            return "/metrics was asked and never answered" if self._missed else "/metrics was not asked"
        middle, longest = statistics.median(self._took_s), max(self._took_s)
        missed = f", {self._missed} times without an answer" if self._missed else ""
        return (
            f"/metrics {len(self._took_s)} times, every {self._interval_s:g} s{missed}; "
            f"an answer took {1000 * middle:.0f} ms, at most {1000 * longest:.0f} ms"
        )

    def phase(self, name: str) -> None:
        """From now on figures belong to phase `name`."""
        self._phase = name

    def _run(self) -> None:
        while True:
            took_s = self._once()
            if self._missed >= _GIVE_UP and not self._took_s:
                return  # this server has none
            if self._stop.wait(max(self._interval_s - took_s, _REST_PER_ANSWER * took_s)):
                return

    def _once(self) -> float:
        began = time.perf_counter()
        text = self._ask()
        took_s = time.perf_counter() - began
        if text is None:
            self._missed += 1
            return took_s
        self._took_s.append(took_s)
        t_s, phase = self._clock.seconds(), self._phase
        for name, value in figures(text).items():
            if self._known.get(name) != value:
                self._known[name] = value
                self._samples.append(MetricSample(t_s=t_s, phase=phase, name=name, value=value))
        if len(self._samples) >= self._next_double:
            self._interval_s *= 2
            self._next_double += _DOUBLE_AFTER
        return took_s
