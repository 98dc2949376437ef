"""/metrics over time: what is kept of an engine's own text, and when."""

from __future__ import annotations

import threading
from pathlib import Path

from specbench.capture.metering import Metering
from specbench.capture.runclock import RunClock
from specbench.engines.sglang import cache
from specbench.engines.sglang.metrics import AVAILABLE_AFTER_START, figures
from specbench.records.record import RunRecord

RECORD = Path(__file__).parent / "records" / "dflash_r4"
TEXT = """# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 4.0
sglang:http_requests_total{endpoint="/generate",method="POST"} 18.0
sglang:e2e_request_latency_seconds_bucket{le="0.1"} 7.0
sglang:e2e_request_latency_seconds_sum{model_name="m"} 1.5
sglang:fwd_occupancy{model_name="m"} NaN
sglang:routing_key_running_req_count{gt="0",le="1"} 0.0
sglang:broken
python_gc_objects_collected_total 9.0
"""


def test_gauges_counters_and_sums_are_kept_buckets_and_constant_labels_are_not() -> None:
    assert figures(TEXT) == {
        "num_queue_reqs": 3.0,
        "num_queue_reqs{tp_rank=1}": 4.0,
        "http_requests_total{endpoint=/generate,method=POST}": 18.0,
        "e2e_request_latency_seconds_sum": 1.5,
    }


def test_a_real_engines_text_is_read() -> None:
    text = RunRecord.open(RECORD).metrics_text()
    assert text is not None
    found = figures(text)
    assert found["kv_evictable_tokens"] == 5120
    assert found["max_total_num_tokens"] == 158178
    assert found[AVAILABLE_AFTER_START] == 65.7969970703125
    assert not any("bucket" in name or "model_name" in name for name in found)
    assert cache.evictable_tokens(text) == 5120


def test_only_changes_are_kept_with_their_phase() -> None:
    texts = iter(["sglang:a 1\nsglang:b 1\n", "sglang:a 1\nsglang:b 2\n", "sglang:a 1\nsglang:b 3\n"])
    second, third, asked = threading.Event(), threading.Event(), 0

    def ask() -> str | None:
        nonlocal asked
        asked += 1
        if asked == 2:
            second.set()
            assert third.wait(30)
        return next(texts, None)

    with Metering(ask, RunClock(), interval_s=0.001) as metering:
        assert second.wait(30)
        metering.phase("conc4")  # the second answer comes later
        third.set()
        while metering._missed == 0:
            third.wait(0.001)
    told = [(s.phase, s.name, s.value) for s in metering.samples]
    assert told == [("ready", "a", 1.0), ("ready", "b", 1.0), ("conc4", "b", 2.0), ("conc4", "b", 3.0)]
    assert metering.words.startswith("/metrics 3 times, every 0.001 s, ")


def test_a_server_without_metrics_is_asked_a_few_times_only() -> None:
    asked = threading.Semaphore(0)

    def ask() -> str | None:
        asked.release()
        return None

    metering = Metering(ask, RunClock(), interval_s=0.001)
    with metering:
        metering._thread.join(30)
        assert not metering._thread.is_alive()
    assert sum(asked.acquire(blocking=False) for _ in range(9)) == 3
    assert metering.words == "/metrics was asked and never answered"


def test_many_changes_are_asked_for_less_often(monkeypatch) -> None:
    from specbench.capture import metering as module

    monkeypatch.setattr(module, "_DOUBLE_AFTER", 10)
    metering = Metering(lambda: "\n".join(f"sglang:m{n} {n}" for n in range(12)), RunClock(), interval_s=1.0)
    metering._next_double = 10
    metering._once()
    assert metering._interval_s == 2.0


def test_the_cache_after_a_flush_as_the_engine_tells_it() -> None:
    told = cache.loads('{"loads": [{"num_used_tokens": 5, "num_running_reqs": 1, "num_waiting_reqs": 0}]}')
    assert (told.used_tokens, told.running, told.waiting) == (5, 1, 0)
    assert cache.loads('{"loads": []}') == cache.loads("nonsense") == cache.Loads()
    assert cache.was_flushed(200, "Cache flushed.\nPlease check backend logs for more details.")
    assert not cache.was_flushed(400, "Flush cache failed.\n")
