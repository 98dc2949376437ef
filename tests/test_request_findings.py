"""Requests that were refused, cut or answered short: from a record's requests, from log lines, from a client's paste."""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis

RECORDS = Path(__file__).parent / "records"
READY = "[2026-05-20 10:11:12] The server is fired up and ready to roll!"
STAMP = "[2026-05-20 10:11:13] "
CONTEXT = "The input (33000 tokens) is longer than the model's context length (32768 tokens)."
TOTAL = "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 32769 tokens: 32705 tokens from the input messages and 64 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit."
POOL = "Input length (19994 tokens) exceeds the maximum allowed length (19994 tokens). Use a shorter input or enable --allow-auto-truncate."
QUEUE = "The request queue is full."


def paste(*lines: str, **arguments: Any) -> Diagnosis:
    return of_log(io.BytesIO("\n".join(lines).encode()), name="paste", told=Told(arguments=arguments))


def only(diagnosis: Diagnosis) -> Finding:
    (found,) = diagnosis.findings
    return found


#: How the engine logs a refusal, and how clients show it.
LOGGED = f"{STAMP}[http_server] Error: {{}}"
NATIVE = '{{"error": {{"message": {}}}}}'
STREAMED = 'data: {{"error":{{"message":{},"type":"invalid_request_error","code":400,"retryable":false}}}}'
OPENAI = '{{"object":"error","message":{},"type":"BadRequestError","param":null,"code":400}}'
SPACED = '{{"object": "error", "message": {}, "type": "BadRequestError", "param": null, "code": 400}}'


def shown(form: str, text: str) -> str:
    return form.format(text if form is LOGGED else json.dumps(text))


WORDS = {
    CONTEXT: ("context-overflow", "1 request refused, too long for the context length: 33,000 input tokens against 32,768."),
    TOTAL: ("context-overflow", "1 request refused, too long for the context length: 32,705 input + 64 output = 32,769 tokens against 32,768."),
    POOL: ("pool-overflow", "1 request refused, too long for the KV pool: 19,994 input tokens, which must be fewer than 19,994."),
    QUEUE: ("queue-full", "1 request refused with 503, the queue was full: it holds as many as max_queued_requests allows."),
}  # fmt: skip


@pytest.mark.parametrize("form", [NATIVE, STREAMED, OPENAI, SPACED])
@pytest.mark.parametrize("text", WORDS)
def test_what_a_client_pasted(form: str, text: str):
    line = shown(form, text)
    finding = only(paste(line))
    assert finding.id == WORDS[text][0]
    assert finding.cause.startswith(WORDS[text][1])
    assert [one.line for one in finding.evidence] == [1]
    assert text in finding.evidence[0].text


@pytest.mark.parametrize("text", [CONTEXT, TOTAL, POOL])
def test_what_the_server_logged(text: str):
    finding = only(paste(READY, shown(LOGGED, text)))
    assert (finding.id, finding.severity) == (WORDS[text][0], "costly")
    assert finding.cause.startswith(WORDS[text][1])


def test_the_exception_of_the_openai_package():
    line = f"openai.BadRequestError: Error code: 400 - {{'object': 'error', 'message': \"{CONTEXT}\", 'code': 400}}"
    assert only(paste(line)).id == "context-overflow"


def test_the_schedulers_own_line_and_several_of_them():
    line = f"{STAMP}{POOL}, self.rid='9b23'"
    finding = only(paste(READY, line, line, line.replace("Input length (19994", "Input length (25000")))
    assert (finding.id, finding.cause.partition(",")[0]) == ("pool-overflow", "3 requests refused")
    assert [one.line for one in finding.evidence] == [2, 3, 4]


@pytest.mark.parametrize(
    "line",
    [
        '{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}',  # another engine's
        '{"error": {"message": "model not found"}}',
        f"{STAMP}Receive: obj=GenerateReqInput(text='{QUEUE}')",
        f"{STAMP}The request queue is full of surprises",
    ],
)
def test_what_only_looks_like_a_refusal(line: str):
    assert paste(READY, line).findings == ()


def test_a_full_queue_is_known_by_its_limit_and_its_statuses():
    """Six requests at once, one runs, one waits: four are turned away."""
    found = of_path(Path(__file__).parent / "logs" / "sglang" / "provoked" / "0.5.16-queue.log")
    (finding,) = [one for one in found.findings if one.id == "queue-full"]
    assert finding.cause.startswith(
        "4 requests refused with 503, the queue was full: it holds 1 (max_queued_requests) while 1 ran."
    )
    assert [one.line for one in finding.evidence] == [41, 42, 43]
    (remedy,) = finding.remedies
    assert (remedy.flags, remedy.basis) == ("--max-queued-requests 5", "source")


def access(status: str, path: str = "/generate", method: str = "POST") -> str:
    return f'{STAMP}INFO:     127.0.0.1:46578 - "{method} {path} HTTP/1.1" {status}'


