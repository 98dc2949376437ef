"""One clock for everything that is seen of a run: GPU samples, log lines, metrics. Seconds since it was made.

The non-obvious thing: files of a record that are joined by time (a log line and the memory at that moment) must share
an origin; each thread counting from its own start would shift them by milliseconds, which is what is measured.
"""

from __future__ import annotations

import time


class RunClock:
    """Monotonic, with the wall-clock time of its origin."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.unix_s = time.time()

    def seconds(self) -> float:
        """Since the clock was made, to a tenth of a millisecond."""
        return round(time.perf_counter() - self._began, 4)
