"""Findings about servers that run, from recordings, public excerpts and lines worded as the engine words them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.engines.sglang import logs
from specbench.reading.intervals import intervals

RECORDS = Path(__file__).parent / "records"
seen = cache(of_path)  # a diagnosis is frozen
CASES = Path(__file__).parent / "logs" / "sglang" / "cases"


def findings(lines: str) -> dict[str, Finding]:
    return {finding.id: finding for finding in of_log(lines.encode().splitlines(keepends=True)).findings}


def of(path: Path, finding_id: str) -> list[Finding]:
    return [finding for finding in seen(path).findings if finding.id == finding_id]


# ── throughput and idle time ─────────────────────────────────────────────────────────────────────────────────────────

EAGLE = (CASES / "eagle3-speedup-below-paper.log").read_text(encoding="utf-8")


def test_the_first_line_after_idle_time_is_named() -> None:
    """(0.39 + 178.86 + 165.41 + 188.68 + 165.59) / 5 = 698.93 / 5 = 139.8; the last four: 698.54 / 4 = 174.6."""
    (finding,) = of(CASES / "eagle3-speedup-below-paper.log", "throughput-spans-idle")
    assert finding.severity == "notice"
    assert finding.cause == (
        "1 of 5 decode lines counts time in which nothing ran (line 2: 0.39 tokens/s with 1 running): the engine "
        "divides by the time since its last decode line. With such lines the mean is 139.8, without 174.6 tokens/s. "
        "They are no figure of speed; their acceptance length is right."
    )
    assert [line.line for line in finding.evidence] == [2]


def test_a_log_whose_lines_all_follow_idle_time_has_no_speed() -> None:
    """Three decode lines, each after a prefill of an empty server; 8 requests ran, and 172 tokens/s is no peak."""
    serving = seen(RECORDS / "h200_no-speculation-8").serving
    assert serving is not None and (serving.throughput_max, serving.idle_lines) == (None, 3)


@pytest.mark.parametrize(
    "lines",
    [
        EAGLE.replace(": 0.39,", ": 17.30,"),  # the others' median is 172.2: not ten times as fast
        EAGLE + "".join(EAGLE.splitlines(keepends=True)[2:]) * 3,  # one of 17: the mean is 6 % less
        "".join(EAGLE.splitlines(keepends=True)[1:]),  # no prefill line tells that nothing ran before
        EAGLE.replace("#running-req: 0", "#running-req: 1"),
    ],
)
def test_a_line_that_spoils_nothing_is_no_notice(lines: str) -> None:
    assert "throughput-spans-idle" not in findings(lines)


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
    serving = seen(RECORDS / name).serving
    assert serving is not None and (serving.throughput_max, serving.idle_lines) == (peak, idle)


# ── retraction ───────────────────────────────────────────────────────────────────────────────────────────────────────

STORY = (RECORDS / "h200_story-4" / "server.log").read_text(encoding="utf-8")
#: As the engine words them from 0.5.11 on (scheduler.py): of a hybrid model, and of one without state.
RETRACTED = (
    "[2026-11-29 18:15:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 21000, "
    "#mamba_num_gained: 3, #new_token_ratio: 0.1200 -> 0.6400\n"
)


def with_retractions(times: int, text: str = STORY) -> str:
    """The story's server, with so many retractions after its last decode line."""
    head, mark, tail = text.rpartition("Decode batch")
    line, newline, rest = tail.partition("\n")
    return head + mark + line + newline + RETRACTED * times + rest


def test_retractions_are_counted_with_what_they_cost() -> None:
    """Three times 21,000 tokens and 3 slots beside 2 decode lines. All prefills of the log together have fewer new
    tokens than the 63,000: as much was given up as was prefilled, or more.
    """
    found = findings(with_retractions(3))["retraction"]
    first = 1 + with_retractions(3)[: with_retractions(3).index("KV cache pool is full")].count("\n")
    assert (found.severity, found.lost) == ("costly", 1.0)
    assert found.cause == (
        f"The KV pool of 87,063 tokens was full 3 times, one for every 0.7 decode lines (first in line {first}): the "
        "engine threw 3 running requests out, which gave up 63,000 KV tokens to be computed again and 9 state slots. "
        "It had kept room for 0.12 of the tokens that running requests may still generate, and after the last time for "
        "0.64."
    )
    assert [line.line for line in found.evidence] == [first, first + 2]


