"""Servers that hang: which rank stood still, where the stacks are, and whose fault it may be."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.maintainer import report
from specbench.show.findings import findings as shown
from specbench.studies.opened import opened

PROVOKED = Path(__file__).parent / "logs" / "sglang" / "provoked"
STOPPED = (PROVOKED / "0.5.16-tp2-rank-stopped.log").read_bytes()

GET = (
    "To get them: pip install py-spy in the server's environment; in a container it also needs --cap-add SYS_PTRACE. "
    "Most often it is a collective operation"
)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            STOPPED,
            "What hung is not known: there are no stacks, for py-spy failed (/bin/sh: 1: py-spy: not found). " + GET,
        ),
        (
            STOPPED.replace(
                b"Pyspy failed (py-spy dump --native --pid 951). Error: /bin/sh: 1: py-spy: not found",
                b'Pyspy dump for PID 951 (py-spy dump --native --pid 951):\nThread 951 (idle): "MainThread"',
                1,
            ),
            "What hung stands in the stacks that are dumped above this line (py-spy). Most often",
        ),
        (
            b"\n".join(line for line in STOPPED.split(b"\n") if b"yspy" not in line),
            "What hung would stand in stacks above this line, and there are none in this log. " + GET,
        ),
    ],
)
def test_what_hung_stands_in_stacks_where_there_are_any(log: bytes, words: str) -> None:
    finding = of_log(log.splitlines(keepends=True)).findings[0]
    assert finding.id == "watchdog-timeout"
    assert words in finding.cause


def test_the_rank_that_is_silent_is_named() -> None:
    """TP1 was stopped (SIGSTOP); a thread of a stopped process says nothing."""
    finding = of_log(STOPPED.splitlines(keepends=True)).findings[0]
    assert finding.cause.endswith(
        " TP1 does not say so: the others may wait for it (it was stopped, or its card is stuck), or it had not waited "
        "as long yet. Of 2 ranks TP0 says so."
    )
    said = b"[2026-11-30 09:41:49 TP0] Scheduler watchdog timeout (self.watchdog_timeout=12.0, self.soft=False)\n"
    both = STOPPED.replace(said, said + said.replace(b"TP0", b"TP1"), 1)
    cause = of_log(both.splitlines(keepends=True)).findings[0].cause
    assert "does not say so" not in cause and cause.endswith(" All 2 ranks say so.")


def test_a_hang_is_not_surely_the_engines() -> None:
    told = report(of_log(STOPPED.splitlines(keepends=True)))
    assert told.concerns == "perhaps engine"
    assert told.why.startswith(
        "watchdog-timeout: perhaps a fault of the engine. A process that was stopped (kill -STOP"
    )


LAST = "[2026-11-30 09:49:54 TP1] Ignore import error when loading sglang.srt.multimodal.processors.mimo_v2"


def test_the_last_line_of_a_rank_is_labelled_wherever_it_is_shown() -> None:
    """It is no cause: an import that was ignored is merely the last that the rank said."""
    found = of_path(PROVOKED / "0.5.16-tp2-rank-late.log")
    first, second, _ = found.findings[0].evidence
    assert (first.line, first.about, second.about) == (21, "the last line of TP1", "the last line of TP0")
    assert first.text[26:].startswith(LAST[26:])
    text = Console(width=200, record=True, file=io.StringIO())
    render(found, text)
    printed = text.export_text()
    assert "line 21 (the last line of TP1) [TP1] Ignore import error" in printed
    evidence = to_document(found)["findings"][0]["evidence"]
    assert [line.get("about") for line in evidence] == ["the last line of TP1", "the last line of TP0", None]
    assert "(the last line of TP1) [" in shown(opened(PROVOKED / "0.5.16-tp2-rank-late.log")).html
    assert "line 21: (the last line of TP1) [" in report(found).text
