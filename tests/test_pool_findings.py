"""Findings about memory that no error names: each with its arithmetic by hand, and what comes near gives none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis

RECORDS = Path(__file__).parent / "records"
CASES = Path(__file__).parent / "logs" / "sglang" / "cases"


def paste(*lines: str, **told: Any) -> Diagnosis:
    return of_log(io.BytesIO("\n".join(lines).encode()), name="paste", told=Told(**told))


def case(name: str, **told: Any) -> Diagnosis:
    return of_log(CASES / f"{name}.log", told=Told(**told))


def only(diagnosis: Diagnosis, finding_id: str) -> Finding:
    (found,) = [finding for finding in diagnosis.findings if finding.id == finding_id]
    return found


def ids(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings]


# ── requests: a cap without a word, or with a word only ──────────────────────────────────────────────────────────────


def test_a_cap_is_known_from_the_warning_alone():
    """47 slots // 5 per request = 9; of 32 asked 23 are lost: 23 / 32 = 0.71875."""
    found = only(case("qwen36-27b-ada48-cap9", arguments={"max_running_requests": 32}), "capped-by-state-slots")
    assert found.cause == (
        "32 requests asked, 9 can run at once: the state pool is the limit (47 slots // 5 per request = 9)."
    )
    assert (found.severity, found.lost) == ("costly", 0.71875)
    assert [line.line for line in found.evidence] == [1]


def test_a_cap_of_unknown_wish_says_so():
    found = only(case("qwen36-27b-ada48-cap9"), "capped-by-state-slots")
    assert found.cause.startswith("How many requests were asked is not logged; 9 can run at once: ")
    assert found.lost is None


def test_a_cap_that_takes_nothing_of_what_was_asked_is_none():
    """Nine were asked, or none: the engine warns of its own upper bound (2,048 at least) as well."""
    for asked in (9, 8, None):
        assert "capped-by-state-slots" not in ids(
            case("qwen36-27b-ada48-cap9", arguments={"max_running_requests": asked})
        )


def test_a_cap_of_zero_is_fatal():
    """2 slots // 5 per request = 0: nothing runs, all is lost."""
    found = only(case("qwen38-flashnext-kt-g16-cap0", arguments={"max_running_requests": 4}), "capped-by-state-slots")
    assert found.cause == (
        "4 requests asked, 0 can run at once: the state pool is the limit (2 slots // 5 per request = 0): "
        "the engine refuses to start."
    )
    assert (found.severity, found.lost) == ("fatal", 1.0)


def test_a_cap_is_known_from_the_summary_alone():
    """Eight asked (told), six in the summary; 206,635 tokens are enough for 103,317 requests of two tokens."""
    found = only(
        case("qwen38-27b-2x3090-slot-table", arguments={"max_running_requests": 8, "context_length": 262144}),
        "capped-by-state-slots",
    )
    assert found.cause == (
        "8 requests asked, 6 can run at once: the state pool is the limit (its slots are not logged, and 206,635 KV "
        "tokens are enough for more)."
    )
    assert found.lost == 0.25


SUMMARY = (
    "[2026-09-14 10:00:00] max_total_num_tokens={tokens}, chunked_prefill_size=2048, max_prefill_tokens=16384, "
    "max_running_requests={requests}, context_len={context}, available_gpu_mem=1.81 GB"
)


def test_a_cap_by_tokens_is_half_as_many_requests_as_tokens():
    """0.5.14 on: 100 tokens // 2 = 50 requests of the 64 asked; 14 / 64 = 0.21875 are lost."""
    line = SUMMARY.format(tokens=100, requests=50, context=100)
    found = only(paste(line, arguments={"max_running_requests": 64}), "capped-by-kv-tokens")
    assert found.cause == "64 requests asked, 50 can run at once: the KV pool of 100 tokens is the limit."
    assert found.lost == 0.21875


