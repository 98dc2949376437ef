"""Whether a start has failed although its processes go on: by its log, while it is waited for.

In: the growing log. Out: when there is no more to wait for. An engine that fails mostly ends itself within seconds, and
then its exit code is worth having, so nothing is concluded before the log has been silent for a while after the line
that is fatal. After an error that only looks uncaught the silence is longer: a helper's end need not be the engine's.
"""

from __future__ import annotations

from pathlib import Path

#: Seconds of silence after a fatal line; SGLang ends itself 5 s after its scheduler.
SILENT_S = 12.0
#: After a traceback that nobody caught, with frames of the engine's own code.
UNCAUGHT_SILENT_S = 40.0
#: However much is logged after a fatal line.
LONGEST_S = 60.0
_PIECE_BYTES = 1 << 20


class Hanging:
    """`failed` is asked again and again, with the time by any one clock."""

    def __init__(self, log_path: Path, port: int) -> None:
        self._path, self._port = log_path, port
        self._offset = 0
        self._rest = b""
        self._last_s: float | None = None  # when the last line came that is a sign of life
        self._fatal_s: float | None = None  # when a fatal line came
        self._raised = False  # a traceback is there of which nothing is known yet

    def failed(self, now_s: float) -> bool:
        """Whether it has failed and hangs."""
        self._read(now_s)
        silent_s = 0.0 if self._last_s is None else now_s - self._last_s
        if self._fatal_s is not None:
            return silent_s >= SILENT_S or now_s - self._fatal_s >= LONGEST_S
        if not self._raised or silent_s < UNCAUGHT_SILENT_S:
            return False
        self._raised = False  # until another one comes
        return self._nobody_caught_it()

    def _read(self, now_s: float) -> None:
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                data = log.read(_PIECE_BYTES)
        except OSError:  # not there yet
            return
        if not data:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_PIECE_BYTES:]
        if self._rest:
            self._last_s = now_s  # a progress bar is a line that is not finished for long
        for line in lines:
            self._line(line, now_s)

    def _line(self, line: bytes, now_s: float) -> None:
        from ..engines.sglang.fatal import is_answer_to_us, is_fatal, may_be_fatal

        if is_answer_to_us(line):
            return
        self._last_s = now_s
        if self._fatal_s is None and is_fatal(line, self._port):
            self._fatal_s = now_s
        self._raised = self._raised or may_be_fatal(line)

    def _nobody_caught_it(self) -> bool:
        from ..engines.sglang.logs import read

        return any(failure.ends for failure in read(self._path).failures)
