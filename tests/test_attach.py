"""A server that somebody else started: measured, compared with the params, and left alone. The key goes nowhere."""

from __future__ import annotations

import _thread
import asyncio
import gzip
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from specbench import show
from specbench.configuration.config import RunConfig
from specbench.engines import check
from specbench.errors import ConfigError, LaunchError, SpecbenchError
from specbench.lifecycle import fetch, time_limit
from specbench.lifecycle.attach import Attached
from specbench.lifecycle.ports import free_port
from specbench.lifecycle.served_config import as_served
from specbench.machine_file import Places, place
from specbench.params import dump_run
from specbench.reading import latency
from specbench.records.caveats import ON_CPU, RANDOM_WEIGHTS, caveats
from specbench.records.record import RunRecord
from specbench.records.redaction import REMOVED, Redaction
from specbench.replay.itself import UNTOLD, pace, played
from specbench.running.run import run
from specbench.studies.study import study

RECORDS = Path(__file__).parent / "records"
KEY = 'sk-Pa55/"word"\\of-the-server'


@contextmanager
def somebody_elses(record: str) -> Iterator[tuple[str, bytes, subprocess.Popen[bytes]]]:
    """URL, log and process of a server that plays a record: for who attaches, an SGLang that already runs."""
    port = free_port("127.0.0.1")
    argv = [sys.executable, "-m", "specbench.replay", str(RECORDS / record), "--port", str(port), "--speed", "instant"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if b"The server is fired up" in line:
                break
        yield f"http://127.0.0.1:{port}", b"".join(lines), process
    finally:
        process.terminate()
        process.communicate()


def attached_to(url: str, record: str = "nospec_r8", **changes: Any) -> RunConfig:
    """A configuration that says little: what the server has is taken from it."""
    config = RunRecord.open(RECORDS / record).config
    data: dict[str, Any] = {
        "name": "attached",
        "engine": {"version": config.engine.version, "attach": url},
        "model": config.model,
        "gpu": {"name": "h200"},
        "workload": {"input_tokens": [1024], "output_tokens": 256, "concurrency": [8], "requests": 8, "warmup": 0},
    }
    return RunConfig.model_validate(data).replace(changes)


def test_it_is_asked_and_left_running(tmp_path: Path) -> None:
    log = tmp_path / "theirs.log"
    with somebody_elses("nospec_r8") as (url, started, process):
        log.write_bytes(started + b"[2026-01-01 00:00:00] Decode batch. somebody else's traffic\n")
        record = run(attached_to(url, **{"engine.attach_log": str(log)}), tmp_path / "run")
        assert process.poll() is None
        assert fetch.get("127.0.0.1", int(url.rpartition(":")[2]), "/health", timeout_s=60.0).status == 200
    assert record.status.status == "served"
    assert record.status.reason == "attached: it answered until the end of the workload, and was left running"
    assert (record.status.ready_s, record.status.exit_code) == (None, None)
    assert set(record.status.phases) == {"conc8-in1024"}
    assert record.status.flushes["conc8-in1024"].startswith("HTTP 200")
    (row,) = latency.table(record).rows
    assert (row.ok, row.failed) == (8, 0)
    assert record.server_info() and record.server_info_after() and record.model_info() and record.metrics_text()
    assert record.command() == ()
    assert record.log_bytes() == started  # what came between its start and ours is left out
    found = study(record.folder)
    assert found.resolved == 8
    assert found.diagnosis.pools.ranks[0].weights is not None
    env = record.env
    assert env["attach"] == {"url": url, "version": "0.5.16", "key_sent": False}
    assert (env["engine"]["installed"], env["engine"]["version_from"]) == ("0.5.16", "/server_info")
    assert env["gpu_memory"] is None
    notes = " | ".join(record.status.notes)
    assert f"attached to a server that somebody else started ({url}); it was left running" in notes
    assert "of the attached server's log 1 lines from before this run are left out" in notes


def test_a_replay_that_somebody_else_started_is_recorded_not_measured(tmp_path: Path) -> None:
    source = RunRecord.open(RECORDS / "dflash_r8_full_sim")
    draft = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
    with somebody_elses("dflash_r8_full_sim") as (url, _, _):
        record = run(attached_to(url, "dflash_r8_full_sim", speculative=draft), tmp_path / "run")
    assert (record.origin, record.replayed) == ("recorded", True)
    assert record.env["replay"]["name"] == "dflash_r8_full_sim"
    assert record.env["replay"]["sha256"] == source.sha256()
    assert record.recorded_machine == source.recorded_machine
    assert record.gpu_samples() == ()
    notes = record.status.notes
    said = "replay of the record dflash_r8_full_sim, at once; all times of requests are in recorded time"
    assert f"the attached server is no engine: {said}" in notes
    assert RANDOM_WEIGHTS in notes
    # The times are the recorded ones, though the replay answered at once.
    (mine,), theirs = latency.table(record).measured, latency.table(source).measured
    assert (mine.ttft_s, mine.e2e_s) in [(row.ttft_s, row.e2e_s) for row in theirs]
    page = show.overview(study(record.folder)).text
    assert "recorded: replay of a recording, by a server that somebody else started" in page
    assert "measured: a real engine" not in page


def test_what_a_replay_says_of_itself_is_data() -> None:
    assert played({"version": "0.5.16"}) is None
    assert played({"specbench_replay": 3}) == UNTOLD
    odd = {"record": ["x"], "speed": float("nan"), "notes": "none", "machine": 4, "sha256": None}
    assert played({"specbench_replay": odd}) == UNTOLD
    fine = played({"specbench_replay": {"record": "a", "speed": "instant", "notes": ["b", 3]}})
    assert fine is not None and (fine.words, fine.notes) == ("the record a, at once", ("b",))
    assert pace(2.0) == "2 times as fast as recorded"


@pytest.mark.parametrize("phase", ["conc8-in1024", "leave"])
def test_an_interrupt_leaves_it_alone_and_nothing_here(tmp_path: Path, phase: str) -> None:
    interrupted = threading.Event()

    def interrupt(now: str, done: int, total: int) -> None:
        if now == phase and not interrupted.is_set():
            interrupted.set()
            _thread.interrupt_main()  # what a Ctrl-C does, whichever thread tells of progress

    with somebody_elses("nospec_r8") as (url, _, process):
        with pytest.raises(KeyboardInterrupt):
            run(attached_to(url), tmp_path / "run", progress=interrupt)
        assert process.poll() is None
        assert fetch.get("127.0.0.1", int(url.rpartition(":")[2]), "/health", timeout_s=60.0).status == 200
    assert list((tmp_path / "run").iterdir()) == []


def test_without_its_log_the_server_itself_tells_what_it_can(tmp_path: Path) -> None:
    with somebody_elses("dflash_r8") as (url, _, _):
        draft = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}
        record = run(attached_to(url, "dflash_r8", speculative=draft), tmp_path / "run")
    assert record.config.speculative.num_draft_tokens == 16
    assert check(record.config) == []
    assert record.config.memory.mem_fraction_static == 0.508124
    pools = study(record.folder).diagnosis.pools
    # As /server_info says them; the pools' sizes are in the log alone.
    assert (pools.running_requests, pools.state_slots, pools.kv_tokens) == (1, 8, 158177)
    assert pools.ranks == ()
    assert record.log_bytes() == b""
    assert any("log is not known (engine.attach_log)" in note for note in record.status.notes)
    diagnosis = study(record.folder).diagnosis
    assert (diagnosis.served, diagnosis.served_source) == (1, "the client's own count of streams in conc8-in1024")
    sentence = "8 requests at once asked, 1 resolved, 1 served at once."
    assert sentence in show.overview(study(record.folder)).text