def test_requests_are_asked_of_all_data_parallel_workers():
    """16 asked of 4 workers are 4 of each."""
    line = SUMMARY.format(tokens=206635, requests=4, context=4096)
    assert ids(paste(line, arguments={"max_running_requests": 16, "dp_size": 4})) == []
    found = only(paste(line, arguments={"max_running_requests": 32, "dp_size": 4}), "capped-by-state-slots")
    assert found.cause.startswith("8 requests asked, 4 can run at once")


# ── tokens: a context, or a limit, above the pool ────────────────────────────────────────────────────────────────────


def test_a_context_above_the_pool_names_the_longest_request():
    """max_req_len = 206,635 - 1, inputs below 206,635 - 6; 1 - 206,635 / 262,144 = 0.2118 is lost."""
    found = only(case("qwen38-27b-2x3090-slot-table", arguments={"context_length": 262144}), "context-above-pool")
    assert found.cause == (
        "The context is 262,144 tokens, the KV pool only 206,635: inputs must be shorter than 206,629 tokens, and "
        "outputs end early without a warning once a request has 206,634 tokens, input and output together."
    )
    assert found.severity == "costly"
    assert found.lost == pytest.approx(0.2118, abs=5e-5)


def test_a_context_that_nobody_asked_for_is_a_notice():
    """Told that nothing was asked, the context is the model's own default."""
    found = only(case("qwen38-27b-2x3090-slot-table", arguments={"context_length": None}), "context-above-pool")
    assert found.severity == "notice"
    assert "(nobody asked for it)" in found.cause


def test_a_context_is_known_from_what_was_asked():
    """The pool's line alone, with the context told: 131,072 asked, 91,867 there."""
    line = "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 91867, K size: 1.40 GB, V size: 1.40 GB"
    found = only(paste(line, arguments={"context_length": 131072}), "context-above-pool")
    assert found.cause == (
        "The context is 131,072 tokens, the KV pool only 91,867: outputs end early without a warning once a request "
        "has 91,866 tokens, input and output together."
    )
    assert [shown.line for shown in found.evidence] == [1]
    assert ids(paste(line, arguments={"context_length": 91867})) == []


def test_a_pool_that_was_limited_by_hand_says_so():
    """max_total_tokens=20000 beside a context of 32,768: 12,768 / 32,768 = 0.3896."""
    found = only(of_path(RECORDS / "h200_too-long"), "context-above-pool")
    assert "the KV pool only 20,000, as max_total_tokens asks: inputs must be shorter than 19,994 tokens" in found.cause
    assert found.lost == pytest.approx(0.3896, abs=5e-5)


def test_a_token_limit_above_the_memory_does_not_bind():
    """The engine's own warning: 262,144 asked, 131,072 profiled: 131,072 are not there, half of them."""
    found = only(
        paste("max_total_tokens=262144 is larger than the profiled value 131072. Use the profiled value instead."),
        "token-limit-not-binding",
    )
    assert found.cause == (
        "max_total_tokens is 262,144, the memory gave 131,072 tokens: the limit does not bind, 131,072 of the asked "
        "tokens are not there. It is an upper limit, not a reservation."
    )
    assert (found.severity, found.lost) == ("costly", 0.5)
    assert [line.line for line in found.evidence] == [1]


def test_a_token_limit_is_one_loss_with_the_context():
    """The same 262,144 asked twice: the context is the finding, the limit a notice beside it."""
    line = SUMMARY.format(tokens=130000, requests=2, context=262144)
    diagnosis = paste(line, arguments={"context_length": 262144, "max_total_tokens": 262144})
    assert [(finding.id, finding.severity) for finding in diagnosis.findings] == [
        ("context-above-pool", "costly"),
        ("token-limit-not-binding", "notice"),
    ]


def test_a_token_limit_that_binds_is_no_finding():
    """Pages of 64 round 100,000 down to 99,968; of three ranks each holds a part of 90,816 (31,229 × 2 + 28,390)."""
    line = SUMMARY.format(tokens=99968, requests=2, context=4096)
    assert ids(paste(line, arguments={"max_total_tokens": 100000})) == []
    split = case("flashnext-3rank-uneven-dcp", arguments={"max_total_tokens": 90816})
    assert "token-limit-not-binding" not in ids(split)
