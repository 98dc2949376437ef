"""When a log line was written, and which few lines tell that a server listens, is ready, or took a request.

Only what a replay needs to pace a log; reading a log's figures is `logs`. Times are seconds of the log's own clock
(no time zone), whole seconds unless the engine ran with SGLANG_LOG_MS.
"""

from __future__ import annotations

import calendar
import re
import time

_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{3}))?[^\]]{0,80}\] ")

#: mark of a start -> text of the line that reached it
MARKS: dict[str, bytes] = {
    "dist_begin": b"Init torch distributed begin",
    "load_begin": b"Load weight begin",
    "load_end": b"Load weight end",
    "mamba_allocated": b"Mamba Cache is allocated",
    "pool_end": b"Memory pool end",
    "scheduler_ready": b"max_total_num_tokens=",
    "ready": b"The server is fired up and ready to roll!",
}


def line_time(line: bytes) -> float | None:
    """Seconds of the log's clock; None: the line has no stamp (it follows the line before)."""
    found = _STAMP.search(line[-4000:] if line.startswith(b"\r") else line[:4000])
    if found is None:
        return None
    seconds = calendar.timegm(time.strptime(found[1].decode(), "%Y-%m-%d %H:%M:%S"))
    return seconds + (int(found[2]) / 1000 if found[2] else 0.0)


def is_listening(line: bytes) -> bool:
    """From this line on the port accepts connections."""
    return b"Uvicorn running on" in line


def is_ready(line: bytes) -> bool:
    """From this line on /health answers 200 (unless the port does not listen yet)."""
    return MARKS["ready"] in line


def is_batch(line: bytes) -> bool:
    """A line about a running batch."""
    return b"Prefill batch, " in line or b"Decode batch, " in line


def is_other_request(line: bytes) -> bool:
    """The access log of anything but a native request; looks at the server's health and metrics do not count."""
    if not (b'HTTP/1.1" ' in line and b"INFO: " in line):
        return False
    return not any(known in line for known in (b'"GET /health', b'"GET /metrics', b'"POST /generate '))


def is_generate_request(line: bytes) -> bool:
    """The access log of a native request. A streaming one is logged when its response begins: in order of arrival."""
    return b'"POST /generate HTTP/1.1" ' in line