def test_a_stated_key_that_is_served_otherwise_is_refused(tmp_path: Path) -> None:
    with somebody_elses("dflash_r8") as (url, _, _):
        asked = attached_to(url, "dflash_r8", **{"memory.max_running_requests": 4, "parallel.tp_size": 1})
        with pytest.raises(ConfigError) as raised:
            run(asked, tmp_path / "run")
        assert str(raised.value) == (
            f"memory.max_running_requests: 4 asked, 8 served (engine.attach: {url}).\n"
            "The server that runs there is another one: use its value, or leave the key out to take them."
        )
        with pytest.raises(ConfigError, match=r"^engine\.version: 0\.5\.12 asked, 0\.5\.16 served"):
            run(asked.replace({"engine.version": "0.5.12", "memory.max_running_requests": 8}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ── what is compared ─────────────────────────────────────────────────────────────────────────────────────────────────


def info(record: str) -> Any:
    return RunRecord.open(RECORDS / record).server_info()


def test_a_renamed_algorithm_and_version_are_the_same() -> None:
    asked = attached_to("http://a", "nextn_r4_full", **{"speculative.algorithm": "nextn"})
    served = as_served(asked, info("nextn_r4_full"))
    assert served.config.speculative.algorithm == "nextn"  # the engine calls it EAGLE once it is resolved
    assert served.config.speculative.num_steps == 3
    as_served(asked, {**info("nextn_r4_full"), "version": "0.5.16+cu130"})
    with pytest.raises(ConfigError, match=r"speculative\.algorithm: DFLASH asked, EAGLE served"):
        as_served(asked.replace({"speculative.algorithm": "DFLASH"}), info("nextn_r4_full"))
    with pytest.raises(ConfigError, match=r"speculative\.algorithm: none asked, EAGLE served"):
        as_served(asked.replace({"speculative.algorithm": "none"}), info("nextn_r4_full"))
    with pytest.raises(ConfigError, match=r"parallel\.tp_size: 1 asked, 2 served"):
        as_served(asked.replace({"parallel.tp_size": 1}), {**info("nextn_r4_full"), "tp_size": 2})


def test_flags_without_a_key_that_differ_are_told() -> None:
    args = {"schedule-policy": "lpm", "load_format": "dummy", "off": None, "unheard-of": 1}
    notes = as_served(attached_to("http://a", **{"engine.args": args}), info("nospec_r8")).notes
    assert [note for note in notes if note.startswith("engine.args")] == [
        "engine.args.schedule-policy: lpm in the params, served fcfs"
    ]


def test_flags_that_say_what_a_figure_is_worth_are_taken() -> None:
    told = {**info("nospec_r8"), "load_format": "dummy", "device": "cpu", "linear_attn_backend": 7}
    asked = attached_to("http://a", **{"engine.args": {"schedule-policy": "fcfs"}})
    served = as_served(asked, told)
    assert served.config.engine.args == {"schedule-policy": "fcfs", "device": "cpu", "load_format": "dummy"}
    assert caveats(served.config) == (ON_CPU, RANDOM_WEIGHTS)
    assert served.taken["engine.args.device"] == "cpu"
    usual = as_served(asked, {**told, "load_format": "auto", "device": "cuda"})
    assert usual.config.engine.args == asked.engine.args


@pytest.mark.parametrize(
    "path",
    [
        "/srv/sgl/models/qwen36-27b-dflash",
        "z-lab/Qwen3.6-27B-DFlash",
        "/home/somebody/.cache/huggingface/hub/models--z-lab--Qwen3.6-27B-DFlash/snapshots/0f1e2d/",
    ],
)
def test_the_draft_is_known_by_the_name_of_its_path(path: str) -> None:
    told = {**info("dflash_r8"), "speculative_draft_model_path": path}
    served = as_served(attached_to("http://a"), told)
    assert served.config.speculative.draft_model_path == "z-lab/Qwen3.6-27B-DFlash"
    assert served.taken["speculative.draft_model_path"] == "z-lab/Qwen3.6-27B-DFlash"
    assert any("is taken for z-lab/Qwen3.6-27B-DFlash" in note for note in served.notes)
    assert check(served.config) == []


def test_a_draft_that_nobody_knows_is_asked_for() -> None:
    served = as_served(attached_to("http://a"), {**info("dflash_r8"), "speculative_draft_model_path": "/models/mine"})
    assert served.config.speculative.algorithm == "DFLASH"
    assert served.config.speculative.draft_model_path is None
    assert (
        "the attached server's draft model /models/mine is none that specbench knows by its name, so memory cannot be "
        "predicted: state speculative.draft_model_path (a name, or a folder with its config.json)"
    ) in served.notes
    own_head = {**info("nextn_r4_full"), "speculative_draft_model_path": info("nextn_r4_full")["model_path"]}
    assert as_served(attached_to("http://a"), own_head).config.speculative.draft_model_path is None


def test_values_of_a_wrong_kind_are_unknown_and_told() -> None:
    odd = {
        **info("nospec_r8"),
        "max_running_requests": [1],
        "tp_size": "x",
        "speculative_algorithm": ["x"],
        "version": 5,
    }
    served = as_served(attached_to("http://a", **{"memory.max_running_requests": 4, "parallel.tp_size": 1}), odd)
    assert served.config.memory.max_running_requests == 4
    assert served.config.speculative.algorithm == "none"
    assert {
        "memory.max_running_requests is not known: the attached server says [1], which is no value of it",
        'parallel.tp_size is not known: the attached server says "x", which is no value of it',
        'speculative.algorithm is not known: the attached server says ["x"], which is no value of it',
        "the attached server does not tell its version; 0.5.16 is what the params say",
    } <= set(served.notes)


def test_values_that_no_configuration_can_have_are_not_taken() -> None:
    odd = {**info("nospec_r8"), "kv_cache_dtype": 7, "page_size": "x", "speculative_algorithm": "DFLASH"}
    served = as_served(attached_to("http://a"), odd)
    assert served.config.memory.kv_cache_dtype == "auto"
    assert "memory.page_size" not in served.taken
    assert served.config.speculative.algorithm == "DFLASH"


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def demanding(key: str, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A small SGLang that demands a key, and tells it to everybody who may ask."""

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path != "/health" and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)  # type: ignore[no-any-return]

    async def generate(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if len(body["input_ids"]) == 7:
            return web.json_response({"error": {"message": f"not for {request.headers['Authorization']}"}}, status=500)
        meta = {"completion_tokens": 4, "finish_reason": {"type": "length"}, "weight_version": key}
        return web.Response(body=b"data: " + json.dumps({"text": "t", "meta_info": meta}).encode() + b"\n\n")

    def told(value: Any) -> Any:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response(value) if isinstance(value, dict) else web.Response(text=value)

        return answer

    app = web.Application(middlewares=[guard])
    for path, value in {
        "/health": "",
        "/server_info": {"version": "0.5.16", "api_key": key, "tp_size": 1, "internal_states": [{"api_key": key}]},
        "/model_info": {"model_path": f"/models/{key}"},
        "/metrics": f"# of {key}\nx 1\n",
    }.items():
        app.router.add_get(path, told(value))
    app.router.add_post("/flush_cache", told(f"flushed for {key}"))
    app.router.add_post("/generate", generate)
    port = free_port("127.0.0.1")
    loop, listening, ending = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        listening.set()
        await ending.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert listening.wait(60)
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()


def holds_key(folder: Path) -> list[str]:
    """Files that hold the key in any form."""
    forms = [KEY.encode(), json.dumps(KEY)[1:-1].encode(), json.dumps(json.dumps(KEY)[1:-1])[1:-1].encode()]
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            found += [str(file)] * any(form in data for form in forms)
    return found


def test_the_key_is_sent_and_is_nowhere_in_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "theirs.log"
    log.write_text(f"server_args=ServerArgs(api_key={KEY!r}, admin_api_key='other')\nsent {KEY}\n")
    monkeypatch.setenv("THEIR_KEY", KEY)
    changes = {
        "engine.api_key_env": "THEIR_KEY",
        "engine.attach_log": str(log),
        "workload.input_tokens": [7, 8],
        "workload.requests": 1,
        "workload.concurrency": [1],
    }
    with demanding(KEY) as url:
        record = run(attached_to(url, **changes), tmp_path / "run")
    refused, fine = record.requests()
    assert (refused.error, fine.error) == (f"HTTP 500: not for Bearer {REMOVED}", None)
    assert (record.env["attach"]["key_sent"], record.origin) == (True, "measured")
    assert record.log_bytes() == (
        f"server_args=ServerArgs(api_key='{REMOVED}', admin_api_key='{REMOVED}')\nsent {REMOVED}\n".encode()
    )
    told = record.server_info()
    assert told and (told["api_key"], told["internal_states"][0]["api_key"]) == (REMOVED, REMOVED)
    assert record.model_info() == {"model_path": f"/models/{REMOVED}"}
    assert REMOVED in (record.metrics_text() or "") and REMOVED in record.status.flushes["conc1-in7"]
    assert holds_key(tmp_path / "run") == []
    assert holds_key(tmp_path) == [str(log)]  # the search finds it where it is


def test_https_with_a_checked_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = Path(__file__).parent / "tls" / "loopback.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SPECBENCH_API_KEY", KEY)
    small = {"workload.requests": 2, "workload.concurrency": [2]}
    with demanding(KEY, context) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        record = run(attached_to(url, **small), tmp_path / "run")
    assert [trace.error for trace in record.requests()] == [None, None]
    assert record.status.flushes["conc2-in1024"] == f"HTTP 200: flushed for {REMOVED}"
    assert (
        "conc2-in1024: 2 of 2 answers have fewer tokens than were asked for (as few as 4 of 256; finish reason "
        "length), though ends of text are to be ignored"
    ) in record.status.notes


def test_https_with_a_certificate_that_nobody_trusts() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).parent / "tls" / "loopback.pem")

    def greet(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the client leaves at the certificate
            context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(LaunchError) as raised:
            Attached(attached_to(url)).connect(1.0)
        thread.join()
    assert str(raised.value) == (
        f"engine.attach: {url}: no server answers there: its certificate cannot be verified (self-signed "
        "certificate).\n"
        "Name the authority that signed its certificate in SSL_CERT_FILE, or use http on a trusted network."
    )


def test_a_missing_or_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECBENCH_API_KEY", raising=False)
    with demanding(KEY) as url:
        for given, word in ((None, "none is"), ("sk-another-key", "refuses the one")):
            if given is not None:
                monkeypatch.setenv("SPECBENCH_API_KEY", given)
            with pytest.raises(LaunchError) as raised:
                run(attached_to(url), tmp_path / "run")
            assert str(raised.value) == (
                f"engine.attach: {url} asks for a key, and {word} in SPECBENCH_API_KEY (HTTP 401).\n"
                "Set SPECBENCH_API_KEY to the server's key (engine.api_key_env names another variable)."
            )
    assert not (tmp_path / "run").exists()


def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_API_KEY", "secret\nHost: evil")
    with pytest.raises(ConfigError) as raised:
        Attached(attached_to("http://127.0.0.1:1"))
    assert "secret" not in str(raised.value) and "SPECBENCH_API_KEY" in str(raised.value)
    assert "secret" not in repr(Redaction("secret-key"))


def test_what_is_removed() -> None:
    redaction = Redaction("short")
    assert redaction.text('{"api_key": "a\\"b", "x": "short"}') == f'{{"api_key": "{REMOVED}", "x": "short"}}'
    assert redaction.text("api_key=None, admin_api_key='x'") == f"api_key=None, admin_api_key='{REMOVED}'"
    assert redaction.text("python --api-key abc --port 1") == f"python --api-key {REMOVED} --port 1"
    # As SGLang 0.5.23 prints its arguments, and lists of arguments.
    assert redaction.text("{'api_key': None, 'admin_api_key': 'x', 'a': 1}") == (
        f"{{'api_key': None, 'admin_api_key': '{REMOVED}', 'a': 1}}"
    )
    assert redaction.text("['--api-key', 'abc', '--ssl-keyfile-password=x']") == (
        f"['--api-key', '{REMOVED}', '--ssl-keyfile-password={REMOVED}']"
    )
    assert redaction.text("--api-key 'a b' --api-key --port") == f"--api-key {REMOVED} --api-key --port"
    assert Redaction("a-long-key").data(b"\xff a-long-key") == b"\xff " + REMOVED.encode()


def test_what_is_removed_of_values() -> None:
    told = {"requests": ["requests", 1, None], "deep": {"a": "many requests"}, "x_requests": True}
    word = Redaction("requests").values(told)
    assert word == {"requests": [REMOVED, 1, None], "deep": {"a": f"many {REMOVED}"}, "x_requests": True}
    named = Redaction("sk-1234567").values({"of sk-1234567": "sk-1234567", "api_key": 7, "b": {"admin_api_key": None}})
    assert named == {f"of {REMOVED}": REMOVED, "api_key": REMOVED, "b": {"admin_api_key": None}}
    short = Redaction("abc").values(["abc", "Bearer abc", "abcd", ["--api-key", "x", "--port"]])
    assert short == [REMOVED, REMOVED, "abcd", ["--api-key", REMOVED, "--port"]]


#: Names and words of which a record itself is made.
@pytest.mark.parametrize("key", ["internal_states", "measured", "requests", "completion_tokens", '"version": "'])
def test_whatever_the_key_is_the_record_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("SPECBENCH_API_KEY", key.replace(" ", ""))
    with demanding(key.replace(" ", "")) as url:
        run(attached_to(url, **{"workload.requests": 1, "workload.concurrency": [1]}), tmp_path / "run")
    record = RunRecord.open(tmp_path / "run")
    (trace,) = record.requests()
    assert (trace.error, trace.output_tokens, trace.meta_info["weight_version"]) == (None, 4, REMOVED)
    info = record.server_info()
    assert info and info["internal_states"] == [{"api_key": REMOVED}]
    assert record.origin == "measured" and record.gpu_samples() == ()
    assert study(record.folder).diagnosis is not None


def test_a_short_key_is_told_and_one_in_the_params_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("SPECBENCH_API_KEY", "abc123")
    with demanding("abc123") as url:
        asked = attached_to(url, **{"workload.requests": 1, "workload.concurrency": [1]})
        record = run(asked, tmp_path / "run", notice=said.append)
    note = (
        "the key in SPECBENCH_API_KEY has fewer than 8 characters: where the attached server repeats it within a "
        "longer text it stays there"
    )
    assert note in said and note in record.status.notes
    monkeypatch.setenv("SPECBENCH_API_KEY", "sk-of-theirs")
    with pytest.raises(ConfigError) as raised:
        Attached(attached_to("http://127.0.0.1:1/sk-of-theirs"))
    assert str(raised.value) == (
        "engine.api_key_env: the key in SPECBENCH_API_KEY is in the params too, which the record keeps.\n"
        "Take it out of them (an address, a path or a name has it), or use another key."
    )


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("--port 1 --api-key sk-a-key-of-theirs", f"--port 1 --api-key {REMOVED}"),
        ("--api-key sk,a:key --port 1", f"--api-key {REMOVED} --port 1"),
        ('--api-key "a b" --port 1', f"--api-key {REMOVED} --port 1"),
        ("--api-key 'a b' --port 1", f"--api-key {REMOVED} --port 1"),
        ("--admin-api-key=a\\b\n--port", f"--admin-api-key={REMOVED}\n--port"),
        ('["--api-key", "x"]', f'["--api-key", "{REMOVED}"]'),
        ("set --api-key ", "set --api-key "),
        ("--api-key", "--api-key"),
    ],
)
def test_json_without_the_key_is_still_json(command: str, left: str) -> None:
    """SGLang 0.5.23 tells its whole command line in /server_info, without a space after it."""
    told = {"launch_command": command, "status": "ready", "args": ["--api-key", "x", "--api-key"]}
    for separators in ((",", ":"), (", ", ": ")):
        text = Redaction("sk-a-key-of-theirs").text(json.dumps(told, separators=separators))
        assert json.loads(text) == {**told, "launch_command": left, "args": ["--api-key", REMOVED, "--api-key"]}
        assert Redaction("sk-a-key-of-theirs").text(text) == text


def test_odd_characters_of_a_server_do_not_cost_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON's escapes for half a character, which no file can hold; and NaN, which is no JSON."""
    get = fetch.get
    odd = b'{"version": "0.5.16", "model_path": "\\ud800x", "kv_cache_dtype": "\\udfff", "mem_fraction_static": NaN}'

    def hostile(host: str, port: int, path: str, **how: Any) -> fetch.Fetched:
        return fetch.Fetched(status=200, body=odd) if path == "/server_info" else get(host, port, path, **how)

    monkeypatch.setattr(fetch, "get", hostile)
    monkeypatch.setenv("SPECBENCH_API_KEY", KEY)
    with demanding(KEY) as url:
        record = run(attached_to(url, **{"workload.requests": 1, "workload.concurrency": [1]}), tmp_path / "run")
    told = record.server_info()
    assert told and (told["model_path"], told["mem_fraction_static"]) == ("?x", None)
    assert record.config.memory.kv_cache_dtype == "?"
    assert any(note.startswith("the attached server's model is ?x;") for note in record.status.notes)


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_there(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    with pytest.raises(LaunchError) as raised:
        run(attached_to(url), tmp_path / "run")
    assert str(raised.value) == (
        f"engine.attach: {url}: no server answers there: connection refused.\n"
        "Start it first and wait until it is ready, or leave engine.attach out to have one started."
    )


def answering(body: bytes | None, problem: str | None = None) -> dict[str, fetch.Fetched]:
    told = fetch.Fetched(status=200, body=body, problem=problem)
    return {"/health": fetch.Fetched(status=200), "/server_info": told}


def test_another_kind_of_server(tmp_path: Path) -> None:
    class Other(Attached):
        def get(self, path: str, timeout_s: float = 1.0) -> fetch.Fetched:
            return answers.get(path, fetch.Fetched(status=404))

    answers: dict[str, fetch.Fetched] = {}
    for known, told in (
        ({}, "answers /health with HTTP 404, which a ready SGLang does not"),
        ({"/health": fetch.Fetched(status=200)}, "answers /get_server_info with HTTP 404"),
        (
            {"/health": fetch.Fetched(status=200), "/server_info": fetch.Fetched(status=200, body=b'{"app": "web"}')},
            "answers /server_info with no server information of SGLang, which",
        ),
        (answering(b"<html>"), r"answers /server_info with no server information of SGLang \(no JSON\)"),
        (answering(b"[" * 40 + b"]" * 40), r"of SGLang \(nested more than 32 deep\)"),
        (answering(None, "more than 16 bytes"), "answers /server_info with more than 16 bytes, which"),
        ({"/health": fetch.Fetched(status=503)}, "still starts: /health says HTTP 503 until the end of engine.ready_"),
        ({"/health": fetch.Fetched(status=302)}, "answers /health with HTTP 302, a redirect, which is not followed"),
    ):
        answers = known
        with pytest.raises(LaunchError, match=told) as raised:
            Other(attached_to("http://10.0.0.1:30000/v")).connect(0.0)
        assert len(str(raised.value).splitlines()) == 2


def test_a_server_that_starts_is_not_waited_for_beyond_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attached, "get", lambda self, path, timeout_s=1.0: fetch.Fetched(status=503))
    began = time.monotonic()
    monkeypatch.setenv(time_limit.VARIABLE, repr(began + 0.3))
    with pytest.raises(LaunchError, match="the deadline of the campaign came before a server was started"):
        run(attached_to("http://127.0.0.1:1"), tmp_path / "run")
    assert 0.3 <= time.monotonic() - began < 30.0  # of the 900 s that a server has for its start
    assert not (tmp_path / "run" / "record").exists()


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("127.0.0.1:30000", "no http:// or https:// URL"),
        ("ftp://host", "no http:// or https:// URL"),
        ("http://", "no http:// or https:// URL"),
        ("http://user:pa55@host", "a name or a password in the URL"),
        ("http://host/?key=pa55", "a query or a fragment in the URL"),
        ("http://host:99999", "no URL"),
        ("http://höst:30000", "a character outside ASCII in the URL"),
    ],
)
def test_addresses_that_are_none(url: str, wrong: str) -> None:
    with pytest.raises(ValidationError) as raised:
        attached_to(url)
    assert wrong in str(raised.value.errors()[0]["msg"])


def test_the_parts_of_an_address() -> None:
    server = Attached(attached_to("https://gpu.example/sglang/"))
    assert (server.url, server.host, server.port, server.tls) == (
        *("https://gpu.example/sglang", "gpu.example"),
        *(443, True),
    )
    assert server.not_sampled == "not sampled: the attached server runs on another machine"
    for local in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost"):
        assert Attached(attached_to(local)).not_sampled is None


def test_one_server_at_a_time() -> None:
    with pytest.raises(ValidationError, match="attach and replay are both given"):
        attached_to("http://a", **{"engine.replay": "x"})
    with pytest.raises(ValidationError, match="attach_log is given without attach"):
        attached_to("http://a", **{"engine.attach": None, "engine.attach_log": "x"})


def test_a_log_that_is_not_there() -> None:
    with pytest.raises(SpecbenchError, match=r"engine\.attach_log"):
        Attached(attached_to("http://a", **{"engine.attach_log": "/absent.log"}))


def test_a_machine_file_has_no_part_in_it() -> None:
    config = attached_to("http://a")
    assert place(config, Places(engines={}, models={})) is config
    assert "attach: http://a" in dump_run(config)
