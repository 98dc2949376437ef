"""The client against a small server that misbehaves in every way an engine was seen to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from specbench.lifecycle.ports import free_port
from specbench.load.client import Received, Sent, generate

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ask(handler: Handler | None, timeout_s: float = 5.0) -> Received:
    """One request to a server with this handler; None: nobody listens."""

    async def exchange() -> Received:
        port = free_port("127.0.0.1")
        runner = None
        if handler is not None:
            app = web.Application()
            app.router.add_post("/generate", handler)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
        sent = Sent(input_ids=[1, 2, 3], max_new_tokens=4, headers={"X-A": "b"}, timeout_s=timeout_s)
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
                return await generate(session, f"http://127.0.0.1:{port}", sent)
        finally:
            if runner is not None:
                await runner.cleanup()

    return asyncio.run(exchange())


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(tokens: int, finish: Any = None, **meta: Any) -> bytes:
    return event({"text": "", "meta_info": {"completion_tokens": tokens, "finish_reason": finish, **meta}})


LENGTH = {"type": "length", "length": 4}


def streaming(*pieces: bytes, end: str = "eof") -> Handler:
    """Sends the pieces, then ends properly (eof), breaks the connection (abort), or never ends (hang)."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.01)
        if end == "hang":
            await asyncio.sleep(60)
        if end == "abort" and request.transport:
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    return handle


def test_chunks_hold_the_differences_of_the_cumulative_counts() -> None:
    got = ask(streaming(chunk(1), chunk(1), chunk(3), chunk(4, LENGTH, cached_tokens=0), b"data: [DONE]\n\n"))
    assert got.error is None
    assert [tokens for _, tokens in got.chunks] == [1, 2, 1]  # an event without a new token is no chunk
    assert got.output_tokens == 4
    assert got.finish_reason == "length"
    assert got.meta_info["cached_tokens"] == 0
    times = [at_s for at_s, _ in got.chunks]
    assert times == sorted(times)
    assert got.end_s is not None and got.end_s >= times[-1]


def test_events_split_over_pieces_and_joined_in_one_are_read() -> None:
    whole = chunk(1) + chunk(2) + chunk(4, LENGTH) + b"data: [DONE]\n\n"
    for place in range(1, len(whole), 37):
        got = ask(streaming(whole[:place], whole[place:]))
        assert (got.error, [tokens for _, tokens in got.chunks]) == (None, [1, 1, 2])


def test_what_is_sent() -> None:
    seen: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.update(await request.json())
        seen["header"] = request.headers["X-A"]
        return web.Response(body=chunk(4, LENGTH))

    assert ask(handle).error is None
    assert seen == {
        "input_ids": [1, 2, 3],
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True},
        "header": "b",
    }


def test_an_error_event_after_http_200_is_a_failure_with_its_text() -> None:
    error = {"error": {"message": "The input (33000 tokens) is longer.", "code": 400}}
    got = ask(streaming(event(error), b"data: [DONE]\n\n"))
    assert (got.http_status, got.chunks) == (200, [])
    assert got.error == "error event in the stream: The input (33000 tokens) is longer."


def test_an_error_event_in_the_middle_keeps_what_came_before() -> None:
    got = ask(streaming(chunk(2), event({"error": {"message": "gone"}})))
    assert got.error == "error event in the stream: gone"
    assert got.output_tokens == 2


