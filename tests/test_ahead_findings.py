"""What a server that stands has not met yet: told with the arithmetic and the remedy of the same end after it came."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import Diagnosis, of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.maintainer import report

HERE = Path(__file__).parent
ONE_RANK, PROVOKED = (HERE / "logs" / "sglang" / name for name in ("one_rank", "provoked"))
NEXTN = (HERE / "records" / "h200-tp2_nextn-8" / "server.log").read_bytes().splitlines(keepends=True)
SERVING_OOM = (PROVOKED / "0.5.16-serving-oom.log").read_bytes().splitlines(keepends=True)


def ahead(found: Diagnosis) -> list[Finding]:
    return [one for one in found.findings if one.id in ("known-fault-ahead", "out-of-memory-ahead")]


@functools.cache
def alone() -> Diagnosis:
    return of_path(ONE_RANK / "0.5.16-tp4-nextn-8.log.gz")


def test_a_server_that_has_not_had_its_first_full_batch_is_told_of_it() -> None:
    """8 × 4 × 32,768 = 1,048,576 and 8 × 4 × 4 = 128: the arithmetic and the remedy of the recorded crash."""
    (finding,) = ahead(alone())
    after = of_log(NEXTN).findings[0]
    same = after.cause.partition(" The server died")[0]
    assert same.startswith("A fault of the engine: the attention mask of its CUDA graphs is 128 entries too small for")
    assert (finding.severity, finding.remedies) == ("costly", after.remedies)
    assert finding.cause == (
        f"{same} This server has not met it in this log (none is seen to have run at once): it ends as soon as "
        "8 requests run."
    )
    assert [line.line for line in finding.evidence] == [61, 92]
    assert (
        "Capture target verify CUDA graph end" in finding.evidence[0].text
        and "max_running_requests=8" in finding.evidence[1].text
    )


def test_nobody_is_to_report_a_known_fault_that_lies_ahead() -> None:
    assert report(alone()).why == (
        "known-fault-ahead: a known fault of the engine; its cause names the versions that have it."
    )


def test_once_it_has_happened_it_is_told_as_the_end_alone() -> None:
    found = of_log(NEXTN)
    assert found.findings[0].id == "crashed-serving" and ahead(found) == []


def test_the_recorded_server_before_its_end_had_run_one() -> None:
    end = next(number for number, line in enumerate(NEXTN) if b"Scheduler hit an exception" in line)
    before = NEXTN[: end - 1]
    (finding,) = ahead(of_log(before))
    assert "(at most 1 ran at once): it ends as soon as 8 requests run." in finding.cause
    decode = [line for line in before if b"Decode batch" in line][-1]
    served = [*before, decode.replace(b"#running-req: 1,", b"#running-req: 8,")]
    assert ahead(of_log(served)) == []  # it decoded a full batch: whatever it is, it has not this fault


@pytest.mark.parametrize("name", ["0.5.16-tp4-dflash-8", "0.5.16-tp4-no-speculation-8", "0.5.12-tp4-dflash-4"])
def test_a_server_without_the_fault_is_told_of_none(name: str) -> None:
    assert ahead(of_path(ONE_RANK / f"{name}.log.gz")) == []


def test_a_full_prefill_that_does_not_fit_is_told_before_it_comes() -> None:
    """32,768 tokens × 5,120 × 2 B × 34 = 10.62 GiB, estimated; 10.62 - 1.81 = 8.8 GiB. The server died of it."""
    ready = next(number for number, line in enumerate(SERVING_OOM) if b"Uvicorn running" in line)
    before = SERVING_OOM[: ready + 1]
    (finding,) = ahead(of_log(before))
    assert (finding.id, finding.severity) == ("out-of-memory-ahead", "notice")
    assert finding.cause.startswith(
        "Likely out of memory at a full prefill: 1.81 GiB are free beside pools and graphs (logged), and a prefill of "
        "32,768 tokens takes 10.62 GiB (estimated: "
    )
    assert finding.cause.endswith(": about 8.8 GiB are missing. It has not happened in this log (none was seen).")
    assert [remedy.flags for remedy in finding.remedies][:1] == [
        remedy.flags for remedy in of_log(SERVING_OOM).findings[0].remedies
    ][:1]
    died = of_log(SERVING_OOM)
    assert died.findings[0].id == "out-of-memory-serving" and ahead(died) == []


def test_a_full_prefill_that_was_served_is_no_danger() -> None:
    ready = next(number for number, line in enumerate(SERVING_OOM) if b"Uvicorn running" in line)
    stamp = b"[2026-11-30 05:57:54] Prefill batch, #new-seq: 1, #new-token: %d, #cached-token: 0, full token usage: "
    rest = b"0.00, mamba usage: 0.02, #running-req: 0, #queue-req: 0, cuda graph: False\n"
    for tokens, told in ((32_768, 0), (20_000, 1)):
        found = of_log([*SERVING_OOM[: ready + 1], stamp % tokens + rest])
        assert len(ahead(found)) == told, tokens
        assert all("(the longest that was seen had 20,000 tokens)" in one.cause for one in ahead(found))
