"""The crash of NEXTN at its first full batch: what the two sizes are made of, and what avoids it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.engines.sglang.verify_mask import FullMask, full_mask
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
CRASHED = {
    "h200-tp2_nextn-8": 8,
    "h200-tp2_nextn-8-full-card": 8,
    "h200_nextn-4-full-card": 4,
    "nextn_r4_full": 4,
}
REPORT = "a fault of the engine, to be reported to its maintainers with these lines"
LOG = (RECORDS / "h200-tp2_nextn-8" / "server.log").read_bytes()


@pytest.mark.parametrize(("name", "requests"), CRASHED.items())
def test_the_sizes_of_every_recorded_crash_are_explained(name: str, requests: int) -> None:
    """8 × 4 × 32,768 = 1,048,576 and 8 × 4 × 4 = 128 more; 4 × 4 × 32,768 = 524,288 and 64 more."""
    diagnosis = of_path(RECORDS / name)
    found = full_mask(diagnosis.log.failures[0], diagnosis.log.server_args or {}, diagnosis.pools.context_len)
    assert found == FullMask(requests=requests, draft_tokens=4, context=32_768)
    assert (found.buffer, found.missing) == {8: (1_048_576, 128), 4: (524_288, 64)}[requests]
    assert REPORT not in diagnosis.findings[0].cause
    captured = [graph.batch_sizes for graph in diagnosis.log.graphs if graph.role == "target"]
    assert captured and {max(sizes) for sizes in captured if sizes} == {requests}


def test_the_words() -> None:
    (finding,) = of_path(RECORDS / "h200-tp2_nextn-8").findings
    assert (finding.id, finding.severity) == ("crashed-serving", "fatal")
    assert finding.cause.endswith(
        "(No pool was exhausted, it is a fault of the engine: its CUDA graphs have 8 requests × 4 draft tokens × "
        "32,768 context tokens = 1,048,576 entries for the attention mask, and a batch of 8, the largest graph's, "
        "needs 8 × 4 × 4 = 128 more for the draft tokens themselves. --disable-cuda-graph avoids it (recorded with "
        "SGLang 0.5.16, the triton backend and two H200s: batches of 8 were served, a single request took 105 "
        "instead of 13 ms per token). SGLang 0.5.17 allocates both parts, by its source.)"
    )


def test_the_remedy_is_proven_by_the_same_configuration_without_graphs() -> None:
    crashed, served = (RunRecord.open(RECORDS / f"h200-tp2_nextn-8{end}") for end in ("", "-no-graphs"))
    flag = {"disable-cuda-graph": True}
    same = {"name": crashed.config.name, "workload.warmup": 1, "engine.args": crashed.config.engine.args}
    assert served.config.engine.args == {**crashed.config.engine.args, **flag}
    assert served.config.replace(same) == crashed.config
    assert served.status.status == "served" and all(request.ok for request in served.requests())
    assert of_path(served.folder).served == 8
    assert [round(1000 * _seconds_per_token(record)) for record in (crashed, served)] == [13, 105]


def _seconds_per_token(record: RunRecord) -> float:
    """Of the request that ran alone, after its first token; in both records no draft token was accepted."""
    (alone,) = [request for request in record.requests() if request.step == "conc1-in1024"]
    assert (alone.output_tokens, len(alone.chunks), alone.meta_info["spec_verify_ct"]) == (64, 64, 63)
    return (alone.chunks[-1][0] - alone.chunks[0][0]) / 63


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (rb"1048704", b"1048703"),  # not the square of the draft tokens
        (rb"\(1048576\)", b"(1048577)"),  # no whole number of requests
        (rb"_update_target_verify_buffers", b"_update_decode_buffers"),
        (rb"triton_backend\.py", b"flashinfer_backend.py"),
        (rb"speculative_num_draft_tokens=4", b"speculative_num_draft_tokens=5"),
        (rb"context_len=32768", b"context_len=32767"),
        (rb"server_args=ServerArgs", b"arguments"),  # not printed
    ],
)
def test_sizes_that_are_made_of_something_else_are_to_be_reported(pattern: bytes, new: bytes) -> None:
    log, times = re.subn(pattern, new, LOG)
    assert times
    (finding,) = of_log(log.splitlines(keepends=True)).findings
    assert finding.id == "crashed-serving"
    assert REPORT in finding.cause and "disable-cuda-graph" not in finding.cause
