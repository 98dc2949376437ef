"""Where a step, a stretch or a retraction lies on the axis of a log; the expected figures are read off its stamps."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.engines.sglang import logs
from specbench.reading.phases import Phase, clock_of, phases
from specbench.studies.study import study

RECORDS = Path(__file__).parent / "records"
PREFILL = (
    "[2026-11-29 {time}] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, full token usage: 0.00, "
    "mamba usage: 0.50, #running-req: {running}, #queue-req: 0, input throughput (token/s): 108.90, cuda graph: False"
)
DECODE = (
    "[2026-11-29 {time}] Decode batch, #running-req: {running}, #full token: 0, full token usage: 0.00, mamba num: 0, "
    "mamba usage: 0.00, accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): 13.79, "
    "#queue-req: 7"
)
RETRACTED = (
    "[2026-11-29 {time}] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
    "#new_token_ratio: 0.5990 -> 0.8990"
)


def found(*lines: str) -> list[tuple[str, str, float, float]]:
    log = logs.read([line.encode() + b"\n" for line in lines], name="log")
    return [(phase.name, phase.kind, phase.begin, phase.end) for phase in phases(log)]


def test_steps_of_a_record_lie_where_its_requests_were_sent() -> None:
    """The first batch line is of 13:03:16, which is the server's own warm-up; conc8 was sent at 13:03:32.97."""
    seen = study(RECORDS / "dflash_r8")
    named = {phase.name: phase for phase in phases(seen.diagnosis.log, seen.requests) if phase.kind == "step"}
    assert list(named) == ["warmup", "warmup2", "seq1", "conc8"]
    assert named["conc8"].begin == pytest.approx(16.97, abs=0.001)
    assert named["conc8"].end == pytest.approx(63.42, abs=0.01)


@pytest.mark.parametrize("hours", [0, 2, -5.75])
def test_the_zone_of_a_log_does_not_matter(hours: float) -> None:
    """A request knows the world's time, a line only that of the machine."""
    seen = study(RECORDS / "dflash_r8")
    moved = [
        request.model_copy(update={"sent_unix_s": (request.sent_unix_s or 0) + 3600 * hours})
        for request in seen.requests
    ]
    (step,) = [phase for phase in phases(seen.diagnosis.log, moved) if phase.name == "conc8"]
    assert step.begin == pytest.approx(16.97, abs=0.001)


def test_requests_of_another_time_are_not_laid_over_the_lines() -> None:
    seen = study(RECORDS / "dflash_r8")
    moved = [request.model_copy(update={"sent_unix_s": (request.sent_unix_s or 0) + 400}) for request in seen.requests]
    assert [phase for phase in phases(seen.diagnosis.log, moved) if phase.kind == "step"] == []


def test_the_start_ends_when_the_server_was_ready() -> None:
    """13:03:08 to 13:03:16 in that log."""
    log = logs.read(RECORDS / "dflash_r8" / "server.log")
    assert phases(log)[0] == Phase(name="start", kind="start", begin=-8.0, end=0.0)


def test_idle_time_is_told_by_a_prefill_that_finds_nothing_running() -> None:
    lines = [
        PREFILL.format(time="10:00:00", running=0),
        DECODE.format(time="10:00:02", running=1),
        PREFILL.format(time="10:01:02", running=0),
        DECODE.format(time="10:01:04", running=1),
        RETRACTED.format(time="10:01:05"),
        DECODE.format(time="10:01:06", running=1),
    ]
    assert found(*lines) == [
        ("serving", "serving", 0.0, 2.0),
        ("idle", "idle", 2.0, 62.0),
        ("serving", "serving", 62.0, 66.0),
        ("retraction", "retraction", 65.0, 65.0),
    ]


def test_a_gap_that_nobody_explains_is_not_called_idle() -> None:
    """Lines every second, then none for 40 s, while a request runs: 40 times the usual distance."""
    lines = [DECODE.format(time=f"10:00:0{second}", running=1) for second in range(5)]
    assert ("no batch line", "idle", 4.0, 44.0) in found(*lines, DECODE.format(time="10:00:44", running=1))


def test_prefills_one_after_the_other_are_a_burst() -> None:
    three = [PREFILL.format(time=f"10:00:0{second}", running=second) for second in range(3)]
    assert ("3 prefill lines", "prefill", 0.0, 2.0) in found(*three, DECODE.format(time="10:00:03", running=3))
    assert not any(kind == "prefill" for _, kind, _, _ in found(*three[:2], DECODE.format(time="10:00:03", running=2)))


def test_lines_without_stamps_lie_at_their_numbers() -> None:
    bare = [
        line.partition("] ")[2]
        for line in (
            PREFILL.format(time="10:00:00", running=0),
            DECODE.format(time="10:00:02", running=1),
            DECODE.format(time="10:00:03", running=1),
        )
    ]
    log = logs.read([line.encode() + b"\n" for line in bare], name="log")
    assert clock_of(log).unit == "line"
    assert found(*bare) == [("serving", "serving", 1.0, 3.0)]
