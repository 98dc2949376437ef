"""How long specbench itself takes for a configuration and for a page, beside engines and requests.

In: what runs and pages of the same folder took. Out: seconds to reckon with. Before anything was seen these are those
of `data/durations.yaml`; afterwards the slowest of the last few, since the next one meets the same machine under the
same load, and a deadline is to be kept. A page is a notebook as a run is: where runs take long, pages do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

_LAST = 4
#: A page, with its rendering / specbench's own time of the run before it (12 to 17 s / 3 to 7 s on a loaded machine of
#: two cores; 4.7 s / 3.0 s on an idle one).
_PAGE_PER_RUN = 2.0
#: A page as a whole / its notebook's own duration.
_RENDERED = 1.25
#: The front page evaluates all runs and draws them: it takes as long as so many others.
_FRONT_PAGES = 2


class OwnTime:
    """Learns from every run and page."""

    def __init__(self, durations: Mapping[str, Mapping[str, float]]) -> None:
        self._durations = durations
        self._runs: dict[bool, deque[float]] = {True: deque(maxlen=_LAST), False: deque(maxlen=_LAST)}
        self._pages: deque[float] = deque(maxlen=_LAST)

    def saw_run(self, beside_s: float, *, is_replay: bool) -> None:
        """What a run took that was neither its engine's start nor its requests."""
        self._runs[is_replay].append(max(0.0, beside_s))
        if is_replay:  # of a real engine its end is part of it
            self._pages.append(_PAGE_PER_RUN * beside_s)

    def saw_page(self, notebook_s: float) -> None:
        self._pages.append(_RENDERED * notebook_s)

    def beside_s(self, *, is_replay: bool) -> float:
        """Of the next run: its notebook, what the server is asked, the server's end."""
        seen = self._runs[is_replay]
        return max(seen) if seen else float(self._durations["replay_beside_s" if is_replay else "beside_s"]["seconds"])

    @property
    def page_s(self) -> float:
        return max(self._pages) if self._pages else float(self._durations["page_s"]["seconds"])

    def pages_s(self, runs: int, jobs: int) -> float:
        """The pages of so many runs and the front page, written `jobs` at a time; 0 runs: there is nothing to write."""
        rounds = max(_FRONT_PAGES, math.ceil((runs + _FRONT_PAGES) / max(1, jobs)))
        return rounds * self.page_s if runs else 0.0
