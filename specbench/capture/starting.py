"""What a server is doing while it starts, by its log as it grows; afterwards how long each part took.

In: lines with the time at which they were seen. Out: a word for the progress display, the parts of the start in seconds
and the marks of its lines. Parts come back (the draft's weights after the target's pools): their seconds are summed.
"""

from __future__ import annotations

from ..engines.sglang.log_clock import MARKS
from ..engines.sglang.stages import IMPORTING, begun


class Starting:
    """Fed by a thread, read by another: every field is replaced, none is changed in place."""

    def __init__(self, began_s: float) -> None:
        """`began_s`: when the server's process was started, on the clock of the lines."""
        self._began_s = began_s
        self._begins: tuple[tuple[str, float], ...] = ((IMPORTING, began_s),)
        self._marks: dict[str, float] = {}
        self._ready = False

    def line(self, line: bytes, t_s: float) -> None:
        """A new line of the log."""
        if self._ready:
            return
        for name, text in MARKS.items():
            if name not in self._marks and text in line:
                self._marks = {**self._marks, name: round(t_s - self._began_s, 3)}
        self._ready = "ready" in self._marks
        stage = begun(line)
        if stage is not None and stage != self._begins[-1][0]:
            self._begins = (*self._begins, (stage, t_s))

    def now(self, t_s: float) -> str:
        """'loading weights (3 s)'."""
        stage, since_s = self._begins[-1]
        return f"{stage} ({max(0.0, t_s - since_s):.0f} s)"

    @property
    def marks(self) -> dict[str, float]:
        """mark -> seconds from the start of the process to the line that reached it first."""
        return dict(self._marks)

    def stages(self, ready_s: float | None) -> dict[str, float]:
        """part -> its seconds, up to `ready_s` after the start of the process. Of a server that never was ready the
        last part has no end and is left out."""
        ends = [t_s for _, t_s in self._begins[1:]]
        if ready_s is not None:
            ends.append(self._began_s + ready_s)
        took: dict[str, float] = {}
        for (stage, since_s), end_s in zip(self._begins, ends, strict=False):
            took[stage] = round(took.get(stage, 0.0) + max(0.0, end_s - since_s), 3)
        return took
