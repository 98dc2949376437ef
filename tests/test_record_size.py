"""A record is under 5 MB, whatever a run leaves, and says what is not in it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from specbench.capture.logtail import _MOST_LINES
from specbench.capture.metering import _DOUBLE_AFTER
from specbench.capture.telemetry import _MOST_CHANGES, _MOST_SAMPLES
from specbench.configuration.config import RunConfig
from specbench.records import size as record_size
from specbench.records.size import fit_log, fit_requests
from specbench.records.types import GpuSample, LogArrival, MetricSample, RequestTrace, RunStatus
from specbench.records.writer import RecordWriter

CONFIG = RunConfig.model_validate(
    {"name": "big", "engine": {"version": "0.5.16"}, "model": "Qwen/Qwen3.6-27B", "gpu": {"name": "h200"}}
)
LINE = (
    "[2026-11-29 13:%02d:%02d] Decode batch, #running-req: %d, #full token: %d, full token usage: 0.%02d, "
    "mamba num: %d, accept len: %.2f, accept rate: 0.%02d, cuda graph: True, gen throughput (token/s): %.2f, "
    "#queue-req: %d\n"
)


def decode_lines(count: int, seed: int = 0) -> bytes:
    draw = random.Random(seed)
    return "".join(
        LINE
        % (
            *(n // 60 % 60, n % 60, draw.randrange(64), draw.randrange(500_000), draw.randrange(100)),
            *(draw.randrange(64), draw.uniform(1, 9), draw.randrange(100), draw.uniform(10, 9000), draw.randrange(99)),
        )
        for n in range(count)
    ).encode()


def trace(index: int, chunks: int, draw: random.Random) -> RequestTrace:
    at_s, times = 0.5, []
    for _ in range(chunks):
        at_s += draw.uniform(0.01, 0.03)
        times.append((round(at_s, 6), draw.randrange(1, 9)))
    return RequestTrace(
        step="conc64-in1024",
        phase="measured",
        index=index,
        concurrency=64,
        input_tokens=1024,
        max_new_tokens=512,
        sent_s=index * 0.1,
        sent_unix_s=1.8e9 + index,
        http_status=200,
        chunks=tuple(times),
        end_s=times[-1][0],
        output_tokens=sum(tokens for _, tokens in times),
        finish_reason="length",
    )


@pytest.mark.slow
def test_the_worst_case_stays_under_five_megabytes(tmp_path: Path) -> None:
    """Everything at its own bound at once, of figures that compress badly: a long run with 64 clients."""
    draw = random.Random(1)
    total = 150_754_820_096
    with RecordWriter(tmp_path / "record") as writer:
        writer.log_path.write_bytes(decode_lines(250_000))  # some 50 MB
        writer.config(CONFIG)
        writer.command(["python"])
        writer.env({})
        writer.requests([trace(index, 400, draw) for index in range(1000)])
        used = [draw.randrange(2**36) for _ in range(_MOST_SAMPLES + _MOST_CHANGES)]
        writer.gpu_samples(
            GpuSample(
                t_s=number / 20,
                phase="conc64-in1024",
                gpu=number % 8,
                used_bytes=size // 2**21 * 2**21,
                free_bytes=total - size // 2**21 * 2**21,
                total_bytes=total,
                utilization_pct=float(draw.randrange(101)) if number < _MOST_SAMPLES else None,
                power_w=round(draw.uniform(100, 700), 1) if number < _MOST_SAMPLES else None,
            )
            for number, size in enumerate(used)
        )
        writer.log_arrivals(
            LogArrival(
                line=n, offset=n * 200 + draw.randrange(99), t_s=round(n / 7, 4), within_s=round(draw.random(), 4)
            )
            for n in range(1, _MOST_LINES + 1)
        )
        writer.metric_samples(
            MetricSample(
                t_s=n / 20, phase="conc64-in1024", name=f"gauge_{n % 40}", value=round(draw.uniform(0, 1e5), 2)
            )
            for n in range(2 * _DOUBLE_AFTER)
        )
        record = writer.finish(RunStatus(status="served", origin="measured", reason="it served"))
    assert sum(file.stat().st_size for file in record.folder.iterdir()) < 5_000_000
    log, chunks = record.status.notes[1], record.status.notes[0]
    assert "MB of log; " in log and "lines of its middle are not in the record" in log
    assert chunks.startswith("chunks of answers were merged by ")
    assert len(record.requests()) == 1000
    assert len(record.gpu_samples()) == _MOST_SAMPLES + _MOST_CHANGES


def test_a_log_that_fits_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "_COMPRESS_LOG_FROM", 1000)
    log = tmp_path / "server.log"
    text = decode_lines(100)
    log.write_bytes(text)
    assert fit_log(log) is None
    assert gzip.decompress((tmp_path / "server.log.gz").read_bytes()) == text
    assert not log.exists()


def test_a_log_that_does_not_fit_keeps_its_beginning_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_size, "_COMPRESS_LOG_FROM", 1000)
    monkeypatch.setattr(record_size, "LOG_BYTES", 20_000)
    log = tmp_path / "server.log"
    text = decode_lines(3000)
    log.write_bytes(text)
    note = fit_log(log)
    packed = tmp_path / "server.log.gz"
    assert packed.stat().st_size <= 20_000
    kept, whole = gzip.decompress(packed.read_bytes()).split(b"\n"), text.split(b"\n")
    (cut,) = [number for number, line in enumerate(kept) if line.startswith(b"[specbench: ")]
    lost = int(kept[cut].split()[1])
    assert kept[:cut] == whole[:cut]
    assert kept[cut + 1 :] == whole[cut + lost :]
    assert cut > len(kept) - cut  # more of the beginning
    assert note == f"the engine wrote 1 MB of log; {lost:,} lines of its middle are not in the record"


def test_a_log_of_one_line_without_end_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "_COMPRESS_LOG_FROM", 1000)
    monkeypatch.setattr(record_size, "LOG_BYTES", 20_000)
    log = tmp_path / "server.log"
    log.write_bytes(random.Random(0).randbytes(300_000).replace(b"\n", b""))
    fit_log(log)
    assert (tmp_path / "server.log.gz").stat().st_size <= 20_000


def test_merged_chunks_keep_the_first_token_the_end_and_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "_COMPRESS_REQUESTS_FROM", 1000)
    monkeypatch.setattr(record_size, "REQUESTS_BYTES", 20_000)
    traces = [trace(index, 101, random.Random(index)) for index in range(60)]
    text, compressed, note = fit_requests(traces)
    assert compressed and len(gzip.compress(text.encode())) <= 20_000
    found = [RequestTrace.model_validate_json(line) for line in text.splitlines()]
    for before, after in zip(traces, found, strict=True):
        assert (after.chunks[0], after.chunks[-1][0]) == (before.chunks[0], before.chunks[-1][0])
        assert sum(tokens for _, tokens in after.chunks) == before.output_tokens
        assert len(after.chunks) < len(before.chunks)
    assert note is not None and note.startswith("chunks of answers were merged by ")


def test_few_requests_are_stored_as_they_are() -> None:
    traces = [trace(0, 10, random.Random(0))]
    text, compressed, note = fit_requests(traces)
    assert (compressed, note) == (False, None)
    assert [RequestTrace.model_validate_json(line) for line in text.splitlines()] == traces