def test_remedies_of_a_retraction_have_room_for_what_was_given_up() -> None:
    """Every one that is predicted holds 87,063 + 21,000 = 108,063 tokens, or asks for the 3 that went on of 4."""
    remedies = findings(with_retractions(1))["retraction"].remedies
    sets = [dict(remedy.set) for remedy in remedies]
    assert sets[0] == {"engine.args.schedule-conservativeness": 1.3}
    assert sets[-1] == {"memory.max_running_requests": 3}
    predicted = [remedy for remedy in remedies if remedy.verdict == "serves"]
    for remedy in predicted:
        tokens = remedy.predicted["kv_tokens"]
        assert remedy is remedies[-1] or (tokens is not None and tokens >= 108_063)
    (source,) = [remedy for remedy in remedies if remedy.verdict is None]
    assert (source.basis, source.flags) == ("source", "--schedule-conservativeness 1.3")


OLD = (
    "[2025-10-22 10:27:59 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
    "#new_token_ratio: 0.5990 -> 0.8990\n"
)


def test_a_wording_without_tokens_gives_none() -> None:
    found = findings(EAGLE + OLD)["retraction"]
    assert "the engine threw 2 running requests out." in found.cause
    assert (found.lost, found.severity) == (None, "costly")


def test_one_retraction_in_hundreds_of_decode_lines_is_a_notice() -> None:
    lines = EAGLE.splitlines(keepends=True)
    found = findings("".join(lines + lines[2:3] * 200) + OLD)["retraction"]
    assert found.severity == "notice" and "one for every 205.0 decode lines" in found.cause
    assert found.remedies == ()


def test_a_request_that_does_not_fit_alone_is_aborted() -> None:
    text = EAGLE + "[2025-10-22 10:28:00 TP0] retract_decode: aborted last request 4f1c0d due to OOM\n"
    found = findings(text)["retraction"]
    assert found.cause == "1 request ended with an error, because the pool is too small for it alone."
    assert found.severity == "costly"


def test_a_disaggregated_decode_server_counts_those_that_wait() -> None:
    line = (
        "[2026-05-20 10:11:12 TP0] Decode batch, #running-req: 4, #token: 100, token usage: 0.99, pre-allocated usage: "
        "0.05, #prealloc-req: 1, #transfer-req: 2, #retracted-req: {}, cuda graph: True, gen throughput (token/s): "
        "55.50, #queue-req: 0\n"
    )
    found = findings(line.format(0) + line.format(3))["retraction"]
    assert found.cause == "Up to 3 retracted requests waited to come back into the pool of this decode server."
    assert [one.line for one in found.evidence] == [2]
    assert "retraction" not in findings(line.format(0))


def test_the_debug_mode_is_no_pressure() -> None:
    text = EAGLE + "[2025-10-22 10:28:00 TP0] Testing retraction. #retracted_reqs: 1, #new_tokens_gained: 400\n"
    assert "retraction" not in findings(text)


# ── idle state slots beside a queue ──────────────────────────────────────────────────────────────────────────────────


def decoding(running: int, held: int, usage: str, queued: int, kv: str = "0.35") -> str:
    """A decode line of a hybrid model, as 0.5.10 to 0.5.23 word it."""
    return (
        f"[2026-09-14 10:00:00] Decode batch, #running-req: {running}, #full token: 90000, full token usage: {kv}, "
        f"mamba num: {held}, mamba usage: {usage}, accept len: 2.50, accept rate: 0.50, cuda graph: True, "
        f"gen throughput (token/s): 400.00, #queue-req: {queued}\n"
    )


#: The figures of a public report (40 slots; 4 held by each, 5 reserved; 39 % of the steps with a queue), as lines.
RUNNING = {1: (4, "0.10"), 2: (8, "0.20"), 4: (16, "0.40"), 6: (24, "0.60")}
QUEUED = "".join(decoding(count, *held, 0) for count, held in RUNNING.items()) * 2
PRO6000 = QUEUED + decoding(8, 32, "0.80", 5) * 5


