"""Most requests at once: what decode lines, prefill lines and /metrics say, and who of them is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench import show
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.running import AtOnce, most_at_once
from specbench.engines.sglang import logs
from specbench.records.types import MetricSample, RequestTrace
from specbench.studies.study import study

RECORDS = Path(__file__).parent / "records"
STAMP = "[2026-11-29 10:00:00] "
#: Lines of SGLang 0.5.16: three prompts of four arrive while one runs, and are done before the next decode line.
PREFILL = (
    f"{STAMP}Prefill batch, #new-seq: 1, #new-token: 256, #cached-token: 0, full token usage: 0.00, "
    "mamba usage: 0.04, #running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 1.03\n"
    f"{STAMP}Prefill batch, #new-seq: 3, #new-token: 768, #cached-token: 0, full token usage: 0.01, "
    "mamba usage: 0.08, #running-req: 1, #queue-req: 2, cuda graph: False, input throughput (token/s): 900.00\n"
)


def decode(running: int) -> str:
    return (
        f"{STAMP}Decode batch, #running-req: {running}, #full token: 2560, full token usage: 0.02, mamba num: 4, "
        "mamba usage: 0.08, cuda graph: True, gen throughput (token/s): 97.20, #queue-req: 0\n"
    )


def gauge(value: float, name: str = "num_running_reqs") -> MetricSample:
    return MetricSample(t_s=1.0, phase="conc4-in256", name=name, value=value)


def read(text: str) -> AtOnce | None:
    return most_at_once(logs.read(text.encode().splitlines(keepends=True)), ())


def test_a_prefill_line_counts_those_that_it_begins() -> None:
    assert read(PREFILL) == AtOnce(requests=4, source="prefill line 2: 1 running, 3 begun")
    assert read(PREFILL + decode(2)) == AtOnce(requests=4, source="prefill line 2: 1 running, 3 begun")
    assert read(PREFILL + decode(4)) == AtOnce(requests=4, source="decode line 3")
    assert read(PREFILL + decode(5) + decode(4)) == AtOnce(requests=5, source="decode line 3")


@pytest.mark.parametrize("name", ["num_running_reqs", "num_running_reqs{dp_rank=1}"])
def test_metrics_count_where_they_say_more(name: str) -> None:
    log = logs.read((PREFILL + decode(2)).encode().splitlines(keepends=True))
    assert most_at_once(log, (gauge(6.0, name), gauge(0.0, name))) == AtOnce(
        requests=6, source="/metrics: num_running_reqs"
    )
    assert most_at_once(log, (gauge(4.0, name),)) == AtOnce(requests=4, source="prefill line 2: 1 running, 3 begun")
    assert most_at_once(log, (gauge(9.0, "num_running_reqs_offline_batch"),)) == read(PREFILL)


def test_nobody_says() -> None:
    assert read("The server is fired up and ready to roll!\n") is None


def stream(step: str, sent_s: float, *at_s: float, **other: Any) -> RequestTrace:
    return RequestTrace(
        step=step,
        phase="measured",
        index=0,
        input_tokens=256,
        max_new_tokens=8,
        sent_s=sent_s,
        chunks=tuple((at, 1) for at in at_s),
        end_s=9.0,
        **other,
    )


def test_the_client_counts_where_the_engine_says_nothing() -> None:
    silent = logs.read([b"The server is fired up and ready to roll!\n"])
    three = [
        stream("conc4", 0.0, 1.0, 3.0),
        stream("conc4", 0.5, 1.0, 2.0),
        stream("conc4", 0.0, 3.0),  # a single chunk, when the first one ends
        stream("conc4", 0.0, 3.5, 4.0),  # waited until then
        stream("conc4", 0.0, 1.0, 3.0, error="HTTP 500: x"),
        stream("conc8", 1.0, 0.5, 1.0),
    ]
    said = AtOnce(requests=2, source="the client's own count of streams in conc4")
    assert most_at_once(silent, (), three) == said
    assert most_at_once(silent, (), [stream("conc1", 0.0)]) is None  # no token came
    stand_in = {"meta_info": {"specbench_replay": {"exact": False}}}
    assert most_at_once(silent, (), [stream("conc1", 0.0, 1.0, 2.0, **stand_in)]) is None
    log = logs.read(decode(1).encode().splitlines(keepends=True))
    assert most_at_once(log, (), three) == AtOnce(requests=1, source="decode line 1")


def test_a_line_without_a_figure_is_no_witness() -> None:
    cut = PREFILL.splitlines(keepends=True)[1].replace("#running-req: 1, ", "")
    assert read(cut) is None


def test_a_record_names_its_source() -> None:
    found = of_path(RECORDS / "dflash_r8_full")
    assert to_document(found)["served"] == {"running_requests": 7, "source": found.served_source}
    assert found.served_source is not None and found.served_source.startswith("decode line ")
    assert found.served_source in show.overview(study(RECORDS / "dflash_r8_full")).html


def test_of_a_crash_in_the_first_batch_the_prefill_lines_tell_and_nothing_was_served() -> None:
    """It died before the fortieth step."""
    found = of_path(RECORDS / "nextn_r4_full")
    assert found.serving is None
    assert most_at_once(found.log, ()) == AtOnce(requests=1, source="prefill line 62: 0 running, 1 begun")
    assert (found.served, found.served_source) == (0, None)


def test_a_prompt_under_way_is_no_answer() -> None:
    """A bare log tells of an answer by a decode line alone."""
    ready = f"{STAMP}The server is fired up and ready to roll!\n"
    assert of_log(iter((ready + PREFILL).encode().splitlines(keepends=True)), name="x").outcome == "started"
    served = of_log(iter((ready + PREFILL + decode(4)).encode().splitlines(keepends=True)), name="x")
    assert (served.outcome, served.served) == ("served", 4)
