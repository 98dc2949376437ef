"""A GET with an end, against servers that have none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from specbench.lifecycle import fetch

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Answers one connection with `answer`, and yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def forever(piece: bytes, pause_s: float, *, head: bytes = HEAD) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(pause_s)

    return answer


def test_a_body_comes_as_it_is() -> None:
    with server(lambda connection: connection.sendall(HEAD + b"\xff a body")) as port:
        got = fetch.get("127.0.0.1", port, "/x", timeout_s=5)
    assert (got.status, got.body, got.problem) == (200, b"\xff a body", None)


def test_a_body_without_an_end_is_not_taken() -> None:
    with server(forever(b"a" * 65536, 0)) as port:
        got = fetch.get("127.0.0.1", port, "/x", timeout_s=20, max_bytes=1_000_000)
    assert (got.body, got.problem) == (None, "more than 1,000,000 bytes")


def test_a_body_that_drips_ends_with_the_time() -> None:
    """Every byte comes within the socket's own time-out."""
    began = time.monotonic()
    with server(forever(b"a", 0.05)) as port:
        got = fetch.get("127.0.0.1", port, "/x", timeout_s=1)
        assert time.monotonic() - began < 60
    assert got.body is None
    assert got.problem in ("no end within 1 s", "no answer within 1 s")


def test_a_head_that_drips_ends_with_the_time() -> None:
    began = time.monotonic()
    with server(forever(b"X: y\r\n", 0.02, head=b"HTTP/1.1 200 OK\r\n")) as port:
        got = fetch.get("127.0.0.1", port, "/x", timeout_s=1)
        assert time.monotonic() - began < 60
    assert got.body is None


def test_nobody_and_nonsense_are_no_answer() -> None:
    with server(lambda connection: connection.sendall(b"\x00\xff garbage\r\n\r\n")) as port:
        assert fetch.get("127.0.0.1", port, "/x", timeout_s=60) == fetch.Fetched(why="BadStatusLine")
    assert fetch.get("127.0.0.1", port, "/x", timeout_s=60) == fetch.Fetched(why="connection refused")
