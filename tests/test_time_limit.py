"""A run that must end at a certain time: its server ends, its record stays, and says that it is not done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from specbench.configuration.config import RunConfig
from specbench.errors import LaunchError
from specbench.lifecycle import time_limit
from specbench.params import load_run
from specbench.running import run as running
from specbench.running import sender
from specbench.running.run import run
from specbench.show.run import headline
from specbench.studies.study import study

ROOT = Path(__file__).parent.parent


def recording(*overrides: str) -> RunConfig:
    return load_run(ROOT / "params" / "recordings" / "dflash_r8.yaml", overrides)


def test_a_time_that_has_come_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(time_limit.VARIABLE, repr(time.monotonic()))
    with pytest.raises(LaunchError, match="the deadline of the campaign came before a server was started"):
        run(recording("engine.replay_speed=1.0"), out=tmp_path)
    assert not (tmp_path / "record").exists()


def test_a_time_that_comes_ends_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is time before the launch, and none any more when the server is waited for."""
    monkeypatch.setattr(running, "left_s", lambda _: 0.0)
    record = run(recording("engine.replay_speed=1.0"), out=tmp_path)
    status = record.status
    assert (status.status, status.cut_short, status.exit_code, status.ready_s) == ("timed_out", "deadline", None, None)
    assert status.reason.startswith("ended by the deadline of its campaign ")
    assert status.reason.endswith(" s after its start, while the server was starting; it is to run again")
    assert record.requests() == ()


def test_a_time_that_comes_ends_the_requests_and_keeps_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measured step has ended when the time comes: its requests stay, the next step's are given up."""
    seen: list[str] = []
    for module in (running, sender):
        monkeypatch.setattr(module, "left_s", lambda _: 0.0 if "conc8-in1024" in seen else float("inf"))
    record = run(
        recording("engine.replay_speed=10.0", "workload.requests=[1, 400]"),
        out=tmp_path,
        progress=lambda phase, done, total: seen.append(phase),
    )
    status = record.status
    assert (status.status, status.cut_short, status.exit_code) == ("timed_out", "deadline", None)
    assert status.ready_s is not None
    assert "conc1-in1024" in status.phases and "conc8-in1024" not in status.phases
    assert {trace.step for trace in record.requests()} >= {"warmup", "conc1-in1024"}
    assert sum(trace.step == "conc8-in1024" for trace in record.requests()) < 400
    assert "while requests were sent (" in status.reason
    found = study(tmp_path)
    assert found.outcome == "timed_out"
    assert "ended by the deadline of its campaign before it was done." in headline(found).text


def test_a_run_that_is_done_in_time_is_not_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(time_limit.VARIABLE, repr(time.monotonic() + 3600))
    record = run(recording("engine.replay_speed=instant"), out=tmp_path)
    assert (record.status.status, record.status.cut_short) == ("served", None)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-inf", "1e400"])
def test_a_time_that_is_none_limits_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(time_limit.VARIABLE, text)
    assert time_limit.until_s() is None
    assert time_limit.left_s(None) == float("inf")
    assert time_limit.left_s(time.monotonic() - 1) == 0.0


def test_a_clock_that_is_set_meanwhile_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day jumps by an hour during the run."""
    monkeypatch.setenv(time_limit.VARIABLE, repr(time.monotonic() + 3600))
    real = time.time
    jump_s = [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jump_s[0])

    def progress(phase: str, done: int, total: int) -> None:
        jump_s[0] = 7200.0

    record = run(recording("engine.replay_speed=instant"), out=tmp_path, progress=progress)
    assert record.status.ended_unix_s is not None and record.status.started_unix_s is not None
    assert record.status.ended_unix_s - record.status.started_unix_s > 7000
    assert (record.status.status, record.status.cut_short) == ("served", None)