def test_statuses_alone_are_counted_and_are_no_reason():
    bad, full = access("400 Bad Request"), access("503 Service Unavailable", "/v1/chat/completions")
    finding = only(paste(READY, *[bad] * 12, full))
    assert (finding.id, finding.severity) == ("requests-failed", "notice")
    assert finding.cause == (
        "12 requests answered with 400, 1 request answered with 503: the reason is in no line of this log. What the "
        "client was told says it."
    )


def test_very_many_refusals_are_counted_although_few_are_kept():
    line = f"{STAMP}{POOL}, self.rid='9b23'"
    assert only(paste(READY, *[line] * 700)).cause.startswith("700 requests refused")
    assert only(paste(READY, *[access("400 Bad Request")] * 700)).cause.startswith("At least 500 requests answered")


@pytest.mark.parametrize("line", [access("200 OK"), access("503 Service Unavailable", "/health", "GET")])
def test_answers_and_health_checks_are_not_counted(line: str):
    assert paste(READY, line, line).findings == ()


def test_statuses_beside_their_reason_are_not_told_twice():
    finding = only(paste(READY, shown(LOGGED, CONTEXT), access("400 Bad Request")))
    assert finding.id == "context-overflow"


def test_inputs_that_were_cut_to_the_pool():
    """Of 9,000 tokens 7,994 were kept, of 33,000 (cut to the context of 32,768 before) 7,994: 24,774 / 32,768 lost."""
    found = of_path(Path(__file__).parent / "logs" / "sglang" / "provoked" / "0.5.16-truncate.log")
    (finding,) = [one for one in found.findings if one.id == "input-truncated"]
    assert finding.cause == (
        "2 requests cut to fit the KV pool (--allow-auto-truncate): of 32,768 input tokens the first 7,994 were kept, "
        "the rest was not seen by the model."
    )
    assert finding.lost == pytest.approx(24_774 / 32_768)
    assert [one.line for one in finding.evidence] == [41, 46]
    assert finding.remedies  # by which the pool is no limit any more: the context is, 32,768 - 6
    assert all(remedy.predicted["max_input_tokens"] == 32_762 for remedy in finding.remedies)


def test_inputs_that_were_cut_to_the_context():
    line = f"{STAMP}{CONTEXT} Truncating the input."
    finding = only(paste(READY, line))
    assert (finding.id, finding.severity) == ("input-truncated", "costly")
    assert "cut to fit the context length" in finding.cause
    assert "of 33,000 input tokens the first 32,768 were kept" in finding.cause


def changed_record(tmp_path: Path, name: str, change: dict[str, Any], first: int = 1) -> Path:
    """A record whose first requests are others."""
    record = tmp_path / name
    shutil.copytree(RECORDS / name, record)
    path = record / "requests.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows[:first]:
        row.update(change)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return record


def test_an_answer_that_the_pool_cut_short(tmp_path: Path):
    """The pool has 20,000 tokens: 20,000 - 1 - 19,934 - 1 = 64 may be answered, of 500 that were asked."""
    record = changed_record(tmp_path, "h200_too-long", {"max_new_tokens": 500})
    (finding,) = [one for one in of_path(record).findings if one.id == "output-cut-by-pool"]
    assert finding.cause == (
        "1 answer ended early as if by the requested length: 64 of 500 tokens: 20,000 tokens of KV - 1 - 19,934 input - "
        "1 = 64 may be answered. The engine lowers max_new_tokens without a word."
    )
    assert finding.evidence[0].text == ("step conc1-in19934, request 0: finish_reason length after 64 of 500 tokens")
    assert finding.lost == pytest.approx(436 / 500)
    assert all((remedy.predicted["kv_tokens"] or 0) >= 20_436 for remedy in finding.remedies)
    for same in ({"max_new_tokens": 64}, {"max_new_tokens": 500, "finish_reason": "stop"}):
        quiet = of_path(changed_record(tmp_path / str(len(same)), "h200_too-long", same))
        assert "output-cut-by-pool" not in {one.id for one in quiet.findings}


def test_requests_of_a_record_that_met_a_full_queue(tmp_path: Path):
    """Two of the record's requests, counted against all that were sent."""
    record = changed_record(
        tmp_path, "nospec_r4", {"error": f"HTTP 503: {QUEUE}", "http_status": 503, "finish_reason": None}, first=2
    )
    found = of_path(record)
    (finding,) = [one for one in found.findings if one.id == "queue-full"]
    assert finding.cause.startswith("2 requests refused with 503, the queue was full: it holds as many as")
    assert finding.lost == pytest.approx(2 / 19)  # warm-up included
    assert "requests-failed" not in {one.id for one in found.findings}


def test_a_remedy_for_a_longer_input_takes_it():
    """Of 19,994 tokens, which have to be fewer than the longest: 19,994 + 7 are the least that a pool must have."""
    (finding,) = [one for one in of_path(RECORDS / "h200_too-long").findings if one.id == "pool-overflow"]
    assert finding.remedies
    for remedy in finding.remedies:
        longest = remedy.predicted["max_input_tokens"]
        assert longest is not None and longest > 19_994
