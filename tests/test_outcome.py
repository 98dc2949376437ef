"""One word per run, and the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from specbench.diagnose.diagnosis import of_log, of_record
from specbench.reading.outcome import in_words, outcome_of, some_answered, tally
from specbench.records.record import RunRecord
from specbench.records.types import RequestTrace
from specbench.terms import OUTCOMES, Outcome, Status

RECORDS = Path(__file__).parent / "records"


def test_every_outcome_has_its_meaning() -> None:
    assert tuple(OUTCOMES) == get_args(Outcome)


@pytest.mark.parametrize(
    ("status", "asked", "resolved", "sent", "answered", "expected"),
    [
        ("served", 8, 8, 10, 10, "served"),
        ("served", None, 43, 10, 9, "served"),
        ("served", 8, 7, 10, 10, "capped"),
        ("served", 8, 7, 0, 0, "capped"),  # nothing needs to be sent to see it
        ("served", 8, 7, 2, 0, "unanswered"),  # a cap is not what matters where nothing came back
        ("served", 8, 8, 0, 0, "started"),
        ("served", 8, 8, None, None, "started"),  # a bare log without a decode line
        ("served", 8, 8, None, 3, "served"),  # a bare log with decode lines
        ("refused", 8, None, 0, 0, "refused"),
        ("crashed", 4, 4, 4, 0, "crashed"),
        ("timed_out", 4, None, 0, 0, "timed_out"),
        (None, 4, None, None, None, "unknown"),
    ],
)
def test_the_outcome(
    status: Status | None,
    asked: int | None,
    resolved: int | None,
    sent: int | None,
    answered: int | None,
    expected: Outcome,
) -> None:
    assert outcome_of(status, asked=asked, resolved=resolved, sent=sent, answered=answered) == expected


def trace(phase: str, error: str | None = None) -> RequestTrace:
    return RequestTrace(step="s", phase=phase, index=0, input_tokens=8, max_new_tokens=8, sent_s=0.0, error=error)


def test_a_warm_up_is_no_answer_to_what_was_asked() -> None:
    assert tally([trace("warmup"), trace("measured", "HTTP 400"), trace("measured")]) == (2, 1)
    assert tally([trace("warmup")]) == (1, 1)
    assert tally([]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "outcome", "served"),
    [
        ("nospec_r8", "served", 8),
        ("dflash_r8", "capped", 1),
        ("0512_dflash_r4_exact", "started", None),  # load only
        ("0512_dflash_r8", "refused", None),
        ("nextn_r4_full", "crashed", 0),  # every request failed: none was served
    ],
)
def test_records(name: str, outcome: Outcome, served: int | None) -> None:
    found = of_record(RunRecord.open(RECORDS / name))
    assert (found.outcome, found.served) == (outcome, served)


def test_the_log_alone_says_the_same() -> None:
    assert of_log(RECORDS / "dflash_r8" / "server.log").outcome == "capped"
    assert of_log(RECORDS / "nospec_r8" / "server.log").outcome == "served"
    assert of_log(RECORDS / "0512_dflash_r4_exact" / "server.log").outcome == "started"


@pytest.mark.parametrize(
    ("sent", "answered", "words"),
    [
        (3, 1, "1 of 3 requests answered"),
        (3, 3, ""),
        (3, 0, ""),  # the outcome says so
        (0, 0, ""),
        (None, None, ""),
    ],
)
def test_how_many_were_answered(sent: int | None, answered: int | None, words: str) -> None:
    assert some_answered(sent, answered) == words


def test_words() -> None:
    assert in_words("timed_out") == "timed out"


def test_a_queue_of_one_is_told_in_the_singular() -> None:
    log = (RECORDS / "dflash_r8" / "server.log").read_bytes()
    one = re.sub(rb"#queue-req: [1-9]\d*", b"#queue-req: 1", log)
    queue = next(
        found for found in of_log(one.splitlines(keepends=True)).findings if found.id == "slots-idle-while-queueing"
    )
    assert queue.cause.startswith("Up to 1 request waits while 1 runs, 4 of 8 state slots are idle and")
