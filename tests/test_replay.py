"""The replay: which recorded request answers, how a log is cut, and whole records played over HTTP by processes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specbench.lifecycle.ports import free_port
from specbench.load.client import Received, Sent, generate
from specbench.records.record import RunRecord
from specbench.records.types import RequestTrace
from specbench.records.writer import RecordWriter
from specbench.replay.asking import CONCURRENCY, INDEX
from specbench.replay.plan import Answer, Ask, NotRecorded, Plan
from specbench.replay.server import Replay
from specbench.replay.timeline import Timeline, timeline

RECORDS = Path(__file__).parent / "records"
ALL = [folder for folder in sorted(RECORDS.iterdir()) if folder.is_dir()]


def record(name: str) -> RunRecord:
    return RunRecord.open(RECORDS / name)


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan_of(name: str) -> Plan:
    found = record(name)
    return Plan(found.requests(), crashed=found.status.status == "crashed")


def ask(tokens: int, new: int, concurrency: int | None = 8, index: int | None = 0, **more: Any) -> Ask:
    return Ask(input_tokens=tokens, max_new_tokens=new, concurrency=concurrency, index=index, **more)


def answered(plan: Plan, asked: Ask) -> Answer:
    found = plan.answer(asked)
    assert isinstance(found, Answer)
    return found


def test_the_same_shape_is_answered_by_the_same_request() -> None:
    found = answered(plan_of("dflash_r8_full"), ask(1024, 256, index=3))
    assert (found.source, found.exact) == ("conc8[3]", True)
    (trace,) = [t for t in record("dflash_r8_full").requests() if t.step == "conc8" and t.index == 3]
    assert found.chunks == trace.chunks
    assert found.end_s == trace.end_s
    assert found.mark == {"exact": True, "from": "conc8[3]"}


def test_a_longer_prompt_is_answered_from_the_nearest_length_cut_and_marked() -> None:
    found = answered(plan_of("dflash_r8_full"), ask(6000, 40, concurrency=1))
    assert found.source == "long_8k[0]"
    assert not found.exact
    assert sum(tokens for _, tokens in found.chunks) == 40
    assert "6000+40 tokens were not recorded" in str(found.mark["because"])
    assert found.meta_info["completion_tokens"] == 40
    assert found.meta_info["prompt_tokens"] == 6000


def test_more_tokens_than_recorded_go_on_at_the_recorded_pace() -> None:
    found = answered(plan_of("dflash_r8"), ask(1024, 512, concurrency=1))
    assert sum(tokens for _, tokens in found.chunks) == 512
    gaps = [b - a for (a, _), (b, _) in zip(found.chunks[-10:], found.chunks[-9:], strict=False)]
    assert gaps == pytest.approx([0.02227] * 9, abs=0.0001)  # the recorded time per token
    # One verify round gave one token (256 tokens, 255 rounds): the ratio is kept.
    assert found.meta_info["spec_accept_length"] == pytest.approx(256 / 255, abs=0.001)


def test_a_request_beyond_the_recorded_ones_repeats_and_says_so() -> None:
    found = answered(plan_of("dflash_r8"), ask(1024, 256, concurrency=1, index=5))
    assert (found.source, found.exact) == ("seq1[1]", False)
    assert found.mark["because"] == "request 5 of this step was not recorded, request 1 is repeated"


def test_another_concurrency_or_rate_is_refused_with_what_there_is() -> None:
    found = plan_of("dflash_r8").answer(ask(1024, 256, concurrency=3))
    assert isinstance(found, NotRecorded)
    assert found.text.startswith("3 clients was not recorded; recorded: 1 clients 64+16, 8 clients 1024+16")
    found = plan_of("dflash_r8").answer(ask(1024, 256, concurrency=None, request_rate=2.0))
    assert isinstance(found, NotRecorded)
    assert found.text.startswith("open loop at 2 requests/s was not recorded")


def test_a_warmup_is_answered_from_another_load_but_never_from_the_crash() -> None:
    found = answered(plan_of("nextn_r4_full"), ask(1024, 16, concurrency=4, warmup=True))
    assert found.step == "warmup2"  # that load was recorded, with its crash
    found = answered(plan_of("nextn_r4_full"), ask(1024, 16, concurrency=3, warmup=True))
    assert (found.step, found.exact) == ("warmup", False)
    assert str(found.why_not_exact).startswith("a warm-up by 3 clients was not recorded")
    assert isinstance(plan_of("nextn_r4_full").answer(ask(1024, 16, concurrency=3)), NotRecorded)


def test_a_load_only_record_refuses_everything() -> None:
    found = plan_of("ngram_r8").answer(ask(1024, 256))
    assert isinstance(found, NotRecorded)
    assert found.text.startswith("load-only recording")


def test_a_client_that_says_nothing_gets_the_recorded_requests_in_turn() -> None:
    plan = plan_of("dflash_r8_full")
    sources = [answered(plan, ask(1024, 256, concurrency=None, index=None)).source for _ in range(3)]
    assert sources == ["seq1[0]", "seq1[1]", "seq1[0]"]


def test_the_step_that_brought_the_server_down_is_the_last_it_answered() -> None:
    plan = plan_of("nextn_r4_full")
    assert plan.crash_step == "warmup2"
    assert plan.crash_batch == 4
    assert plan.crash_after_s == pytest.approx(5.5485, abs=0.001)
    assert [step.name for step in plan.steps] == ["warmup", "warmup2"]  # refused connections are no steps


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def timeline_of(name: str) -> Timeline:
    found = record(name)
    crashed = found.status.status == "crashed" and found.status.ready_s is not None
    return timeline(found.log_bytes(), found.requests(), found.status.marks, to_the_end=crashed)


@pytest.mark.parametrize("folder", ALL, ids=lambda folder: folder.name)
def test_the_pieces_of_a_log_are_the_log_and_time_never_goes_back(folder: Path) -> None:
    line = timeline_of(folder.name)
    pieces = (line.start, *line.steps.values(), line.rest)
    assert b"".join(emission.data for piece in pieces for emission in piece) == (folder / "server.log").read_bytes()
    for piece in pieces:
        times = [emission.at_s for emission in piece]
        assert times == sorted(times)
        assert all(at_s >= 0 for at_s in times)


def test_a_step_begins_with_its_own_request_and_the_rest_with_the_first_other_one() -> None:
    line = timeline_of("dflash_r8_full")
    assert [(step, len(piece)) for step, piece in line.steps.items()] == [
        ("warmup", 2),
        ("warmup2", 11),
        ("seq1", 17),
        ("conc8", 22),
        ("long_8k", 4),
    ]
    assert b'"POST /generate HTTP/1.1" 200 OK' in line.steps["long_8k"][0].data
    assert b"[http_server] Error: Requested token count exceeds" in line.rest[0].data
    # Eight requests were sent within 3 ms and logged in one second; the last line came 13 s later.
    assert line.steps["conc8"][-1].at_s == pytest.approx(13.9, abs=1.0)


def test_lines_of_known_marks_are_paced_finer_than_a_second() -> None:
    """Marks of dflash_r8_full: load_begin 0.4, load_end 0.6, mamba 4.62, pool 5.02, ready 13.45 s."""
    line = timeline_of("dflash_r8_full")

    def at(text: bytes) -> float:
        return next(emission.at_s for emission in line.start if text in emission.data)

    assert at(b"Load weight end") - at(b"Load weight begin") == pytest.approx(0.2)
    assert at(b"Memory pool end") - at(b"Mamba Cache is allocated") == pytest.approx(0.4)
    assert at(b"fired up") - at(b"Load weight begin") == pytest.approx(13.05)


def test_a_log_that_was_ready_before_it_listened_is_ready_when_it_listens() -> None:
    line = timeline_of("0512_dflash_r4_exact")
    assert line.listening is not None
    assert line.ready == line.listening
    assert b"Uvicorn running on" in line.start[line.ready].data


def test_a_refused_start_is_all_start() -> None:
    line = timeline_of("0512_dflash_r8_exact")
    assert (line.listening, line.ready, line.steps, line.rest) == (None, None, {}, ())


def test_without_access_lines_steps_are_found_by_the_clock() -> None:
    log = b"".join(
        f"[2026-01-01 00:00:{second:02d}] {text}\n".encode()
        for second, text in [
            (0, "Uvicorn running on x"),
            (1, "The server is fired up and ready to roll!"),
            (5, "Prefill batch, one"),
            (9, "Prefill batch, two"),
        ]
    )
    begin = 1_767_225_600.0 + 7200 + 5  # 2026-01-01 00:00:05 of a clock two hours west
    traces = [
        RequestTrace(
            step=name,
            phase="measured",
            index=0,
            concurrency=1,
            input_tokens=1,
            max_new_tokens=1,
            sent_s=0.0,
            sent_unix_s=begin + later,
            http_status=200,
            end_s=1.0,
        )
        for name, later in (("a", 0.1), ("b", 4.2))
    ]
    line = timeline(log, traces, {}, to_the_end=False)
    assert [e.data for e in line.steps["a"]] == [b"[2026-01-01 00:00:05] Prefill batch, one\n"]
    assert [e.data for e in line.steps["b"]] == [b"[2026-01-01 00:00:09] Prefill batch, two\n"]


def test_a_log_without_a_line_about_its_steps_still_plays() -> None:
    log = (
        b"[2026-01-01 00:00:00] Uvicorn running on x\n[2026-01-01 00:00:00] The server is fired up and ready to roll!\n"
    )
    line = timeline(log, record("dflash_r8").requests(), {}, to_the_end=False)
    assert b"".join(emission.data for emission in line.start) == log
    assert line.rest == ()


# ── whole records over HTTP ──────────────────────────────────────────────────────────────────────────────────────────


class Playing:
    """A replay process and what it wrote."""

    def __init__(self, source: Path, log: Path, speed: str) -> None:
        self.port = free_port("127.0.0.1")
        self.log = log
        argv = [sys.executable, "-m", "specbench.replay", str(source), "--port", str(self.port), "--speed", speed]
        with log.open("wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.get("/health")[0] == 200:
                    return
            assert self.process.poll() is None, self.log.read_text()
        raise AssertionError("never ready")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextlib.contextmanager
def playing(name: str, tmp_path: Path, speed: str = "instant") -> Iterator[Playing]:
    replay = Playing(RECORDS / name, tmp_path / "replay.log", speed)
    try:
        replay.wait_ready()
        yield replay
    finally:
        if replay.process.poll() is None:
            replay.process.kill()
        replay.process.wait(60)


def drive(url: str, asked: Sequence[RequestTrace], *, at_once: bool = True) -> list[Received]:
    """Sends requests of the same shape as recorded ones, by the real client."""

    async def send() -> list[Received]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            calls = [
                generate(
                    session,
                    url,
                    Sent(
                        input_ids=[1000 + trace.index] * trace.input_tokens,
                        max_new_tokens=trace.max_new_tokens,
                        headers={CONCURRENCY: str(trace.concurrency), INDEX: str(trace.index)},
                        timeout_s=30.0,
                    ),
                )
                for trace in asked
            ]
            return list(await asyncio.gather(*calls)) if at_once else [await call for call in calls]

    return asyncio.run(send())


def steps(name: str) -> list[list[RequestTrace]]:
    traces = record(name).requests()
    return [[t for t in traces if t.step == step] for step in dict.fromkeys(t.step for t in traces)]


def test_a_served_record_played_whole_gives_its_figures_and_its_log_byte_for_byte(tmp_path: Path) -> None:
    with playing("dflash_r8", tmp_path) as replay:
        for step in steps("dflash_r8"):
            for trace, got in zip(step, drive(replay.url, step), strict=True):
                assert got.error is None
                assert [tokens for _, tokens in got.chunks] == [tokens for _, tokens in trace.chunks]
                assert got.marks == [at_s for at_s, _ in trace.chunks]
                assert got.finish_reason == "length"
                mark = got.meta_info.pop("specbench_replay")
                assert mark["exact"] is True
                assert mark["end_s"] == trace.end_s
                assert got.meta_info == trace.meta_info
        assert replay.get("/server_info")[0] == 200
        assert replay.stop() == 0
    assert replay.log.read_bytes() == (RECORDS / "dflash_r8" / "server.log").read_bytes()


def test_at_a_speed_chunks_come_at_their_recorded_time_divided_by_it(tmp_path: Path) -> None:
    """dflash_r8_full_sim, 8 clients: 3.05 s as recorded, 0.305 s at 10 times the speed."""
    source = tmp_path / "record"
    source.mkdir()
    for file in (RECORDS / "dflash_r8_full_sim").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    # The start alone is made short: its log keeps only the lines that tell that it is ready.
    lines = (source / "server.log").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if any(w in line for w in (b"fired up", b"Uvicorn running", b"POST /generate"))]
    (source / "server.log").write_bytes(b"".join(kept))
    replay = Playing(source, tmp_path / "replay.log", "10")
    try:
        replay.wait_ready()
        (step,) = [step for step in steps("dflash_r8_full_sim") if step[0].step == "conc8"]
        for trace, got in zip(step, drive(replay.url, step), strict=True):
            assert [tokens for _, tokens in got.chunks] == [tokens for _, tokens in trace.chunks]
            # How exact it is, is benchmarks/replay_fidelity.py's, on a quiet machine. Here test processes share cores:
            # a client that is held up sees chunks early or late, but not at once, nor as late as they were recorded.
            assert trace.end_s is not None and got.end_s is not None
            assert 0.5 * trace.end_s / 10 < got.end_s < 0.5 * trace.end_s
        assert replay.stop() == 0
    finally:
        replay.process.kill()
        replay.process.wait(60)


def test_recorded_failures_are_failures_again(tmp_path: Path) -> None:
    """An error event, a connection broken in the middle, an HTTP error, an empty stream: each with its own text."""
    fine = steps("nospec_r8")[0][0]
    failures = {
        "error event in the stream: no more slots": {"chunks": (), "output_tokens": 0, "http_status": 200},
        "the connection broke after 3 tokens: gone": {"chunks": ((0.1, 1), (0.2, 2)), "output_tokens": 3},
        "HTTP 503: The request queue is full.": {"chunks": (), "output_tokens": 0, "http_status": 503},
        "the stream ended without a token": {"chunks": (), "output_tokens": 0, "http_status": 200},
    }
    traces = [
        fine.model_copy(
            update={
                "step": f"s{place}",
                "index": place,
                "input_tokens": 10 + place,
                "error": text,
                "meta_info": {},
                **how,
            }
        )
        for place, (text, how) in enumerate(failures.items())
    ]
    with RecordWriter(tmp_path / "record") as writer:
        writer.config(record("nospec_r8").config)
        writer.command([])
        writer.env({})
        writer.log_path.write_bytes(record("nospec_r8").log_bytes())
        writer.requests(traces)
        writer.finish(record("nospec_r8").status)
    with playing(str(tmp_path / "record"), tmp_path) as replay:
        got = drive(replay.url, traces)
    assert [r.http_status for r in got] == [200, 200, 503, 200]
    assert [r.output_tokens for r in got] == [0, 3, 0, 0]
    broken = got.pop(1).error
    assert broken is not None and broken.startswith("the connection broke after 3 tokens: ")
    assert [r.error for r in got] == [text for text in failures if "broke" not in text]


def test_a_recorded_crash_breaks_the_streams_ends_the_log_and_the_process(tmp_path: Path) -> None:
    with playing("nextn_r4_full", tmp_path) as replay:
        warmup, batch, seq, _ = steps("nextn_r4_full")
        assert [got.error for got in drive(replay.url, warmup)] == [None]
        crashed = drive(replay.url, batch)
        assert [got.http_status for got in crashed] == [200] * 4
        assert [got.chunks for got in crashed] == [[]] * 4
        assert all(got.error and got.error.startswith("the connection broke after 0 tokens") for got in crashed)
        assert replay.process.wait(60) == 1  # the code was not recorded
        after = drive(replay.url, seq, at_once=False)
        assert {got.error for got in (*crashed, *after)} == {
            "the connection broke after 0 tokens: the server closed or refused it"
        }
    assert replay.log.read_bytes() == (RECORDS / "nextn_r4_full" / "server.log").read_bytes()


def test_tokens_that_came_before_a_recorded_crash_come_again(tmp_path: Path) -> None:
    with playing("h200_nextn-4-full-card", tmp_path) as replay:
        warmup, one, batch = steps("h200_nextn-4-full-card")
        assert [got.error for got in (*drive(replay.url, warmup), *drive(replay.url, one))] == [None, None]
        crashed = drive(replay.url, batch)
        assert [got.error for got in crashed] == [
            "the connection broke after 1 tokens: the server closed or refused it",
            *["the connection broke after 0 tokens: the server closed or refused it"] * 3,
        ]
        assert [(got.marks, got.output_tokens) for got in crashed] == [([0.476487], 1), *[([], 0)] * 3]
        assert replay.process.wait(60) != 0
    path = RECORDS / "h200_nextn-4-full-card" / "server.log"
    assert replay.log.read_bytes() == path.read_bytes()


def test_requests_that_were_too_long_fail_as_they_did(tmp_path: Path) -> None:
    """One was aborted after a chunk, one refused in an event: each of its kind, with the recorded log."""
    recorded = steps("h200_too-long")
    assert [len(step) for step in recorded] == [1, 1, 1]
    with playing("h200_too-long", tmp_path) as replay:
        fits, aborted, refused = (drive(replay.url, step)[0] for step in recorded)
        assert replay.stop() == 0
    assert (fits.error, fits.output_tokens) == (None, 64)
    assert aborted.error is not None
    assert aborted.error.startswith("aborted by the engine: Input length (19994 tokens) exceeds the maximum allowed")
    assert (aborted.finish_reason, aborted.marks) == ("abort", [0.118742])
    assert refused.error is not None
    assert refused.error.startswith("error event in the stream: Requested token count exceeds the model's maximum")
    assert replay.log.read_bytes() == record("h200_too-long").log_bytes()


@pytest.mark.parametrize(
    ("name", "code", "last_words"),
    [
        ("0512_dflash_r8_exact", -9, b"AssertionError: max_running_request is zero"),
        ("oom_r8", -9, b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB."),
        ("var_nobuffer_r4_badargs", 1, b"AssertionError: no_buffer do not support overlap schedule."),
    ],
)
def test_a_refused_start_ends_with_its_log_and_its_code(
    tmp_path: Path, name: str, code: int, last_words: bytes
) -> None:
    replay = Playing(RECORDS / name, tmp_path / "replay.log", "instant")
    assert replay.process.wait(20) == code
    assert replay.log.read_bytes() == (RECORDS / name / "server.log").read_bytes()
    assert last_words in replay.log.read_bytes()


PROBES = [probe for probe in record("dflash_r8_full").probes() if "error" in probe.body[:30]]


def test_oversize_requests_get_the_recorded_bodies_of_each_endpoint(tmp_path: Path) -> None:
    """The seven recorded error bodies, byte for byte, from prompts of the recorded lengths."""
    assert len(PROBES) == 7
    lengths = {"32600": 32600, "33000": 33000}
    with playing("dflash_r8_full", tmp_path) as replay:
        for probe in PROBES:
            length = lengths[probe.case.split("_")[1]]
            prompt: dict[str, Any] = {
                "/generate": {"input_ids": [1] * length},
                "/v1/completions": {"prompt": "x" * length},
                "/v1/chat/completions": {"messages": [{"role": "user", "content": "x" * length}]},
            }[probe.path]
            status, body = replay.get(probe.path, "POST", {**probe.sent, **prompt})
            assert status == probe.http_status, probe.case
            if body.startswith("data: "):
                assert body == probe.body
            else:
                assert json.loads(body) == json.loads(probe.body)
        assert replay.stop() == 0
    # What the recorded server logged about them is in the log too.
    assert b"[http_server] Error: Requested token count exceeds" in replay.log.read_bytes()


def test_the_openai_routes_stream_and_count(tmp_path: Path) -> None:
    with playing("nospec_r8", tmp_path) as replay:
        body = {"model": "x", "messages": [{"role": "user", "content": "y" * 1005}], "max_tokens": 256}
        status, text = replay.get("/v1/chat/completions", "POST", body)
        whole = json.loads(text)
        assert status == 200
        assert whole["usage"]["prompt_tokens"] == 1024  # 1005 characters and the template's 19
        assert whole["usage"]["completion_tokens"] == 256
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["specbench_replay"]["exact"] is True
        assert whole["specbench_replay"]["prompt_tokens_from"] == "1 token per character"

        body = {"prompt": [5] * 1024, "max_tokens": 256, "stream": True, "stream_options": {"include_usage": True}}
        status, text = replay.get("/v1/completions", "POST", body)
        events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
        assert text.endswith("data: [DONE]\n\n")
        assert sum(len(e["choices"][0]["text"].split()) for e in events if e["choices"]) == 256
        assert events[-1]["usage"]["completion_tokens"] == 256


def test_what_the_server_told_about_itself_is_told_again(tmp_path: Path) -> None:
    with playing("dflash_r8_full", tmp_path) as replay:
        assert json.loads(replay.get("/server_info")[1])["max_total_num_tokens"] == 580619
        assert json.loads(replay.get("/get_server_info")[1])["max_req_input_len"] == 32762
        assert json.loads(replay.get("/model_info")[1])["model_type"] == "qwen3_5"
        assert "sglang:" in replay.get("/metrics")[1]
        assert replay.get("/flush_cache", "POST")[0] == 200
        assert replay.get("/absent")[0] == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([1], "must be a JSON object"),
        ({"input_ids": [[1], [2]]}, "batches were not recorded"),
        ({}, "one prompt is needed"),
    ],
)
def test_a_body_that_is_no_single_request_is_answered_with_400(tmp_path: Path, body: Any, words: str) -> None:
    with playing("nospec_r8", tmp_path) as replay:
        status, text = replay.get("/generate", "POST", body)
        assert status == 400
        assert words in text


def test_a_load_only_record_answers_422_and_says_so(tmp_path: Path) -> None:
    with playing("ngram_r8", tmp_path) as replay:
        status, text = replay.get("/generate", "POST", {"input_ids": [1] * 10})
        assert status == 422
        assert "load-only recording" in text


def test_the_fidelity_benchmark_measures_every_chunk() -> None:
    """Small and fast: that it measures is tested here, the target is the benchmark's own."""
    script = Path(__file__).parent.parent / "benchmarks" / "replay_fidelity.py"
    argv = [sys.executable, str(script), "--streams", "4", "--chunks", "10", "--gap-ms", "5", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    figures = json.loads(done.stdout)
    assert figures["chunks"] == 40
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert done.returncode == (0 if figures["p99_ms"] <= figures["target_p99_ms"] else 1)


def test_a_missing_record_is_two_lines_and_code_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specbench.replay", str(tmp_path), "--port", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dflash_r8", "plays the record dflash_r8 (SGLang 0.5.16, served): ready at once"),
        ("oom_r8", "plays the record oom_r8 (SGLang 0.5.16, refused): that server was never ready, so this one ends"),
    ],
)
def test_what_is_played_is_said_apart_from_the_log(name: str, said: str) -> None:
    port = free_port("127.0.0.1")
    argv = [sys.executable, "-m", "specbench.replay", str(RECORDS / name), "--port", str(port), "--speed", "instant"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    words = [process.stderr.readline().decode()]
    if name == "dflash_r8":
        words.append(process.stderr.readline().decode())
    process.terminate()
    log, _ = process.communicate(timeout=60)
    assert b"specbench.replay" not in log
    assert words[0].startswith(f"specbench.replay: {said}")
    assert words[1:] == ([f"specbench.replay: listening on http://127.0.0.1:{port}\n"] if len(words) > 1 else [])


def test_at_the_recorded_speed_the_wait_is_told() -> None:
    said: list[str] = []
    record = RunRecord.open(RECORDS / "dflash_r8")
    Replay(record, host="::1", port=1, speed=2.0, out=io.BytesIO(), say=said.append).say_what_is_played()
    (text,) = said
    assert text == (
        "plays the record dflash_r8 (SGLang 0.5.16, served): ready in about 53 s (the recorded start took 106 s); "
        "--speed instant skips it"
    )


@pytest.mark.parametrize("spelling", ["served-model-name", "--served-model-name", "served_model_name"])
def test_its_model_has_the_name_under_which_it_was_served(spelling: str) -> None:
    found = record("dflash_r8")
    found.config = found.config.replace({"engine.args": {spelling: "mine"}})
    assert Replay(found, host="::1", port=1, speed=2.0, out=io.BytesIO())._model == "mine"
