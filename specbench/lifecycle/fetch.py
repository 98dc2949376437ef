"""One GET with bounds, for readiness and for what an engine tells of itself: time and size have an end, whatever it is
that answers. In: an address. Out: a body, or why there is none; never an exception.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

#: More than any engine says of itself: /metrics of a large deployment is under 1 MB.
MAX_BYTES = 16 * 2**20
_PIECE_BYTES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a GET gave. Neither status nor problem: the server did not answer."""

    status: int | None = None
    body: bytes | None = None  # of an answer with status 200
    problem: str | None = None  # why an answer that began was not taken
    why: str | None = None  # no answer: what the connection said


def get(
    host: str,
    port: int,
    path: str,
    *,
    timeout_s: float,
    max_bytes: int = MAX_BYTES,
    tls: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Fetched:
    """GET `path`: at most `max_bytes` of a body, at most `timeout_s` for all. `tls`: https, the certificate checked."""
    began = time.monotonic()
    connection = _connection(host, port, timeout_s, tls)
    try:
        connection.connect()
        with _cut_off(connection.sock, timeout_s - (time.monotonic() - began)):
            connection.request("GET", path, headers=dict(headers or {}))
            response = connection.getresponse()
            if response.status != 200 or max_bytes == 0:
                return Fetched(status=response.status)
            body = bytearray()
            while piece := response.read(_PIECE_BYTES):
                body += piece
                if len(body) > max_bytes:
                    return Fetched(status=200, problem=f"more than {max_bytes:,} bytes")
        if time.monotonic() - began >= timeout_s:
            return Fetched(status=200, problem=f"no end within {timeout_s:.0f} s")
        return Fetched(status=200, body=bytes(body))
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = time.monotonic() - began >= timeout_s
        return Fetched(problem=f"no answer within {timeout_s:.0f} s" if late else None, why=_why(error))
    finally:
        connection.close()


def _connection(host: str, port: int, timeout_s: float, tls: bool) -> http.client.HTTPConnection:
    if not tls:
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())


def _why(error: Exception) -> str:
    """In a few words, without what was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be verified ({error.verify_message})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__


@contextmanager
def _cut_off(connection: socket.socket, after_s: float) -> Iterator[None]:
    """Shuts a connection down when its time is up: a timeout of the socket alone begins anew with every byte."""

    def cut() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, after_s), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
