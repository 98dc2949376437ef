"""Sending a workload: how many requests are in flight and when they come, seen by a server that counts."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from specbench.configuration.config import RunConfig
from specbench.lifecycle.ports import free_port
from specbench.load.sending import send
from specbench.load.workload import arrivals_s, steps_of
from specbench.records.types import CacheState


@dataclass
class Counting:
    """A server that answers each request after a while, and keeps what it saw."""

    takes_s: float
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)
    most_at_once: int = 0
    flushed: int = 0
    flush_status: int = 200
    elsewhere: str | None = None  # where it sends whoever asks to flush
    loads: dict[str, Any] | None = None  # None: this version does not tell
    metrics: str | None = None
    _now: int = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        self.arrived_s.append(time.monotonic())
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        await asyncio.sleep(self.takes_s)
        self._now -= 1
        asked = self.bodies[-1]["sampling_params"]["max_new_tokens"]
        meta_info = {"completion_tokens": asked, "finish_reason": {"type": "length"}}
        return web.Response(body=b"data: " + json.dumps({"meta_info": meta_info}).encode() + b"\n\ndata: [DONE]\n\n")

    async def flush(self, _: web.Request) -> web.StreamResponse:
        self.flushed += 1
        if self.elsewhere is not None:
            return web.Response(status=307, headers={"Location": self.elsewhere})
        said = "Cache flushed.\nmore" if self.flush_status == 200 else "Flush cache failed.\n"
        return web.Response(text=said, status=self.flush_status)

    async def state(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=self.metrics) if self.metrics is not None else web.Response(status=404)
        return web.json_response(self.loads) if self.loads is not None else web.Response(status=404)


@contextmanager
def counting(takes_s: float = 0.02) -> Iterator[Counting]:
    """The server in a thread with a loop of its own."""
    server = Counting(takes_s)
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/generate", server.generate)
        app.router.add_post("/flush_cache", server.flush)
        app.router.add_get("/v1/loads", server.state)
        app.router.add_get("/metrics", server.state)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        port = free_port("127.0.0.1")
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.url = f"http://127.0.0.1:{port}"
        started.set()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield server
    finally:
        stop.set()
        thread.join(10)


def config(**workload: Any) -> RunConfig:
    return RunConfig.model_validate(
        {"name": "s", "engine": {"version": "0.5.16"}, "model": "m", "gpu": {"name": "h200"}, "workload": workload}
    )


def test_a_closed_loop_keeps_its_clients_busy_and_never_more() -> None:
    asked = config(input_tokens=[32], output_tokens=5, concurrency=[3], requests=9, warmup=0)
    with counting() as server:
        sent = send(asked, server.url)
    assert server.most_at_once == 3
    assert [trace.index for trace in sent.traces] == list(range(9))
    assert all(trace.ok and trace.output_tokens == 5 for trace in sent.traces)
    # Three rounds of three: the second round is sent when the first has ended.
    assert sorted(trace.sent_s for trace in sent.traces)[3] >= 0.02


def test_prompts_are_exact_unique_and_marked_with_their_step() -> None:
    asked = config(input_tokens=[32, 64], output_tokens=20, concurrency=[2], requests=4, warmup=1)
    with counting(0.0) as server:
        send(asked, server.url)
    assert [len(body["input_ids"]) for body in server.bodies] == [64, *[32] * 4, *[64] * 4]
    assert [body["sampling_params"]["max_new_tokens"] for body in server.bodies] == [16, *[20] * 8]
    assert len({tuple(body["input_ids"]) for body in server.bodies}) == 9
    steps = [headers["X-Specbench-Step"] for headers in server.headers]
    assert steps == ["warmup", *["conc2-in32"] * 4, *["conc2-in64"] * 4]
    assert {headers["X-Specbench-Phase"] for headers in server.headers[1:]} == {"measured"}


def test_the_cache_is_flushed_before_each_measured_step_and_the_answer_kept() -> None:
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[1, 2], requests=2, warmup=1)
    with counting(0.0) as server:
        sent = send(asked, server.url)
    assert server.flushed == 2
    assert sent.flushes == {"conc1-in8": "HTTP 200: Cache flushed.", "conc2-in8": "HTTP 200: Cache flushed."}


def test_the_cache_is_asked_for_after_the_flush() -> None:
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[1], requests=1, warmup=0)
    with counting(0.0) as server:
        server.loads = {"loads": [{"num_used_tokens": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]}
        server.metrics = 'sglang:kv_evictable_tokens{tp_rank="0"} 5120.0'
        told = send(asked, server.url).caches["conc1-in8"]
        server.loads, server.metrics, server.flush_status = None, None, 400
        untold = send(asked, server.url)
    assert told == CacheState(
        flushed=True, used_tokens=0, running=0, waiting=0, evictable_tokens=5120, source="/v1/loads and /metrics"
    )
    assert untold.caches["conc1-in8"] == CacheState(flushed=False)
    assert untold.flushes["conc1-in8"] == "HTTP 400: Flush cache failed."


def test_a_flush_that_sends_elsewhere_is_none() -> None:
    with counting(0.0) as server, counting(0.0) as other:
        server.elsewhere = f"{other.url}/flush_cache"
        sent = send(config(input_tokens=[8], output_tokens=1, concurrency=[1], requests=1, warmup=0), server.url)
    assert (server.flushed, other.flushed) == (1, 0)
    assert sent.flushes["conc1-in8"] == f"HTTP 307: a redirect to {other.url}/flush_cache, which is not followed"
    assert not sent.caches["conc1-in8"].flushed


def test_an_open_loop_sends_at_its_times_whatever_the_server_does() -> None:
    """40 requests/s against a server that takes 0.3 s: an open loop does not wait for answers."""
    asked = config(input_tokens=[8], output_tokens=1, request_rate=[40.0], requests=12, warmup=0)
    with counting(0.3) as server:
        sent = send(asked, server.url)
    (step,) = steps_of(asked.workload)
    planned = arrivals_s(step, seed=0)
    assert planned[-1] < 1.0
    for trace, at_s in zip(sent.traces, planned, strict=True):
        assert trace.sent_s >= at_s - 0.005  # later on a busy machine, never earlier
        assert (trace.request_rate, trace.concurrency) == (40.0, None)
    assert max(trace.sent_s for trace in sent.traces) < 11 * 0.3  # one after the other they would take that long
    assert server.most_at_once > 4
    assert all(trace.ok for trace in sent.traces)


def test_progress_is_told_from_0_to_all() -> None:
    told: list[tuple[str, int, int]] = []
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[1], requests=3, warmup=0)
    with counting(0.0) as server:
        send(
            asked, server.url, progress=lambda *what: told.append(what), on_step=lambda name: told.append((name, -1, 0))
        )
    assert told == [("conc1-in8", -1, 0), *[("conc1-in8", done, 3) for done in range(4)]]


def test_a_cancelled_workload_ends_soon_with_what_it_has() -> None:
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[1], requests=2000, warmup=0)
    cancel = threading.Event()
    with counting(0.05) as server:
        began = time.monotonic()
        sent = send(asked, server.url, cancel=cancel, progress=lambda _, done, __: cancel.set() if done == 2 else None)
    assert time.monotonic() - began < 60  # 2,000 requests would take 100 s
    assert 2 <= len(sent.traces) < 500


def test_a_dead_server_makes_every_request_a_failure() -> None:
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[2], requests=4, warmup=0)
    sent = send(asked, f"http://127.0.0.1:{free_port('127.0.0.1')}")
    assert len(sent.traces) == 4
    assert all(
        trace.error and trace.error == "the connection broke after 0 tokens: the server closed or refused it"
        for trace in sent.traces
    )
    assert sent.flushes["conc2-in8"] == "failed: the server closed or refused it"


def test_a_flush_without_an_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench.load.cache_state._FLUSH_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sent = send(config(concurrency=[1], requests=1, warmup=0, request_timeout_s=0.2), url)
    assert sent.flushes == {"conc1-in1024": "failed: no answer within 0.2 s"}


def test_a_request_that_takes_too_long_is_a_failure() -> None:
    asked = config(input_tokens=[8], output_tokens=1, concurrency=[1], requests=1, warmup=0, request_timeout_s=0.1)
    with counting(3.0) as server:
        (trace,) = send(asked, server.url).traces
    assert trace.error == "no end within 0.1 s, 0 tokens came"


def test_what_each_step_costs_the_client_is_kept() -> None:
    asked = config(input_tokens=[8], output_tokens=2, concurrency=[1, 2], requests=4, warmup=1)
    with counting(0.03) as server:
        sent = send(asked, server.url)
    assert list(sent.client) == ["warmup", "conc1-in8", "conc2-in8"]
    one = sent.client["conc1-in8"]
    assert one.chunks == 4
    assert 0 < one.cpu_s < one.wall_s
    assert one.wall_s >= 0.12  # four answers, one after the other
    assert one.ticks >= 1 and one.lag_max_s is not None
    assert gc.get_freeze_count() == 0  # what was left out of collections is back
