"""How a run ended: the rule on hand-made cases, and on every shipped record."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.engines.contract import Failure
from specbench.lifecycle.ending import classify
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"

REFUSED = {
    "0512_dflash_r16",
    "0512_dflash_r8",
    "0512_dflash_r8_exact",
    "0512_dflash_r8_nograph",
    "h200_story-8",
    "nemo_nano_r32",
    "oom_r8",
    "var_nobuffer_r4_badargs",
    "var_noradix_r8",
}
CRASHED = {
    "h200-tp2_nextn-8",
    "h200-tp2_nextn-8-full-card",
    "h200_nextn-4-full-card",
    "nextn_r4_full",
    "nextn_r4_full_nodeepgemm",
    "tp8-quarters_nextn-8",
}


def failure(kind: str, phase: str = "pools", text: str = "no room") -> Failure:
    return Failure(kind=kind, phase=phase, exception="RuntimeError", text=text, rank="", line=7)


@pytest.mark.parametrize(
    ("ready", "by_itself", "code", "failures", "status"),
    [
        (True, False, None, [], "served"),
        (True, False, None, [failure("runtime_error", "serving")], "served"),
        (True, True, 1, [failure("runtime_error", "serving")], "crashed"),
        (True, True, -9, [], "crashed"),
        (False, True, -9, [failure("state_pool_too_small")], "refused"),
        (False, True, -9, [failure("cuda_oom", "graphs")], "refused"),
        (False, True, 1, [failure("some_assertion", "arguments")], "refused"),
        (False, True, 1, [failure("missing_module", "graphs")], "crashed"),
        (False, True, 0, [], "crashed"),
    ],
)
def test_the_rule(ready: bool, by_itself: bool, code: int | None, failures: list[Failure], status: str) -> None:
    end = classify(ready=ready, ended_by_itself=by_itself, exit_code=code, failures=failures)
    assert end.status == status
    assert end.exit_code == (code if by_itself else None)


def test_the_reason_holds_the_engines_own_words_and_the_code() -> None:
    end = classify(ready=False, ended_by_itself=True, exit_code=-9, failures=[failure("zero_requests", text="a\n b")])
    assert end.reason == "refused to start (signal 9): RuntimeError: a b"
    end = classify(ready=False, ended_by_itself=True, exit_code=3, failures=[])
    assert end.reason == "ended while starting (exit code 3): the log names no cause"


def test_a_timeout_and_a_server_that_answers_no_more() -> None:
    assert (
        classify(ready=False, ended_by_itself=False, exit_code=None, failures=[], timeout_s=2.5).status == "timed_out"
    )
    end = classify(ready=True, ended_by_itself=False, exit_code=None, failures=[], answering=False)
    assert end.status == "crashed"


@pytest.mark.parametrize("folder", [f for f in sorted(RECORDS.iterdir()) if f.is_dir()], ids=lambda f: f.name)
def test_shipped_records(folder: Path) -> None:
    status = "refused" if folder.name in REFUSED else "crashed" if folder.name in CRASHED else "served"
    assert RunRecord.open(folder).status.status == status
