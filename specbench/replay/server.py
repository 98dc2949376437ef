"""The replay process: answers over HTTP as the recorded server did, while the player writes the recorded log.

Each event of a native stream says when it was recorded and whether this very request was recorded
(`meta_info.specbench_replay`), so that a client can tell, and so that instant replays keep recorded times; and so does
/server_info, of the whole (see `itself`).
"""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from aiohttp import web

from ..engines.sglang.addresses import FLUSH_CACHE, HEALTH, METRICS, MODEL_INFO, SERVER_INFO
from ..engines.sglang.given import server_args
from ..records.record import RunRecord
from ..records.types import ERROR_EVENT
from . import answers
from .answers import Limits, OpenAi, Route
from .asking import Asked, BadRequestError, read_request
from .itself import KEY, told
from .plan import Answer, NotRecorded, Plan
from .player import BREAK_AFTER_S, Player


class Replay:
    """One record being played on one port."""

    def __init__(
        self,
        record: RunRecord,
        *,
        host: str,
        port: int,
        speed: float | None,
        out: BinaryIO,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`say`: for who waits for it; the log goes to `out`."""
        self._record, self._host, self._port, self._speed = record, host, port, speed
        self._say = say or (lambda _: None)
        status = record.status
        self._told = told(record, speed)
        self._plan = Plan(record.requests(), crashed=status.status == "crashed" and status.ready_s is not None)
        self._player = Player(record, self._plan, speed=speed, out=out)
        self._limits = Limits.of(record.server_info(), record.config.memory.context_length)

    async def run(self) -> int:
        """Plays the start, then serves until SIGTERM. A recorded failure ends the process in the player."""
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        runner = web.AppRunner(self._app(), access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()

        async def listen() -> None:
            await web.TCPSite(runner, self._host, self._port, backlog=1024).start()

        stopped = asyncio.ensure_future(stop.wait())

        def ready() -> None:
            host = f"[{self._host}]" if ":" in self._host else self._host
            self._say(f"listening on http://{host}:{self._port}")

        self.say_what_is_played()
        start = asyncio.ensure_future(self._player.start(listen, ready))
        await asyncio.wait((stopped, start), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            await stopped
        start.cancel()
        await self._player.finish()
        await runner.cleanup()
        return 0

    def say_what_is_played(self) -> None:
        """And when it is ready."""
        self._say(self._beginning())

    def _beginning(self) -> str:
        version = self._record.config.engine.version
        plays = f"plays the record {self._record.name} (SGLang {version}, {self._record.status.status})"
        start_s = self._player.start_s
        how = f"the recorded start took {start_s:.0f} s"
        if self._player.ends_with_its_log:
            after = "at once" if self._speed is None else f"after about {start_s / self._speed:.0f} s ({how})"
            return f"{plays}: that server was never ready, so this one ends {after}, as it did"
        if self._speed is None:
            return f"{plays}: ready at once"
        return f"{plays}: ready in about {start_s / self._speed:.0f} s ({how}); --speed instant skips it"

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)

        async def generate(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, "generate")

        async def completions(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, "completions")

        async def chat(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, "chat")

        async def health(_: web.Request) -> web.Response:
            return web.Response(status=200 if self._player.ready else 503)

        async def server_info(_: web.Request) -> web.Response:
            after = self._record.server_info_after() if self._player.driven else None
            recorded = after or self._record.server_info()
            return _recorded_json(None if recorded is None else {**recorded, KEY: self._told})

        async def model_info(_: web.Request) -> web.Response:
            return _recorded_json(self._record.model_info())

        async def flush_cache(_: web.Request) -> web.Response:
            return web.Response(text=answers.FLUSHED)

        async def metrics(_: web.Request) -> web.Response:
            text = self._record.metrics_text()
            return web.Response(status=404 if text is None else 200, text=text or "metrics were not recorded\n")

        async def models(_: web.Request) -> web.Response:
            return web.json_response({"object": "list", "data": [{"id": self._model, "object": "model"}]})

        app.router.add_post("/generate", generate)
        app.router.add_post("/v1/completions", completions)
        app.router.add_post("/v1/chat/completions", chat)
        for path in (HEALTH, "/health_generate", "/ready"):
            app.router.add_get(path, health)
        for path in SERVER_INFO:
            app.router.add_get(path, server_info)
        for path in MODEL_INFO:
            app.router.add_get(path, model_info)
        app.router.add_route("*", FLUSH_CACHE, flush_cache)
        app.router.add_get(METRICS, metrics)
        app.router.add_get("/v1/models", models)
        return app

    @property
    def _model(self) -> str:
        return str(server_args(self._record.config).get("served_model_name") or self._record.config.model)

    async def _answer(self, request: web.Request, route: Route) -> web.StreamResponse:
        began = asyncio.get_running_loop().time()
        try:
            asked = read_request(route, await request.json(), request.headers)
        except ValueError as error:
            text = str(error) if isinstance(error, BadRequestError) else f"the body is no JSON: {error}"
            return web.json_response(answers.error_body(route, text, 400), status=400)
        began -= asked.on_the_way_s
        too_long = self._limits.refusal(asked.ask.input_tokens, asked.ask.max_new_tokens)
        failure = None if too_long is None else self._plan.failure(asked.ask)
        if too_long is not None and failure is None:
            self._player.write_rest()  # where the recorded run sent its oversize requests
            if route == "generate" and asked.stream:
                return await _whole_stream(request, answers.error_event(too_long))
            return web.json_response(answers.error_body(route, too_long, 400), status=400)
        room = self._limits.clamp(asked.ask.input_tokens, asked.ask.max_new_tokens)
        answer = failure or self._plan.answer(replace(asked.ask, max_new_tokens=room))
        if isinstance(answer, NotRecorded):
            return web.json_response(answers.error_body(route, answer.text, 422), status=422)
        self._player.drive(answer)
        if answer.http_status != 200:
            await self._player.until(began, answer.end_s)
            text = (answer.error or "the recorded run answered so").removeprefix(f"HTTP {answer.http_status}: ")
            return web.json_response(answers.error_body(route, text, answer.http_status), status=answer.http_status)
        if asked.stream:
            return await self._stream(request, route, asked, answer, began)
        await self._live(began, answer.end_s, answer, last=True)
        return web.json_response(self._whole(route, asked, answer))

    async def _live(self, began: float, recorded_s: float, answer: Answer, *, last: bool = False) -> None:
        """Waits; once the crash has begun nothing more is answered until the process is gone. Of the step that crashed
        what was recorded still comes, up to the `last` of a request that broke.
        """
        await self._player.until(began, recorded_s)
        of_crash = answer.exact and answer.step == self._plan.crash_step
        if self._player.crashing and not (of_crash and (answer.error is None or not last)):
            await asyncio.Event().wait()

    async def _stream(
        self, request: web.Request, route: Route, asked: Asked, answer: Answer, began: float
    ) -> web.StreamResponse:
        response = _event_stream()
        await response.prepare(request)
        openai = self._openai(route, asked, answer) if route != "generate" else None
        if openai is not None and route == "chat":
            await response.write(openai.chunk(0, None, first=True))
        total, last = 0, len(answer.chunks) - 1
        for place, (at_s, tokens) in enumerate(answer.chunks):
            await self._live(began, at_s, answer)
            total += tokens
            if openai is None:
                meta_info = _meta_info(asked, answer, at_s, total, final=place == last)
                await response.write(answers.event(answers.native(total, meta_info)))
            else:
                await response.write(openai.chunk(tokens, None))
        await self._live(began, answer.end_s, answer, last=True)
        if openai is not None and answer.chunks:
            await response.write(openai.chunk(0, answer.finish_reason))
            if asked.include_usage:
                await response.write(openai.usage_chunk(total))
        return await self._end_of_stream(request, response, answer)

    async def _end_of_stream(
        self, request: web.Request, response: web.StreamResponse, answer: Answer
    ) -> web.StreamResponse:
        """As recorded: complete (of an aborted request too), with an error event, without a token, or broken in the
        middle.
        """
        if answer.error is None or answer.finish_reason == "abort":
            await response.write(answers.DONE)
        elif answer.error.startswith(ERROR_EVENT):
            await response.write(answers.error_event(answer.error.removeprefix(ERROR_EVENT)) + answers.DONE)
        elif answer.chunks and request.transport is not None:
            await asyncio.sleep(BREAK_AFTER_S)
            request.transport.close()
            return response
        await response.write_eof()
        return response

    def _whole(self, route: Route, asked: Asked, answer: Answer) -> dict[str, Any]:
        total = sum(tokens for _, tokens in answer.chunks)
        if route == "generate":
            return answers.native(total, _meta_info(asked, answer, answer.end_s, total, final=True))
        mark = {**answer.mark, "end_s": answer.end_s}
        if asked.text_counted:
            mark["prompt_tokens_from"] = "1 token per character"
        return self._openai(route, asked, answer).whole(total, answer.finish_reason, mark)

    def _openai(self, route: Route, asked: Asked, answer: Answer) -> OpenAi:
        return OpenAi(
            route=cast("Literal['completions', 'chat']", route),
            id=str(answer.meta_info.get("id") or uuid.uuid4().hex),
            model=self._model,
            prompt_tokens=asked.ask.input_tokens,
        )


def _meta_info(asked: Asked, answer: Answer, at_s: float, total: int, *, final: bool) -> dict[str, Any]:
    mark = {**answer.mark, "t_s": at_s}
    if final:
        last = {"completion_tokens": total, **answer.meta_info}
        return {**last, KEY: {**mark, "end_s": answer.end_s}}
    return {
        "id": answer.meta_info.get("id"),
        "finish_reason": None,
        "prompt_tokens": asked.ask.input_tokens,
        "completion_tokens": total,
        KEY: mark,
    }


def _recorded_json(data: Any) -> web.Response:
    if data is None:
        return web.json_response({"error": {"message": "not recorded"}}, status=404)
    return web.json_response(data)


def _event_stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})


async def _whole_stream(request: web.Request, content: bytes) -> web.StreamResponse:
    response = _event_stream()
    await response.prepare(request)
    await response.write(content + answers.DONE)
    await response.write_eof()
    return response


def serve(path: Path, *, host: str, port: int, speed: float | None, say: Callable[[str], None] | None = None) -> int:
    """Plays the record at `path` until it ends. The log goes to standard output, as the engine's does."""

    async def play() -> int:
        return await Replay(
            RunRecord.open(path), host=host, port=port, speed=speed, out=sys.stdout.buffer, say=say
        ).run()

    return asyncio.run(play())
