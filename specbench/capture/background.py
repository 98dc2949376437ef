"""A thread that works while a `with` block runs.

In: `_run` of a subclass, which waits on `_stop` and ends when that is set.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Background:
    """Leaving the block sets `_stop` and waits for the thread, whatever the block ends with."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError
