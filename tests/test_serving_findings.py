"""Findings about servers that run, from recordings, public excerpts and lines worded as the engine words them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.engines.sglang import logs
from specbench.reading.intervals import intervals

RECORDS = Path(__file__).parent / "records"
CASES = Path(__file__).parent / "logs" / "sglang" / "cases"


def findings(lines: str) -> dict[str, Finding]:
    return {finding.id: finding for finding in of_log(lines.encode().splitlines(keepends=True)).findings}


def of(path: Path, finding_id: str) -> list[Finding]:
    return [finding for finding in of_path(path).findings if finding.id == finding_id]


# ── throughput and idle time ─────────────────────────────────────────────────────────────────────────────────────────

EAGLE = (CASES / "eagle3-speedup-below-paper.log").read_text(encoding="utf-8")


def test_the_first_line_after_idle_time_is_named() -> None:
    """(0.39 + 178.86 + 165.41 + 188.68 + 165.59) / 5 = 698.93 / 5 = 139.8; the last four: 698.54 / 4 = 174.6."""
    (finding,) = of(CASES / "eagle3-speedup-below-paper.log", "throughput-spans-idle")
    assert finding.severity == "notice"
    assert finding.cause == (
        "1 of 5 decode lines counts time in which nothing ran (line 2: 0.39 tokens/s with 1 running): the engine "
        "divides by the time since its last decode line. The mean over all 5 lines is 139.8, over the other 4 174.6 "
        "tokens/s. Such a line is no figure of speed; its acceptance length is right."
    )
    assert [line.line for line in finding.evidence] == [2]


def test_a_log_whose_lines_all_follow_idle_time_has_no_speed() -> None:
    """Three decode lines, each after a prefill of an empty server; 8 requests ran, and 172 tokens/s is no peak."""
    path = RECORDS / "h200_no-speculation-8" / "server.log"
    (finding,) = of(path, "throughput-spans-idle")
    assert "3 of 3 decode lines count time" in finding.cause and "No line is without." in finding.cause
    serving = of_path(path).serving
    assert serving is not None and (serving.throughput_max, serving.idle_lines) == (None, 3)


def test_idle_time_that_spoils_no_mean_is_no_notice() -> None:
    """nospec_r4: 142.7 over 26 lines, 160.0 over the 20 without idle time: 11 % more. EAGLE3's first line at 150.00:
    848.54 / 5 = 169.7 against 174.6, 3 %.
    """
    assert of(RECORDS / "nospec_r4" / "server.log", "throughput-spans-idle")
    assert of(RECORDS / "nospec_r4", "throughput-spans-idle") == []  # a record has the clients' own times
    assert "throughput-spans-idle" not in findings(EAGLE.replace(": 0.39,", ": 150.00,"))
    assert "throughput-spans-idle" not in findings("".join(EAGLE.splitlines(keepends=True)[1:]))  # who knows


def test_what_fell_into_an_interval() -> None:
    prefill, first, second, third, fourth, fifth = EAGLE.splitlines(keepends=True)
    busy = prefill.replace("#running-req: 0", "#running-req: 1")
    other = fourth.replace("TP0", "DP1 TP0")  # another rank has intervals of its own
    text = prefill + first + second + other + busy + third + fifth.replace("#running-req: 1", "#running-req: 2")
    log = logs.read(text.encode().splitlines(keepends=True))
    assert intervals(log) == ("spans_idle", "steady", "unknown", "mixed", "mixed")


@pytest.mark.parametrize(
    ("name", "peak", "idle"),
    [("nospec_r8", 487.99, 4), ("h200_dflash-8-full-card", None, 5), ("0512_dflash_r4", 139.43, 5)],
)
def test_the_peak_is_of_a_line_that_counts_no_idle_time(name: str, peak: float | None, idle: int) -> None:
    """h200_dflash-8-full-card: 141.96 tokens/s is the highest, of a line that begins with an empty server."""
    serving = of_path(RECORDS / name).serving
    assert serving is not None and (serving.throughput_max, serving.idle_lines) == (peak, idle)
