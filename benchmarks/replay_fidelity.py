"""Planned against measured chunk times of a replay, at the receiver.

    python benchmarks/replay_fidelity.py [--streams 64] [--chunks 200] [--gap-ms 22] [--speed 1] [--json]

Writes a record of so many concurrent streams with speculative chunks, plays it with the real replay process, reads it
with the real client, and compares when each chunk arrived with when it was recorded. Both processes share this machine.
Target: within 8 ms at p99 for 64 streams at speed 1, in the best of some rounds. `timer_p99_ms` is the lateness of a
timer in a third process that does nothing else meanwhile: a machine where that is late, too, has other work, and no
round of it says anything about the replay. Exit code 1 when the target is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from specbench.configuration.config import RunConfig
from specbench.lifecycle.launch import launch
from specbench.load.client import Received
from specbench.reading.latency import distribution
from specbench.records.record import RunRecord
from specbench.records.types import RequestTrace, RunStatus
from specbench.records.writer import RecordWriter

TARGET_P99_S = 0.008
#: Lateness of a timer (p99, seconds) while its standard input is open.
TIMER = """
import asyncio, sys
from specbench.load.client_load import LoadMeter
async def measure():
    meter = LoadMeter()
    meter.start()
    await asyncio.to_thread(sys.stdin.read)
    print(meter.stop(0).lag_p99_s)
asyncio.run(measure())
"""
LOG = """\
[2026-01-02 03:04:05] server_args=ServerArgs(model_path='m')
[2026-01-02 03:04:05] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2026-01-02 03:04:05] The server is fired up and ready to roll!
"""


def write_record(folder: Path, streams: int, chunks: int, gap_s: float, first_s: float = 0.2) -> RunRecord:
    """One step of `streams` clients; chunks of 1 to 7 tokens from `first_s` on, a little jitter, seeded."""
    source = random.Random(0)
    config = RunConfig.model_validate(
        {"name": "fidelity", "engine": {"version": "0.5.16"}, "model": "m", "gpu": {"name": "h200"}}
    )
    traces = []
    for index in range(streams):
        at_s, row = first_s + 0.002 * index, []
        for _ in range(chunks):
            row.append((round(at_s, 6), source.randint(1, 7)))
            at_s += gap_s * source.uniform(0.9, 1.1)
        tokens = sum(count for _, count in row)
        traces.append(
            RequestTrace(
                step=f"conc{streams}",
                phase="measured",
                index=index,
                concurrency=streams,
                input_tokens=1024,
                max_new_tokens=1024,
                sent_s=0.0,
                http_status=200,
                chunks=tuple(row),
                end_s=row[-1][0],
                output_tokens=tokens,
                finish_reason="length",
                meta_info={"finish_reason": {"type": "length"}, "prompt_tokens": 1024, "completion_tokens": tokens},
            )
        )
    with RecordWriter(folder) as writer:
        writer.config(config)
        writer.command([])
        writer.env({})
        writer.log_path.write_text(LOG)
        writer.requests(traces)
        return writer.finish(
            RunStatus(status="served", origin="recorded", reason="made for the benchmark", ready_s=0.0)
        )


def replayed(record: RunRecord, streams: int, speed: float, log: Path) -> list[Received]:
    """What the client received of each stream."""
    import asyncio

    import aiohttp

    from specbench.load.client import Sent, generate
    from specbench.load.prompts import token_ids
    from specbench.replay.asking import CONCURRENCY, INDEX

    config = record.config.replace({"engine.replay": str(record.folder), "engine.replay_speed": speed})

    async def drive(url: str) -> list[Received]:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**20) as session:
            prompts = [token_ids(1024, seed=0, step="fidelity", index=index) for index in range(streams)]
            asked = [
                Sent(
                    input_ids=prompt,
                    max_new_tokens=1024,
                    headers={CONCURRENCY: str(streams), INDEX: str(index)},
                    timeout_s=120.0,
                )
                for index, prompt in enumerate(prompts)
            ]
            return list(await asyncio.gather(*(generate(session, url, sent) for sent in asked)))

    with launch(config, log_path=log) as server:
        return asyncio.run(drive(server.url))


def late_s(received: list[Received], speed: float) -> list[float]:
    """Measured minus planned, in seconds of this machine, of every chunk."""
    return [
        at_s - marked_s / speed
        for stream in received
        for (at_s, _), marked_s in zip(stream.chunks, stream.marks, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """How far chunks were from their times; early is as wrong as late."""

    chunks: int
    p50_s: float
    p99_s: float
    max_s: float
    timer_p99_s: float


def play(streams: int, chunks: int, gap_s: float, speed: float) -> Round | str:
    """One round; a text says why there are no figures."""
    with tempfile.TemporaryDirectory() as folder:
        record = write_record(Path(folder) / "record", streams, chunks, gap_s)
        with subprocess.Popen([sys.executable, "-c", TIMER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as timer:
            received = replayed(record, streams, speed, Path(folder) / "replay.log")
            timer_s = float(timer.communicate()[0])
    errors = [stream.error for stream in received if stream.error]
    late = [abs(value) for value in late_s(received, speed)]
    spread = distribution(late)
    if errors or spread is None:
        return f"{len(errors)} streams failed: {errors[:1]}"
    return Round(chunks=len(late), p50_s=spread.p50, p99_s=spread.p99, max_s=max(late), timer_p99_s=timer_s)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--streams", type=int, default=64)
    options.add_argument("--chunks", type=int, default=200)
    options.add_argument("--gap-ms", type=float, default=22.0)
    options.add_argument("--speed", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=3, help="at most; it ends with the first that meets the target")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    began = time.perf_counter()
    best: Round | None = None
    for _ in range(given.rounds):
        found = play(given.streams, given.chunks, given.gap_ms / 1000, given.speed)
        if isinstance(found, str):
            sys.stderr.write(f"{found}\n")
            return 1
        best = found if best is None or found.p99_s < best.p99_s else best
        if best.p99_s <= TARGET_P99_S:
            break
    assert best is not None
    met = best.p99_s <= TARGET_P99_S
    figures = {
        "streams": given.streams,
        "chunks": best.chunks,
        "speed": given.speed,
        "p50_ms": round(best.p50_s * 1000, 3),
        "p99_ms": round(best.p99_s * 1000, 3),
        "max_ms": round(best.max_s * 1000, 3),
        "timer_p99_ms": round(best.timer_p99_s * 1000, 3),
        "target_p99_ms": TARGET_P99_S * 1000,
        "met": met,
        "took_s": round(time.perf_counter() - began, 1),
    }
    if given.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        sys.stdout.write("".join(f"{name:>14}  {value}\n" for name, value in figures.items()))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
