"""Lines after which a start of SGLang comes to nothing, whatever its processes do. Wording of 0.5.6 to 0.5.23.

In: a line as it comes, and the port that the server was told to bind. An error that somebody may have caught is not
among them; for what is raised by nobody's leave the reader of logs is asked (`contract.Failure.ends`).
"""

from __future__ import annotations

#: Said by a process of the engine about itself, or by the one that watches it.
_SAID = (
    b" hit an exception: Traceback",  # Scheduler, DetokenizerManager, DataParallelController, …
    b"Received sigquit from a child process.",
    b"SIGQUIT received. ",
    b"Triggering SIGQUIT for cleanup",
    b" scheduler died during initialization",
)
#: asyncio's words when an HTTP server cannot listen; SGLang 0.5.23 then hangs while it shuts down.
_CANNOT_BIND = b"error while attempting to bind on address ("
_TRACEBACK = b"Traceback (most recent call last)"
_ASKED_FOR_HEALTH = b'"GET /health'


def is_fatal(line: bytes, port: int) -> bool:
    """Other addresses than that of `port` may be tried in turn, and so are not fatal."""
    if _CANNOT_BIND in line:
        address = line.partition(_CANNOT_BIND)[2].partition(b")")[0]  # '127.0.0.1', 30000
        return b"%d" % port in address.replace(b" ", b"").split(b",")
    return any(text in line for text in _SAID)


def may_be_fatal(line: bytes) -> bool:
    """Something was raised; by whom, and whether it was caught, the whole of it tells."""
    return _TRACEBACK in line


def is_answer_to_us(line: bytes) -> bool:
    """The access log of our own question whether it is healthy: not a sign of life of what starts."""
    return _ASKED_FOR_HEALTH in line
