"""Faults that were provoked with real servers: the finding of each, its arithmetic, and what would have mended it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench import show
from specbench.cli.diagnosis_text import render, verdict
from specbench.diagnose.against import with_other
from specbench.diagnose.diagnosis import of_path
from specbench.diagnose.maintainer import report
from specbench.diagnose.told import Told
from specbench.studies.opened import opened

PROVOKED = Path(__file__).parent / "logs" / "sglang" / "provoked"

#: log -> how it ended, its first finding, what the cause says, the flags that are offered.
FAILED: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # 0.36 × 139.13 = 50.09 against 51.05 GiB
    "0.5.12-nomem": (
        *("refused", "refused-weights", ("allows 0.36 × 139.13 = 50.09 GiB, and loading the weights took 51.05 GiB",)),
        ("--mem-fraction-static 0.4", "--tp-size 2"),
    ),
    "0.5.12-radix": (
        *("refused", "refused-arguments", ("needs the strategy extra_buffer up to 0.5.13",)),
        ("--mamba-scheduler-strategy extra_buffer", "--disable-radix-cache"),
    ),
    "0.5.16-weights": (
        *("refused", "refused-weights", ("After the weights 1.03 GiB are missing (the engine's figure).",)),
        ("--mem-fraction-static 0.42", "--tp-size 2"),
    ),
    # 51.05 + 3.38 = 54.43 against 52.17 GiB: the engine's own "-0.12 GB" is of the scratch of -1 requests
    "0.5.16-state": (
        *(
            "refused",
            "refused-weights",
            ("= 52.17 GiB, and loading the weights took 51.05 GiB and 3.38 GiB of the draft",),
        ),
        ("--mem-fraction-static 0.59 --max-mamba-cache-size 40",),
    ),
    # 2 // 5 = 0, and 8 × 5 = 40
    "0.5.16-slots2": (
        *("refused", "refused-state-pool", ("2 // 5 = 0 requests can run", "8 requests take 8 × 5 = 40")),
        ("--max-mamba-cache-size 40",),
    ),
    # 32.00 - 18.06 = 13.94 MiB
    "0.5.12-no-slack": (
        *(
            "refused",
            "out-of-memory-graphs",
            ("32.00 MiB were asked for, 18.06 MiB of 139.80 GiB were free: 13.94 MiB",),
        ),
        ("--mem-fraction-static 0.97",),
    ),
    "0.5.16-no-slack": (
        *("refused", "out-of-memory-graphs", ("13.94 MiB are missing",)),
        ("--mem-fraction-static 0.97",),
    ),
    # 626 - 168 = 458 MiB
    "0.5.16-serving-oom": (
        "crashed",
        "out-of-memory-serving",
        ("458.00 MiB are missing", "Logged: weights 51.05 GiB, KV 45.24 GiB, state slots 40.86 GiB."),
        ("--mem-fraction-static 0.92",),
    ),
    "0.5.16-port": (
        "crashed",
        "port-in-use",
        ("listens on port 31120", "says that it is ready all the same"),
        ("--port 31220",),
    ),
    "0.5.16-killed": ("crashed", "ended-by-signal", ("scheduler_0 was ended by a signal while serving", "SIGKILL"), ()),
    "0.5.16-backend": (
        *("crashed", "bad-environment", ("Can not import FA3 in sgl_kernel",)),
        ("--attention-backend flashinfer", "--attention-backend triton"),
    ),
    "0.5.16-nomodel": ("refused", "refused-model", ("'/srv/sgl/models/none'",), ()),
    # two ranks, of which the second was meddled with
    "0.5.12-tp2-rank-killed": (
        *("crashed", "ended-by-signal", ("scheduler_1 (rank 1) was ended by a signal while serving",)),
        (),
    ),
    "0.5.16-tp2-rank-killed": (
        *("crashed", "communication-failed", ("TP1 ended while the others were at work", "TP1 alone says no error")),
        (),
    ),
    "0.5.16-tp2-rank-killed-loading": (
        *("crashed", "rank-missing", ("TP1 is loading weights, TP0 has loaded weights: the other waits for it.",)),
        (),
    ),
    "0.5.16-tp2-rank-late": (
        *("crashed", "rank-missing", ("1 of 2 processes came", "TP1 has not begun to communicate, TP0 is in the")),
        (),
    ),
    "0.5.16-tp2-rank-stopped": (
        *(
            "crashed",
            "watchdog-timeout",
            ("did not finish a step for 12 s while serving", "Of 2 ranks TP0 says so."),
        ),
        ("--watchdog-timeout 36",),
    ),
    "0.5.16-tp2-card-missing": (
        *("crashed", "gpu-missing", ("tp_size 2 needs 2 cards. The first rank without one is TP1",)),
        ("--tp-size 1",),
    ),
    "0.5.16-tp2-card-taken": (
        *(
            "refused",
            "refused-unbalanced",
            ("It is that of TP1", "138.21 - 77.70 = 60.51 GiB are held", "Of 2 ranks TP0 says so."),
        ),
        ("",),  # an environment variable
    ),
    # no fraction mends what another program takes
    "0.5.16-tp2-card-full": (
        *("crashed", "communication-failed", ("Failed to CUDA calloc 10485760 bytes. TP1 had 27.53 GiB left when",)),
        (),
    ),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_provoked_failure(name: str) -> None:
    status, finding_id, words, flags = FAILED[name]
    found = of_path(PROVOKED / f"{name}.log")
    fatal = [finding for finding in found.findings if finding.severity == "fatal"]
    assert (found.status, [finding.id for finding in fatal]) == (status, [finding_id])
    assert [word for word in words if word not in fatal[0].cause] == []
    assert tuple(remedy.flags for remedy in fatal[0].remedies) == flags
    assert fatal[0].evidence and found.unread == ()


def test_the_ledger_is_of_the_rank_that_the_finding_is_about() -> None:
    """NCCL found no memory on the card of TP1; its rest was 0.05, that of TP0 0.21 GiB."""
    file = PROVOKED / "0.5.16-tp2-card-full.log"
    found = of_path(file)
    assert found.findings[0].cause.endswith("Of 2 ranks TP1 says so.")
    text = Console(width=100, record=True, file=io.StringIO())
    render(found, text)
    printed = text.export_text()
    assert "where the card's memory of TP1 went" in printed
    assert "shown: TP1, whose failure is the first in the log" in printed
    assert "TP0: rest 0.21 GiB (TP1: 0.05); left free 27.37 GiB (TP1: 27.53)" in printed
    assert "## Memory of TP1, GiB" in report(found).text
    assert "of TP1" in show.ledger(opened(file)).text
    # one that served is shown by the rank that decides, as before
    assert of_path(PROVOKED / "0.5.16-tp2-card-shared.log").shown_ledgers[0].rank == "TP1"


def test_the_page_of_a_server_that_died_says_what_its_log_does_not_tell() -> None:
    told = str(show.headline(opened(PROVOKED / "0.5.16-tp2-card-full.log")))
    assert "4 resolved; the server died, and its log does not tell how many it had served." in told


@pytest.mark.parametrize(
    ("name", "heading", "change"),
    [
        ("0.5.16-tp2-card-missing", "fix: start the server with", "--tp-size 1"),
        (
            "0.5.16-tp2-card-taken",
            "fix: in the server's environment (of a params file: engine.env)",
            "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0",
        ),
    ],
)
def test_a_fix_is_said_as_somebody_makes_it_who_has_a_log_and_no_params_file(
    name: str, heading: str, change: str
) -> None:
    text = Console(width=100, record=True, file=io.StringIO())
    render(of_path(PROVOKED / f"{name}.log"), text)
    lines = [line.strip() for line in text.export_text().splitlines()]
    assert lines[lines.index(heading) + 1] == change
    assert [line for line in lines if "--set" in line] == []


def test_whoever_takes_a_card_is_to_go_before_the_check_does() -> None:
    (finding,) = of_path(PROVOKED / "0.5.16-tp2-card-taken.log").findings
    assert finding.cause.index("First end that process (nvidia-smi names it)") < finding.cause.index("be turned off")
    assert finding.remedies[0].note.endswith(
        "last, where the other process cannot be ended: all ranks are sized by the one with least, or memory runs out"
    )


#: log -> how it ended, then its findings with their severity and what the cause says.
SERVED: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "0.5.16-above-profile": (
        "started",
        (("token-limit-not-binding", "notice", "max_total_tokens is 99,999,999, the memory gave 521,476 tokens"),),
    ),
    # What is said of a speed: `test_speculation_is_judged_against_the_server_without_it`.
    "0.5.16-dflash": ("served", (("acceptance-too-low", "notice", "gives 1.00 tokens per verify round"),)),
    # 50.92 - 20.54 = 30.38 GiB; 4 × 5 = 20 slots
    "0.5.16-negative": (
        "served",
        (
            ("negative-figures", "notice", "used 20.54 GiB, and by the model's shapes they take 50.92 GiB at least"),
            ("slots-beyond-use", "notice", "219 slots, of which 4 requests hold 20 (4 × 5)"),
            ("prefix-cache-hits", "notice", "45% of their input tokens"),  # 448 of 500 and 500
        ),
    ),
    # The card is not told: what an idle one would have is not known.
    "0.5.16-others": ("served", (("prefix-cache-hits", "notice", "45% of their input tokens"),)),
    "0.5.16-plain": ("served", ()),
    "0.5.16-queue": (
        "served",
        (
            ("queue-full", "costly", "4 requests refused with 503, the queue was full: it holds 1"),
            ("slots-beyond-use", "notice", "198 slots, of which 1 request holds 5 (1 × 5)"),
            ("queue-with-room", "notice", "1 was asked to run at once: up to 1 waited, as configured"),
        ),
    ),
    # 38.25 + 0.28 = 38.53 GiB, 9.41 + 9.41 = 18.82 GiB, 2.39 GiB / 17 = 143.96 MiB
    "0.5.16-scratch": (
        "started",
        (
            (
                "scratch-above-pool",
                "notice",
                "takes 38.53 GiB, 2.0 times the KV pool (18.82 GiB) and 15.8 times the state pool (2.44 GiB): (16",
            ),
        ),
    ),
    # (31.22 + 0.61) GiB × 201 / 222 = 28.82 GiB; 4 × 5 = 20
    "0.5.16-slots": (
        "started",
        (("slots-beyond-use", "notice", "221 slots, of which 4 requests hold 20 (4 × 5)"),),
    ),
    # 138.21 - 133.70 = 4.51 GiB, of which the other program asked 4
    "0.5.16-tp2-card-shared": (
        "started",
        (
            ("ranks-disagree", "notice", "TP1 has 133.70 GiB free before loading, TP0 138.21 GiB: 4.51 GiB less"),
            ("slots-beyond-use", "notice", "537 slots, of which 4 requests hold 20 (4 × 5)"),
        ),
    ),
    # Its second rank was stopped with three requests under way: a log that ends tells no more.
    "0.5.16-tp2-rank-hangs": (
        "started",
        (
            ("perhaps-hangs", "notice", "The log ends with 3 requests that began"),
            ("slots-beyond-use", "notice", "561 slots, of which 4 requests hold 20 (4 × 5)"),
        ),
    ),
    # 8,000 - 6 = 7,994
    "0.5.16-truncate": (
        "served",
        (
            ("input-truncated", "costly", "of 32,768 input tokens the first 7,994 were kept"),
            ("context-above-pool", "notice", "the KV pool only 8,000, as max_total_tokens asks"),
            ("prefix-cache-hits", "notice", "25% of their input tokens"),
        ),
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_a_provoked_server_that_runs(name: str) -> None:
    outcome, expected = SERVED[name]
    found = of_path(PROVOKED / f"{name}.log")
    assert (found.outcome, found.unread) == (outcome, ())
    assert [(one.id, one.severity) for one in found.findings] == [row[:2] for row in expected]
    assert [words for one, (*_, words) in zip(found.findings, expected, strict=True) if words not in one.cause] == []


def test_requests_that_began_and_were_not_seen_to_end() -> None:
    """A rank hangs: three prompts were computed, and no token of an answer follows."""
    assert verdict(of_path(PROVOKED / "0.5.16-tp2-rank-hangs.log")) == (
        "As asked; 3 requests began, and none is seen to be answered."
    )
    assert verdict(of_path(PROVOKED / "0.5.16-slots.log")) == "As asked, but nothing was sent."


def test_every_provoked_log_has_its_row() -> None:
    assert sorted((*FAILED, *SERVED)) == sorted(file.stem for file in PROVOKED.glob("*.log"))


def test_idle_slots_are_told_with_their_size_and_what_they_would_be() -> None:
    (finding,) = of_path(PROVOKED / "0.5.16-slots.log").findings
    assert "the other 201: 28.82 GiB, the room of about 472,000 KV tokens" in finding.cause
    assert [remedy.flags for remedy in finding.remedies] == [
        "--max-mamba-cache-size 20",
        "--mamba-full-memory-ratio 0.1",
    ]


def test_memory_of_another_program_where_the_card_is_told() -> None:
    """139.10 - (108.61 + 0.005) = 30.48 GiB. What came back while the weights loaded was free for the pools."""
    told = Told(gpu="h200")
    first = of_path(PROVOKED / "0.5.16-others.log", told=told).findings[0]
    assert (first.id, first.severity) == ("memory-taken-by-others", "costly")
    assert "108.61 GiB were free before loading; an idle H200 has 139.10 GiB at least" in first.cause
    assert "hold 30.48 GiB or more" in first.cause
    back = of_path(PROVOKED / "0.5.16-negative.log", told=told)
    assert back.findings[0].id == "negative-figures"
    assert "memory-taken-by-others" not in [one.id for one in back.findings]
    assert report(back).concerns == "nobody"


def test_a_card_that_is_guessed_by_memory_in_use_says_so() -> None:
    """A GB10 has 119.6 GiB; 108.61 are less than 95% of them."""
    found = of_path(PROVOKED / "0.5.16-others.log")
    (guess,) = [one for one in found.assumptions if one.startswith("GPU assumed")]
    assert "108.61 GiB of its" in guess and "--gpu NAME tells" in guess


def test_speculation_is_judged_against_the_server_without_it() -> None:
    """97.7 / 62.0 × 1.00 = 1.58 tokens per round."""
    found = with_other(of_path(PROVOKED / "0.5.16-dflash.log"), PROVOKED / "0.5.16-plain.log")
    (finding,) = found.findings
    assert (finding.id, finding.severity, finding.lost) == ("acceptance-too-low", "notice", None)
    assert "at 4 running requests 97.7 against 62.0 ms (9 and 9 decode lines)" in finding.cause
    assert "gives 1.00 tokens; it breaks even at 1.58" in finding.cause
    assert "The weights are random (--load-format dummy)" in finding.cause


def test_a_fix_names_the_variable_that_its_flags_need() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    render(of_path(PROVOKED / "0.5.12-radix.log"), console)
    text = " ".join(console.export_text().split())
    assert (
        "fix: start the server with SGLANG_ENABLE_SPEC_V2=1 in its environment, and with --mamba-scheduler-strategy "
        "extra_buffer" in text
    )