def test_slots_that_idle_beside_a_queue_are_counted_as_requests() -> None:
    """40 - 32 = 8 slots, 4 held by each: 2 more. The pool line is missing: 32 / 0.805 and 32 / 0.795 hold 40 alone."""
    found = findings(PRO6000)["slots-idle-while-queueing"]
    assert found.cause == (
        "Up to 5 requests wait while 8 run, 8 of 40 state slots are idle and the KV pool is 35% full (5 of 13 decode "
        "lines): a running request holds 4 slots. By what they hold, the idle ones are 2 requests more."
    )
    assert (found.severity, found.lost) == ("costly", 0.2)
    assert [line.line for line in found.evidence] == [9]
    assert "queue-with-room" not in findings(PRO6000)


def test_the_reserve_is_named_where_the_engine_tells_it() -> None:
    warning = (
        "[2026-09-14 09:59:00] max_running_requests is capped to 8 by the mamba state cache (max_mamba_cache_size=40, "
        "5 state slots per request). To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, or "
        "halve the state size with --mamba-ssm-dtype bfloat16.\n"
    )
    found = findings(warning + PRO6000)["slots-idle-while-queueing"]
    assert "a running request holds 4 slots, and the engine reserves 5 for each (40 // 5 = 8)." in found.cause


@pytest.mark.parametrize(
    "lines",
    [
        QUEUED + decoding(8, 32, "0.80", 0) * 5,  # nobody waits
        QUEUED + decoding(8, 32, "0.80", 5, kv="0.95") * 5,  # the KV pool has no room
        QUEUED + decoding(8, 37, "0.93", 5) * 5,  # 3 idle slots, 4 held by each: no request more
        QUEUED * 4 + decoding(8, 32, "0.80", 5) * 5,  # 5 of 37 lines: by accident
        QUEUED + decoding(8, 0, "0.00", 5) * 5,  # the batch had just ended
    ],
)
def test_where_no_request_more_would_run_nothing_is_said(lines: str) -> None:
    assert "slots-idle-while-queueing" not in findings(lines)


def test_a_limit_that_was_asked_for_is_no_reserve() -> None:
    """h200-tp2_dflash-8: 8 asked and granted, 47 - 32 = 15 slots idle beside a queue of 8 more clients."""
    assert of(RECORDS / "h200-tp2_dflash-8", "slots-idle-while-queueing") == []


def test_a_remedy_of_idle_slots_serves_what_was_asked() -> None:
    """dflash_r8_full_sim: 37 // 5 = 7 of 8 asked; at 3 slots for each 24 do. It has 9 idle, of which one is asked."""
    (found,) = of(RECORDS / "dflash_r8_full_sim", "slots-idle-while-queueing")
    assert found.lost == pytest.approx(1 / 8)
    (remedy,) = found.remedies
    assert dict(remedy.set) == {
        "memory.mamba_radix_cache_strategy": "no_buffer",
        "memory.disable_overlap_schedule": True,
    }
    assert (remedy.verdict, remedy.predicted["running_requests"], remedy.predicted["state_slots"]) == ("serves", 8, 24)


# ── benchmarks ───────────────────────────────────────────────────────────────────────────────────────────────────────

BENCH = (CASES / "bench-serving-oai-c512-accept321.log").read_text(encoding="utf-8")


def test_a_benchmark_that_measured_its_queue_is_told() -> None:
    """422.16 / 710.63 = 59 %; 512 requests in 1,459.78 s are 0.3507 a second, × 710.63 s = 249.2 there; 249.24 × (1 -
    0.5941) = 101.2 past their first token; 258,921 / 512 = 506 input tokens.
    """
    found = findings(EAGLE + BENCH)["bench-queued"]
    assert found.cause.startswith(
        "The benchmark offered 512 requests at once; each waited 422.2 of its 710.6 s (59%) for its first token "
        "(means). Of 249 that were there on average 101 were past it, the others in the queue or in their prefill of "
        "506 input tokens:"
    )
    assert (found.severity, [line.line for line in found.evidence]) == ("notice", [7])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Median TTFT (ms):                        443131.76", "Median TTFT (ms):                        100.00"),
        ("Mean TTFT (ms):                          422162.05", "Mean TTFT (ms):                          1.00"),
        ("Mean E2E Latency (ms):                   710627.73", "Mean E2E Latency (ms):                   0.00"),
        ("Max request concurrency:                 512", "Max request concurrency:                 not set"),
    ],
)
def test_a_benchmark_without_a_queue_is_quiet(old: str, new: str) -> None:
    assert old in BENCH
    assert "bench-queued" not in findings(EAGLE + BENCH.replace(old, new))
