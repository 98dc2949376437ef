"""The crash of NEXTN at its first full batch: what the two sizes are made of, and what avoids it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.remedies import Situation, remedies
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.verify_mask import FullMask, ends_at_full_batch, full_mask
from specbench.records.record import RunRecord
from specbench.specs import named_by

RECORDS = Path(__file__).parent / "records"
CRASHED = {
    "h200-tp2_nextn-8": 8,
    "h200-tp2_nextn-8-full-card": 8,
    "h200_nextn-4-full-card": 4,
    "nextn_r4_full": 4,
    "tp8-quarters_nextn-8": 8,
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
    assert finding.cause.startswith(
        "A fault of the engine: the attention mask of its CUDA graphs is 128 entries too small for a full batch of 8. "
        "No pool was exhausted. The mask has 8 requests × 4 draft tokens × 32,768 context tokens = 1,048,576 entries, "
        "and a batch of 8, the largest graph's, needs 8 × 4 × 4 = 128 more for the draft tokens themselves. Known in "
        "SGLang 0.5.16, as recorded; 0.5.17 allocates both parts, by its source; others were not read for this. The "
        "server died while serving after 2 requests (warm-up included), at the first batch of step conc8-in1024 (8 at "
        "once): RuntimeError: The expanded size of the tensor (1048576) must match the existing size (1048704)"
    )


def test_a_bare_log_says_which_versions_its_lines_fit() -> None:
    """Where its arguments were shortened; whole, their names tell the release."""
    shortened = re.sub(rb"tokenizer_path='[^']*', ", b"", LOG)
    found = of_log(shortened.splitlines(keepends=True))
    assert "others were not read for this (the lines of this log fit 0.5.16 to 0.5.20). The server" in (
        found.findings[0].cause
    )
    assert "others were not read for this. The server" in of_log(LOG.splitlines(keepends=True)).findings[0].cause


def test_the_remedy_rests_on_a_recording_and_shows_no_figures() -> None:
    for path in (RECORDS / "h200-tp2_nextn-8", RECORDS / "h200-tp2_nextn-8" / "server.log"):
        finding = to_document(of_path(path))["findings"][0]
        (remedy,) = finding["remedies"]
        assert (remedy["set"], remedy["flags"]) == ({"engine.args.disable-cuda-graph": True}, "--disable-cuda-graph")
        assert (remedy["basis"], remedy["predicted"]) == ("recording", None)
        assert remedy["note"].startswith("decoding without CUDA graphs is slower: a single request took 105 instead of")


def running_at_once(requests: int, changes: Mapping[str, Any]) -> bool:
    config = RunRecord.open(RECORDS / "h200-tp2_nextn-8").config
    return ends_at_full_batch(settings(config.replace(changes)), requests)


def test_the_crash_is_known_before_the_start() -> None:
    for name, requests in CRASHED.items():
        budget = predict(RunRecord.open(RECORDS / name).config)
        assert budget.verdict == "serves"
        assert budget.fault == (
            f"Memory suffices, but SGLang 0.5.16 ends at its first full batch (of {requests}), as recorded: the "
            "attention mask of its CUDA graphs is too small. --disable-cuda-graph avoids it."
        )


def test_no_recording_that_served_is_warned_of() -> None:
    configs = [RunRecord.open(folder).config for folder in RECORDS.iterdir() if folder.is_dir()]
    assert all(named_by(config.model) is not None for config in configs)
    warned = {config.name for config in configs if predict(config).fault is not None}
    # The last one died before it served, of its environment.
    assert warned == {*CRASHED, "nextn_r4_full_nodeepgemm"}


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, True),
        ({"speculative.algorithm": "EAGLE"}, True),
        ({"engine.args.decode-attention-backend": "triton"}, True),
        ({"memory.cuda_graph_max_bs": 8}, True),
        ({"engine.args.attention-backend": None}, False),  # not known to be triton
        ({"engine.args.attention-backend": "flashinfer"}, False),
        ({"engine.args.prefill-attention-backend": "fa3"}, False),
        ({"engine.args.disable-cuda-graph": True}, False),
        ({"engine.args.disable_decode_cuda_graph": True}, False),
        ({"memory.disable_overlap_schedule": True}, False),
        ({"memory.cuda_graph_max_bs": 7}, False),  # 8 run without graphs
        ({"engine.version": "0.5.15"}, False),  # not read for this
        ({"engine.version": "0.5.17"}, False),  # mended
        ({"speculative": {"algorithm": "none"}}, False),
    ],
)
def test_where_the_crash_is_known(changes: dict[str, Any], known: bool) -> None:
    assert running_at_once(8, changes) is known


def test_a_batch_beyond_the_largest_graph_is_not_known_to_end() -> None:
    """An H200 with two ranks captures up to 256."""
    assert [running_at_once(requests, {}) for requests in (0, 1, 256, 257)] == [False, True, True, False]


def test_remedies_of_a_configuration_with_the_fault_say_so() -> None:
    """Capped for want of state: more slots alone would not do."""
    config = RunRecord.open(RECORDS / "h200-tp2_nextn-8").config.replace({"memory.max_mamba_cache_size": 20})
    budget = predict(config)
    assert (budget.verdict, budget.fault is not None) == ("capped", True)
    situation = Situation(
        config=config, budget=budget, free=None, wanted_requests=8, passed_fraction=None, graphs_bytes=0
    )
    first = remedies(situation)[0]
    assert first.set == {"memory.max_mamba_cache_size": 40}
    assert first.note.endswith("; --disable-cuda-graph as well, or it ends at its first full batch")


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
    finding = of_log(log.splitlines(keepends=True)).findings[0]
    assert finding.id == "crashed-serving"
    assert REPORT in finding.cause and finding.remedies == ()


def test_it_is_known_when_the_servers_own_warm_up_meets_it(tmp_path: Path) -> None:
    """With one request at once the warm-up before "fired up" is the first full batch."""
    log = tmp_path / "server.log"
    log.write_bytes(b"\n".join(line for line in LOG.split(b"\n") if b"fired up" not in line))
    finding = of_path(log).findings[0]
    assert finding.id == "crashed-start"
    assert finding.cause.startswith("A fault of the engine: the attention mask of its CUDA graphs is 128 entries")
    assert [remedy.flags for remedy in finding.remedies] == ["--disable-cuda-graph"]
