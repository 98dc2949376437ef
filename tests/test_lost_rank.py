# ruff: noqa: E501  (lines of logs)
"""The reason of a record names the rank that was lost, where its log tells: the first words are those of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_path
from specbench.engines.sglang.logs import read
from specbench.lifecycle.ending import classify
from specbench.reading.lost_rank import lost_rank

HERE = Path(__file__).parent
PROVOKED, LIVE = HERE / "logs" / "sglang" / "provoked", HERE / "live" / "records"
#: Of a server on the CPU whose fourth rank was killed (SGLang 0.5.23, torch 2.13).
RESET = "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:63725: Connection reset by peer."


def reason(log: Path | list[str], code: int = -9) -> str:
    found = read(log)
    ready = found.ready_line is not None
    end = classify(ready=ready, ended_by_itself=True, exit_code=code, failures=found.failures, lost=lost_rank(found))
    return end.reason


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "0.5.12-tp2-rank-killed",
            "ended while serving (signal 9): TP1 was ended by SIGKILL: Subprocess scheduler_1 (pid=1794) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        ),
        (
            "0.5.16-tp2-rank-killed",
            "ended while serving (signal 9): TP1 alone says no error, and ended first or hung: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:30610",
        ),
        (
            "0.5.16-tp2-rank-killed-loading",
            "ended while starting (signal 9): waited in vain for TP1, which is loading weights: ValueError: TP rank 0 could finish the model loading, but",
        ),
        (
            "0.5.16-tp2-rank-late",
            "ended while starting (signal 9): waited in vain for TP1, which has not begun to communicate: DistStoreError: Timed out after 26 seconds waiting for clients. 1/2 clients joined.",
        ),
    ],
)
def test_two_ranks_of_which_one_was_lost(name: str, words: str) -> None:
    assert reason(PROVOKED / f"{name}.log").startswith(words)


def test_eight_ranks_of_which_one_was_killed() -> None:
    """A real server on the CPU whose sixth rank got SIGKILL during a request: seven say that a connection broke."""
    log = PROVOKED / "0.5.23-tp8-rank-killed.log.gz"
    (fatal,) = [finding for finding in of_path(log).findings if finding.severity == "fatal"]
    assert fatal.id == "communication-failed"
    assert fatal.cause.startswith("TP5 ended while the others were at work, or hangs: RuntimeError: [/__w/pytorch/")
    assert reason(log).startswith(
        "ended while serving (signal 9): TP5 alone says no error, and ended first or hung: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:60588: Connection reset by peer."
    )


@pytest.mark.parametrize(
    "name",
    [
        "0.5.16-tp2-card-full",  # a rank's own error: the other lost it
        "0.5.16-tp2-card-missing",
        "0.5.16-tp2-card-taken",
        "0.5.16-tp2-rank-stopped",  # the watchdog of one: the other may be what it waited for
        "0.5.16-tp2-rank-hangs",
        "0.5.16-tp2-card-shared",
    ],
)
def test_no_rank_is_named_where_none_was_lost_or_it_could_be_another(name: str) -> None:
    assert lost_rank(read(PROVOKED / f"{name}.log")) is None


@pytest.mark.parametrize("folder", sorted(path for path in LIVE.iterdir() if path.is_dir()), ids=lambda path: path.name)
def test_a_server_that_served_lost_none(folder: Path) -> None:
    assert lost_rank(read(folder / "server.log.gz")) is None


def rank_lines(text: str, ranks: range = range(8)) -> list[str]:
    return [f"[2026-11-29 23:49:05 TP{rank}] {text}" for rank in ranks]


LOADING = rank_lines("Load weight begin. avail mem=139.13 GB")
SERVING = [*LOADING, "[2026-11-29 23:49:08] The server is fired up and ready to roll!"]


def raised(rank: int) -> list[str]:
    return [
        f"[2026-11-29 23:49:09 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/srv/sglang/srt/managers/scheduler.py", line 1210, in event_loop_overlap',
        RESET,
        "",
    ]


def died(number: int, code: int) -> str:
    return f"[2026-11-29 23:49:09] Subprocess scheduler_{number} (pid=4711) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([*SERVING, died(5, -9)], "TP5 was ended by SIGKILL"),
        ([*SERVING, died(0, -11)], "TP0 was ended by SIGSEGV"),
        ([*SERVING, died(7, -64)], "TP7 was ended by SIGRTMAX"),
        ([*SERVING, died(7, -99)], "TP7 was ended by signal 99"),
        ([*SERVING, died(3, 1)], "TP3 ended with exit code 1"),
        ([*SERVING, died(9, -9)], "rank 9 was ended by SIGKILL"),  # no TP9 is in this log
        (
            [*LOADING, "RuntimeError: Rank 3 scheduler died during initialization (exit code: -9)."],
            "TP3 was ended by SIGKILL",
        ),
        (
            [*SERVING, *(line for rank in (0, 1, 2, 3, 4, 6, 7) for line in raised(rank))],
            "TP5 alone says no error, and ended first or hung",
        ),
        (
            [*SERVING, *(line for rank in (0, 1, 2, 3, 4, 7) for line in raised(rank))],
            "TP5, TP6 alone say no error, and ended first or hung",
        ),
        ([*SERVING, *(line for rank in (0, 1, 2, 3) for line in raised(rank))], None),  # half of them are silent
        ([*SERVING, *(line for rank in range(8) for line in raised(rank))], None),
    ],
)
def test_one_of_eight(lines: list[str], named: str | None) -> None:
    assert lost_rank(read(lines)) == named
    if named is not None:
        assert f" (exit code 137): {named}: " in reason(lines, 137)


def test_a_server_of_one_rank_has_no_rank_to_name() -> None:
    one = ["[2026-11-29 23:49:05] Load weight begin. avail mem=139.13 GB", died(0, -9)]
    assert lost_rank(read(one)) is None
    assert reason(one).startswith("ended while starting (signal 9): Subprocess scheduler_0 (pid=4711) crashed")
