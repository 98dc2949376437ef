"""A real engine that somebody else started, by hand, with a key or without: benchmarked, and left as it was."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench.engines.sglang.command import command
from specbench.errors import LaunchError
from specbench.lifecycle import fetch
from specbench.lifecycle.ports import free_port
from specbench.params import load_campaign, load_run
from specbench.records.caveats import ON_CPU, RANDOM_WEIGHTS
from specbench.records.record import RunRecord
from specbench.running.run import run
from specbench.studies.study import study

from .conftest import ROOT
from .test_lifecycle import PARAMS, text, until

KEY = "sk-of-somebody-else"


class Theirs:
    """The server of params/live/server.yaml, started without specbench."""

    def __init__(self, folder: Path, *flags: str) -> None:
        config = load_run(PARAMS)
        self.port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "their.log"
        argv = command(config, model_path=config.model, draft_path=None, host="127.0.0.1", port=self.port)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, *flags],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **config.engine.env},
            )

    def params(self, folder: Path, *lines: str) -> Path:
        """A params file that says little: the rest is the server's."""
        file = folder / "attached.yaml"
        file.write_text(
            "\n".join(
                (
                    "campaign: attached",
                    "base:",
                    f"  engine: {{version: 0.5.23, attach: '{self.url}'{''.join(lines)}}}",
                    "  model: live/models/tiny-hybrid",
                    "  gpu: {name: cpu}",
                    "  workload: {input_tokens: [64], output_tokens: 16, concurrency: [2], requests: 2, warmup: 1}",
                    "points: [{name: one}, {name: two, workload.output_tokens: 8}]",
                )
            )
        )
        return file


@contextmanager
def theirs(folder: Path, *flags: str) -> Iterator[Theirs]:
    server = Theirs(folder, *flags)
    try:
        until(lambda: "fired up and ready" in text(server.log) or server.process.poll() is not None, "a server by hand")
        assert server.process.poll() is None, text(server.log)[-2000:]
        yield server
        assert server.process.poll() is None  # whatever happened, it was left running
        assert fetch.get("127.0.0.1", server.port, "/health", timeout_s=60.0).status == 200
    finally:
        server.process.terminate()
        server.process.wait(60)


def benchmark(params: Path, out: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "specbench", "run", str(params), "--out", str(out)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)


def holding_the_key(folder: Path) -> list[str]:
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            found += [file.name] * (KEY.encode() in data)
    return found


def test_a_campaign_on_a_server_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with theirs(tmp_path, "--api-key", KEY, "--enable-metrics") as server:
        params = server.params(tmp_path, f", attach_log: '{server.log}'")
        for given, words in ((None, "and none is in"), ("sk-another", "and refuses the one in")):
            monkeypatch.delenv("SPECBENCH_API_KEY", raising=False)
            if given is not None:
                monkeypatch.setenv("SPECBENCH_API_KEY", given)
            with pytest.raises(LaunchError, match=rf"asks for a key, {words} SPECBENCH_API_KEY \(HTTP 401\)"):
                run(load_campaign(params).runs[0], tmp_path / "refused")
        monkeypatch.setenv("SPECBENCH_API_KEY", KEY)
        done = benchmark(params, tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
    assert holding_the_key(tmp_path) == [server.log.name]
    assert KEY not in done.stdout + done.stderr
    for name, tokens in (("one", 16), ("two", 8)):
        record = RunRecord.open(tmp_path / "out" / name / "record")
        assert (record.status.status, record.origin) == ("served", "measured")
        assert [(trace.error, trace.output_tokens) for trace in record.requests()] == [(None, tokens)] * 3
        assert all(answer.startswith("HTTP 200") for answer in record.status.flushes.values())
        assert record.server_info() and record.server_info_after() and record.metrics_text()
        # Not stated anywhere: as the server says it.
        assert (record.config.memory.max_total_tokens, record.config.memory.max_mamba_cache_size) == (16384, 24)
        assert {ON_CPU, RANDOM_WEIGHTS} <= set(record.status.notes)
        found = study(record.folder)
        assert (found.resolved, found.diagnosis.pools.kv_tokens, found.diagnosis.pools.state_slots) == (4, 16384, 24)
        page = (tmp_path / "out" / name / "index.html").read_text("utf-8")
        assert "a real engine that somebody else started" in page and "NOT A PERFORMANCE FIGURE" in page


def test_without_key_and_log_the_server_itself_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECBENCH_API_KEY", raising=False)
    with theirs(tmp_path) as server:
        done = benchmark(server.params(tmp_path), tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
    record = RunRecord.open(tmp_path / "out" / "one" / "record")
    assert record.status.status == "served" and record.log_bytes() == b""
    assert any("log is not known" in note for note in record.status.notes)
    pools = study(record.folder).diagnosis.pools
    assert (pools.running_requests, pools.state_slots, pools.kv_tokens) == (4, 24, 16384)