@pytest.mark.parametrize(
    ("pieces", "end", "words"),
    [
        ((b"data: [DONE]\n\n",), "eof", "the stream ended without a token"),
        ((), "eof", "the stream ended without a token"),
        ((chunk(2),), "eof", "the stream ended after 2 tokens without a finish reason"),
        ((chunk(2),), "abort", "the connection broke after 2 tokens: the server closed or refused it"),
        ((), "abort", "the connection broke after 0 tokens: "),
        ((chunk(2), b"data: {broken\n\n"), "eof", "the stream held an event that is no JSON: b'{broken'"),
        ((event([1]),), "eof", "the stream held an event that is no object: [1]"),
        ((chunk(2), chunk(5, LENGTH)), "eof", "the stream counts 5 tokens where 4 were asked for"),
        ((chunk(3), chunk(2), chunk(4, LENGTH)), "eof", "the stream's count of tokens fell from 3 to 2"),
        ((chunk(3), chunk(0, {"type": "abort", "message": "gone"})), "eof", "aborted by the engine: gone"),
        (
            (chunk(1, {"type": "abort", "message": "Input length (12000 tokens) exceeds"}),),
            "eof",
            "aborted by the engine: Input length (12000 tokens) exceeds",
        ),
    ],
)
def test_streams_that_are_no_answer(pieces: tuple[bytes, ...], end: str, words: str) -> None:
    got = ask(streaming(*pieces, end=end))
    assert got.error is not None and got.error.startswith(words)
    assert got.end_s is not None


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"meta_info":[1]}', "whose meta_info is [1], expected an object"),
        (b'{"meta_info":"x"}', 'whose meta_info is "x", expected an object'),
        (b'{"meta_info":{"completion_tokens":"abc"}}', 'whose completion_tokens is "abc", expected a count'),
        (b'{"meta_info":{"completion_tokens":true}}', "whose completion_tokens is true, expected a count"),
        (b'{"meta_info":{"completion_tokens":-1}}', "whose completion_tokens is -1, expected a count"),
        (
            b'{"meta_info":{"completion_tokens":99999999999999999999}}',
            "whose completion_tokens is 99999999999999999999",
        ),
        (
            b'{"meta_info":{"completion_tokens":4,"finish_reason":[1]}}',
            "whose finish_reason is [1], expected an object",
        ),
        (b'{"meta_info":{"completion_tokens":4,"finish_reason":{"type":5}}}', "whose finish_reason.type is 5"),
        (b'{"meta_info":{"completion_tokens":4,"specbench_replay":{"t_s":"x"}}}', 'whose specbench_replay.t_s is "x"'),
        (b'{"meta_info":{"a":' + b"[" * 100 + b"]" * 100 + b"}}", "that is nested more than 32 deep"),
        (b"[" * 100_000, "that is no JSON: b'[[["),
        (b"\xff\xfe", "that is no JSON: b'\\xff"),
        (b"a" * 9_000_000, "of more than 8,388,608 bytes: b'data: aaa"),
    ],
)
def test_events_of_a_wrong_shape_are_a_failed_request_that_keeps_what_came(raw: bytes, words: str) -> None:
    end = b"" if len(raw) > 8_000_000 else b"\n\n"
    got = ask(streaming(chunk(2), b"data: " + raw + end))
    assert got.error is not None and f"the stream held an event {words}" in got.error
    assert got.output_tokens == 2


@pytest.mark.parametrize("figure", [b"NaN", b"1e400", b"-Infinity", b"9" * 30])
def test_figures_that_a_record_cannot_hold_are_unknown(figure: bytes) -> None:
    last = b'data: {"meta_info":{"completion_tokens":4,"finish_reason":{"type":"length"},"x":' + figure + b"}}\n\n"
    got = ask(streaming(last))
    assert (got.error, got.output_tokens, got.meta_info["x"]) == (None, 4, None)


def test_half_a_surrogate_pair_does_not_reach_the_record() -> None:
    got = ask(streaming(b'data: {"error":{"message":"a\\ud800b"}}\n\n'))
    assert got.error == "error event in the stream: a?b"


def test_an_error_body_without_an_end_is_cut() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"a" * 65536)
        return response

    got = ask(handle)
    assert got.error == "HTTP 500: " + "a" * 2000


def test_a_stream_that_never_ends_runs_out_of_time_and_keeps_its_tokens() -> None:
    got = ask(streaming(chunk(2), end="hang"), timeout_s=0.3)
    assert got.error == "no end within 0.3 s, 2 tokens came"
    assert got.output_tokens == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error":{"message":"too long"}}', "HTTP 400: too long"),
        ('{"object":"error","message":"too long","code":400}', "HTTP 400: too long"),
        ("plain text", "HTTP 400: plain text"),
        ("[1]", "HTTP 400: [1]"),
        ("", "HTTP 400: no text"),
    ],
)
def test_http_errors_of_both_forms(body: str, words: str) -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(status=400, text=body)

    got = ask(handle)
    assert (got.http_status, got.error) == (400, words)


def test_nobody_listens() -> None:
    got = ask(None)
    assert got.http_status is None
    assert got.error == "the connection broke after 0 tokens: the server closed or refused it"


def test_an_endless_stream_is_cut_when_it_counts_more_than_was_asked_for() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        tokens = 0
        with contextlib.suppress(ConnectionError):
            while True:
                tokens += 1
                await response.write(chunk(tokens))
        return response

    got = ask(handle, timeout_s=60.0)
    assert got.error == "the stream counts 5 tokens where 4 were asked for"
    assert (got.output_tokens, sum(tokens for _, tokens in got.chunks)) == (4, 4)


def test_a_redirect_is_not_followed() -> None:
    paths = []

    async def handle(request: web.Request) -> web.StreamResponse:
        paths.append(request.headers.get("Host"))
        if len(paths) > 1:
            return web.Response(body=chunk(4, LENGTH))
        return web.Response(status=307, headers={"Location": str(request.url)})

    got = ask(handle)
    assert (got.http_status, len(paths)) == (307, 1)
    assert got.error is not None and got.error.startswith("HTTP 307: a redirect to http://127.0.0.1:")
    assert got.error.endswith("/generate, which is not followed")
