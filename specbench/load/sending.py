"""Sending a workload to a ready server: closed and open loop, cache flushed before each measured step.

In: a RunConfig and the server's address. Out: a RequestTrace per request. Of a replay all times are reported in
recorded time: multiplied by the speed, or, at instant speed, as the replay marks them in its stream.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..configuration.config import RunConfig
from ..records.types import CacheState, ClientCost, RequestTrace
from ..replay.asking import CONCURRENCY, INDEX, PHASE, RATE, STEP
from ..replay.itself import KEY, Played
from ..vocabulary import vocabulary
from .cache_state import cache_state, flush
from .client_load import ClientLoad, LoadMeter, settle
from .prompts import token_ids
from .workload import Step, arrivals_s, steps_of

if TYPE_CHECKING:
    import aiohttp

    from .client import Received, Sent

#: phase or step, requests done, requests in all
Progress = Callable[[str, int, int], None]
#: aiohttp lets go of a TLS connection before both sides have said goodbye; without this time its socket is never closed
#: (its documentation: "Graceful shutdown").
_TLS_GOODBYE_S = 0.25


@dataclass(slots=True, kw_only=True)
class Sending:
    """What was sent and seen."""

    traces: list[RequestTrace] = field(default_factory=list)
    flushes: dict[str, str] = field(default_factory=dict)
    caches: dict[str, CacheState] = field(default_factory=dict)  # after the flush; of a replay empty
    phases: dict[str, float] = field(default_factory=dict)  # wall seconds per step
    client: dict[str, ClientCost] = field(default_factory=dict)  # what each step cost the client
    cut: bool = False  # ended early, for a deadline


def send(
    config: RunConfig,
    url: str,
    *,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    on_step: Callable[[str], None] | None = None,
    headers: Mapping[str, str] | None = None,
    replayed: Played | None = None,
) -> Sending:
    """Sends the whole workload to a ready server. Blocks; failed requests are results.

    Runs an event loop of its own: call it in a thread of its own when this one may have a loop (a notebook has).
    `cancel` ends it early, with what was sent until then. `headers` go out with every request. `replayed`: what an
    attached server plays, when it is a replay.
    """
    try:
        return asyncio.run(_Sender(config, url, progress, on_step, headers, replayed).all(cancel))
    finally:
        gc.unfreeze()  # what `settle` left out


class _Sender:
    def __init__(
        self,
        config: RunConfig,
        url: str,
        progress: Progress | None,
        on_step: Callable[[str], None] | None,
        headers: Mapping[str, str] | None,
        replayed: Played | None,
    ) -> None:
        self._workload = config.workload
        self._vocabulary = vocabulary(config)
        self._url, self._headers = url, dict(headers or {})
        self._replayed = config.engine.replay is not None or replayed is not None
        speed = config.engine.replay_speed if config.engine.replay is not None else 1.0
        self._speed = replayed.speed if replayed is not None else None if isinstance(speed, str) else speed
        self._progress, self._on_step = progress, on_step
        self._result = Sending()

    async def all(self, cancel: threading.Event | None) -> Sending:
        import aiohttp

        work = asyncio.ensure_future(self._steps(aiohttp))
        watch = asyncio.ensure_future(_until_set(cancel)) if cancel else None
        await asyncio.wait([task for task in (work, watch) if task], return_when=asyncio.FIRST_COMPLETED)
        for task in (work, watch):
            if task is not None and not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if not work.cancelled():
            work.result()
        self._result.traces.sort(key=lambda trace: (trace.sent_unix_s or 0.0, trace.index))
        return self._result

    async def _steps(self, http: Any) -> None:
        # A connection per request, as the recorded client had: a kept one may be closed by the server at any moment.
        # aiohttp's own context is of the time when it was imported, and knows no SSL_CERT_FILE that was set since.
        encrypted = self._url.startswith("https:")
        tls = ssl.create_default_context() if encrypted else True
        connector = http.TCPConnector(limit=0, force_close=True, ssl=tls)
        async with http.ClientSession(connector=connector, read_bufsize=2**20, headers=self._headers) as session:
            for step in steps_of(self._workload):
                asked = self._asked(step)  # ahead: neither between flush and requests nor in the time of the step
                settle()
                if self._on_step:
                    self._on_step(step.name)
                if step.phase == "measured":
                    flushed, self._result.flushes[step.name] = await flush(session, self._url)
                    if not self._replayed:
                        self._result.caches[step.name] = await cache_state(session, self._url, flushed)
                began, meter = time.perf_counter(), LoadMeter()
                self._chunks = 0
                meter.start()
                try:
                    await self._step(session, step, asked)
                finally:
                    self._result.client[step.name] = _cost(meter.stop(self._chunks))
                self._result.phases[step.name] = round(time.perf_counter() - began, 6)
        if encrypted:
            await asyncio.sleep(_TLS_GOODBYE_S)

    def _asked(self, step: Step) -> list[Sent]:
        """The requests of a step, in their order."""
        from .client import Sent

        load = {CONCURRENCY: str(step.concurrency)} if step.request_rate is None else {RATE: f"{step.request_rate:g}"}
        return [
            Sent(
                input_ids=token_ids(
                    step.input_tokens,
                    seed=self._workload.seed,
                    step=step.name,
                    index=index,
                    vocabulary=self._vocabulary,
                ),
                max_new_tokens=step.max_new_tokens,
                headers={STEP: step.name, INDEX: str(index), PHASE: step.phase, **load},
                timeout_s=self._workload.request_timeout_s / (self._speed or 1.0),
            )
            for index in range(step.requests)
        ]

    async def _step(self, session: aiohttp.ClientSession, step: Step, asked: Sequence[Sent]) -> None:
        began = time.perf_counter()
        self._done = 0
        self._tell(step)
        if step.request_rate is not None:
            at = arrivals_s(step, self._workload.seed)
            await asyncio.gather(
                *(self._later(session, step, index, asked, began, at_s) for index, at_s in enumerate(at))
            )
            return
        waiting = iter(range(step.requests))
        clients = min(step.concurrency or 1, step.requests)
        await asyncio.gather(*(self._client(session, step, waiting, asked, began) for _ in range(clients)))

    async def _client(
        self, session: aiohttp.ClientSession, step: Step, waiting: Any, asked: Sequence[Sent], began: float
    ) -> None:
        """One client of the closed loop: the next request as soon as the one before has ended."""
        recorded_clock_s = 0.0  # at instant speed: where this client would stand in recorded time
        for index in waiting:
            trace = await self._one(session, step, index, asked[index], began, recorded_clock_s)
            recorded_clock_s += trace.end_s or 0.0

    async def _later(
        self,
        session: aiohttp.ClientSession,
        step: Step,
        index: int,
        asked: Sequence[Sent],
        began: float,
        at_s: float,
    ) -> None:
        """One arrival of the open loop, at its own time whatever the server does."""
        if self._speed is not None:
            await asyncio.sleep(max(0.0, began + at_s / self._speed - time.perf_counter()))
        await self._one(session, step, index, asked[index], began, at_s)

    async def _one(
        self,
        session: aiohttp.ClientSession,
        step: Step,
        index: int,
        sent: Sent,
        began: float,
        recorded_clock_s: float,
    ) -> RequestTrace:
        from .client import generate

        sent_s = time.perf_counter() - began
        got = await generate(session, self._url, sent)
        self._chunks += len(got.chunks)
        times = _recorded_times(got, sent_s, recorded_clock_s, self._speed)
        trace = RequestTrace(
            step=step.name,
            phase=step.phase,
            index=index,
            concurrency=step.concurrency,
            request_rate=step.request_rate,
            input_tokens=step.input_tokens,
            max_new_tokens=step.max_new_tokens,
            sent_s=round(times.sent_s, 6),
            sent_unix_s=got.sent_unix_s,
            http_status=got.http_status,
            chunks=times.chunks,
            end_s=times.end_s,
            output_tokens=got.output_tokens,
            finish_reason=got.finish_reason,
            error=got.error,
            meta_info=got.meta_info,
        )
        self._result.traces.append(trace)
        self._done += 1
        self._tell(step)
        return trace

    def _tell(self, step: Step) -> None:
        if self._progress:
            self._progress(step.name, self._done, step.requests)


def _cost(load: ClientLoad) -> ClientCost:
    """As it is stored, to the microsecond."""
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(load).items()}
    return ClientCost.model_validate(rounded)


@dataclass(frozen=True, slots=True)
class _Times:
    sent_s: float
    chunks: tuple[tuple[float, int], ...]
    end_s: float | None


def _recorded_times(got: Received, sent_s: float, recorded_clock_s: float, speed: float | None) -> _Times:
    """Measured seconds at `speed` -> recorded seconds; at instant speed (None) the replay's own marks are the times."""
    if speed is not None:
        chunks = tuple((round(at_s * speed, 6), tokens) for at_s, tokens in got.chunks)
        return _Times(sent_s * speed, chunks, None if got.end_s is None else round(got.end_s * speed, 6))
    mark = got.meta_info.get(KEY)
    end_s = mark.get("end_s") if isinstance(mark, dict) else None
    marked = len(got.marks) == len(got.chunks)
    chunks = tuple(zip(got.marks, (tokens for _, tokens in got.chunks), strict=True)) if marked else ()
    return _Times(recorded_clock_s, chunks, end_s if isinstance(end_s, (int, float)) else None)


async def _until_set(cancel: threading.Event) -> None:
    while not cancel.is_set():  # noqa: ASYNC110  (a thread's event, not the loop's)
        await asyncio.sleep(0.05)
