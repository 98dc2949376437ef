"""When log lines were seen: a file that another thread writes while the tail looks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from specbench.capture import logtail
from specbench.capture.logtail import LogTail
from specbench.capture.runclock import RunClock


def test_lines_are_numbered_placed_and_stamped_when_they_come(tmp_path: Path) -> None:
    log, clock = tmp_path / "server.log", RunClock()
    seen: list[bytes] = []
    came = threading.Semaphore(0)

    def on_line(line: bytes, t_s: float) -> None:
        seen.append(line)
        came.release()

    with LogTail(log, clock, on_line) as tail:
        wrote_s = [clock.seconds()]
        with log.open("ab", buffering=0) as file:  # the file begins to exist while it is looked for
            file.write(b"first\nsec")
            assert came.acquire(timeout=30)
            wrote_s.append(clock.seconds())
            file.write(b"ond\nthird\n")
            assert came.acquire(timeout=30)
            assert came.acquire(timeout=30)
    assert seen == [b"first\n", b"second\n", b"third\n"]
    first, second, third = tail.arrivals
    assert [(a.line, a.offset) for a in tail.arrivals] == [(1, 0), (2, 6), (3, 13)]
    assert first.t_s >= wrote_s[0]
    assert second.t_s == third.t_s >= wrote_s[1]
    assert all(a.within_s >= 0 for a in tail.arrivals)
    # Nothing is said to have been written before the look that came before: never earlier than for the line before it.
    # (Both may come in one look; times are multiples of 0.0001 s, so only the floats' noise is allowed for.)
    assert second.t_s - second.within_s >= first.t_s - first.within_s - 1e-9


def test_what_is_written_before_the_end_is_still_seen(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with LogTail(log, RunClock()) as tail:
        log.write_bytes(b"a\n" * 5000 + b"no newline")
    assert len(tail.arrivals) == 5000
    assert tail.arrivals[-1].offset == 9998


def test_a_server_without_a_log_has_no_lines(tmp_path: Path) -> None:
    with LogTail(tmp_path / "none.log", RunClock()) as tail:
        pass
    assert tail.arrivals == ()


def test_a_line_without_end_is_not_kept_whole_and_offsets_stay_right(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logtail, "_LONGEST", 10)
    log = tmp_path / "server.log"
    lines: list[bytes] = []
    log.write_bytes(b"x" * 100)
    with LogTail(log, RunClock(), lambda line, _: lines.append(line)) as tail, log.open("ab") as file:
        file.write(b"y\nnext\n")
    assert [a.offset for a in tail.arrivals] in ([0, 102],)
    assert lines[-1] == b"next\n"


def test_a_very_long_log_keeps_the_first_lines(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logtail, "_MOST_LINES", 3)
    log = tmp_path / "server.log"
    log.write_bytes(b"l\n" * 10)
    with LogTail(log, RunClock()) as tail:
        pass
    assert [a.line for a in tail.arrivals] == [1, 2, 3]
    assert tail.words.endswith("the first 3 lines only")


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        ("cut", "the engine's log was cut to 0 bytes while it ran: lines of it are missing"),
        ("moved", "the engine's log was moved or replaced while it ran: lines of it are missing"),
        ("replaced", "the engine's log was moved or replaced while it ran: lines of it are missing"),
        ("grows", None),
    ],
)
def test_a_log_that_does_not_stay_whole_is_told(tmp_path: Path, happens: str, told: str | None) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"first\n")
    came = threading.Semaphore(0)
    with LogTail(log, RunClock(), lambda line, t_s: came.release()) as tail:
        assert came.acquire(timeout=30)
        if happens == "cut":
            os.truncate(log, 0)
        elif happens == "grows":
            with log.open("ab") as file:
                file.write(b"second\n")
        else:
            log.rename(tmp_path / "server.log.1")
            if happens == "replaced":
                log.write_bytes(b"another\n")
    assert tail.replaced == told
