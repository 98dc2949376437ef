"""Servers that hang: which rank stood still, where the stacks are, and whose fault it may be."""

from __future__ import annotations

import io
import re
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


# ── a log that ends with requests under way ──────────────────────────────────────────────────────────────────────────

HANGS = (PROVOKED / "0.5.16-tp2-rank-hangs.log").read_bytes().splitlines(keepends=True)


def hangs(lines: list[bytes]) -> list[str]:
    return [one.cause for one in of_log(lines).findings if one.id == "perhaps-hangs"]


def test_a_log_that_ends_with_requests_under_way_may_be_of_a_server_that_hangs() -> None:
    """One request ran, two more began, and no line follows: TP1 was stopped, 300 s before a watchdog would say so."""
    found = of_log(HANGS)
    finding = found.findings[0]
    assert (finding.id, finding.severity) == ("perhaps-hangs", "notice")
    assert finding.cause.startswith(
        "The log ends with 3 requests that began, the last at 2026-11-30 09:42:51, and no line shows that one went on: "
        "the server hangs, or the log was cut there. Of 2 ranks one that stands still makes the others wait"
    )
    assert "ends a step after 300 s (--watchdog-timeout), and then dumps these stacks itself." in finding.cause
    assert [(line.line, line.about) for line in finding.evidence] == [
        (64, "the last line of TP1"),
        (67, "the last line of TP0"),
    ]
    told = report(found)
    assert told.why == "There is nothing to report yet: whether the server hangs is not told by this log."


OK = b'[2026-11-30 09:42:51] INFO:     127.0.0.1:40000 - "POST /generate HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize(
    "lines",
    [
        HANGS[:65],  # nothing was sent
        HANGS[62:],  # an excerpt: what stands before it is not known
        [*HANGS, OK],  # whatever it is, the log goes on
        [re.sub(rb"#new-token: \d+", b"#new-token: 1", line) for line in HANGS],  # its own health checks
        [line.replace(b"#running-req: 1", b"#running-req: 0") for line in HANGS],  # the first was gone: it was answered
    ],
)  # fmt: skip
def test_a_log_that_tells_more_or_less_is_no_sign_of_it(lines: list[bytes]) -> None:
    assert hangs(lines) == []


def test_a_server_that_decoded_and_whose_log_was_copied_meanwhile_is_quiet() -> None:
    lines = (PROVOKED.parents[2] / "records" / "nospec_r8" / "server.log").read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b"Prefill batch" in line)
    assert hangs(lines[: last + 1]) == []
