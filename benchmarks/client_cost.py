"""What measuring costs the client: CPU per received chunk and event-loop lag, beside SGLang's own benchmark client.

    python benchmarks/client_cost.py [--streams 1 8 64 256] [--rounds 2] [--without-sglang] [--json]

A record is played by a real replay process; the same server answers, in turn, each in a process of its own:
  floor      aiohttp alone: sends the same requests, takes the time of every piece and throws it away
  specbench  specbench's client
  sglang     sglang.benchmark.serving of the pinned wheel, in an environment that this script makes (.bench-sglang)
All three carry the same meter (specbench.load.client_load). Both clients' mean TTFT and TPOT must agree within 2 %,
from 8 streams on specbench must need no more CPU per chunk than sglang, and at most 1.5 times the floor. Exit code 1
when one is missed. Offline, or where there is no such wheel, the comparison with sglang is left out, and it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from replay_fidelity import write_record

from specbench.lifecycle.launch import launch
from specbench.load.client import Received, Sent, generate
from specbench.load.client_load import LoadMeter, settle
from specbench.load.prompts import token_ids
from specbench.replay.asking import CONCURRENCY, INDEX, SENT

ROOT = Path(__file__).resolve().parent.parent
SGLANG = "0.5.16"
ENVIRONMENT = ROOT / ".bench-sglang"
DRIVER = Path(__file__).parent / "sglang_client"
INPUT_TOKENS, OUTPUT_TOKENS = 1024, 1024
FIRST_S, GAP_S = 1.5, 0.022
#: The server shares this machine: with more streams the chunks of each come further apart, as an engine's do.
CHUNKS_PER_S = 1600
#: Requests come one after the other: how fast a client opens 256 connections at once would be most of its TTFT.
ARRIVALS_PER_S = 64
SPAN_S = 5.0
SAME, OVER_FLOOR, FROM_STREAMS = 0.02, 1.5, 8
CLIENT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One client against one server."""

    client: str
    streams: int
    chunks: int
    cpu_per_chunk_us: float  # of the loop's thread, requests included
    cpu_share: float
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    ttft_ms: float | None  # means; None: the floor computes none
    tpot_ms: float | None


# ── in a client's process ────────────────────────────────────────────────────────────────────────────────────────────


async def _later(index: int, request: Awaitable[Any]) -> Any:
    await asyncio.sleep(index / ARRIVALS_PER_S)
    return await request


async def _floor(session: aiohttp.ClientSession, url: str, sent: Sent) -> int:
    """Pieces that came: what has to be done at least to know when."""
    times = []
    headers = {"Content-Type": "application/json", **sent.headers}
    async with session.post(f"{url}/generate", data=sent.payload, headers=headers) as response:
        while await response.content.readany():
            times.append(time.perf_counter())
    return len(times)


async def drive(client: str, url: str, streams: int) -> dict[str, Any]:
    """All requests, one after the other; what the meter saw, and the figures of the answers."""
    # "0" is no time of this machine: the replay counts from the arrival of a request, as it does for any client.
    asked = [
        Sent(
            input_ids=token_ids(INPUT_TOKENS, seed=0, step="cost", index=index),
            max_new_tokens=OUTPUT_TOKENS,
            headers={CONCURRENCY: str(streams), INDEX: str(index), SENT: "0"},
            timeout_s=CLIENT_S,
        )
        for index in range(streams)
    ]
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=2**20) as session:
        settle()  # as specbench does before a step
        meter = LoadMeter()
        meter.start()
        if client == "floor":
            pieces = await asyncio.gather(*(_later(i, _floor(session, url, sent)) for i, sent in enumerate(asked)))
            return {"load": asdict(meter.stop(sum(pieces))), "ttft_s": None, "tpot_s": None}
        received = await asyncio.gather(*(_later(i, generate(session, url, sent)) for i, sent in enumerate(asked)))
        load = meter.stop(sum(len(stream.chunks) for stream in received))
    return {"load": asdict(load), **_means(received)}


def _means(received: list[Received]) -> dict[str, float]:
    failed = [stream.error for stream in received if stream.error is not None]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed: {failed[0]}")
    ends = [stream.end_s or 0.0 for stream in received]
    firsts = [stream.chunks[0][0] for stream in received]
    tokens = [stream.output_tokens for stream in received]
    tpots = [(end - first) / (count - 1) for end, first, count in zip(ends, firsts, tokens, strict=True)]
    return {"ttft_s": statistics.fmean(firsts), "tpot_s": statistics.fmean(tpots)}


# ── the clients ──────────────────────────────────────────────────────────────────────────────────────────────────────


def own(client: str, url: str, streams: int, chunks: int) -> Cost:
    command = [sys.executable, __file__, "--client", client, "--url", url, "--streams", str(streams)]
    told = json.loads(_run(command, {}))
    return _cost(client, streams, chunks, told["load"], told["ttft_s"], told["tpot_s"])


def sglang(python: Path, url: str, streams: int, chunks: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="specbench-cost-") as scratch:
        folder = Path(scratch)
        port = url.rpartition(":")[2]
        command = [
            *(str(python), str(DRIVER / "client.py"), str(folder / "load.json"), str(folder / "tokenizer")),
            *("--backend", "sglang", "--host", "127.0.0.1", "--port", port, "--seed", "0", "--warmup-requests", "0"),
            *("--dataset-name", "random-ids", "--random-range-ratio", "1.0", "--tokenize-prompt"),
            *("--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)),
            *("--num-prompts", str(streams), "--request-rate", str(ARRIVALS_PER_S), "--disable-tqdm"),
            *("--output-file", str(folder / "result.jsonl")),
        ]
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONPATH": str(ROOT)}
        said = _run(command, offline)
        load = json.loads((folder / "load.json").read_text())
        result = json.loads((folder / "result.jsonl").read_text())
    if result["completed"] != streams:
        raise SystemExit(f"sglang completed {result['completed']} of {streams} requests:\n{said[-2000:]}")
    return _cost("sglang", streams, chunks, load, result["mean_ttft_ms"] / 1000, result["mean_tpot_ms"] / 1000)


def _run(command: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=CLIENT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def _cost(
    client: str, streams: int, chunks: int, load: dict[str, Any], ttft_s: float | None, tpot_s: float | None
) -> Cost:
    return Cost(
        client=client,
        streams=streams,
        chunks=chunks,
        cpu_per_chunk_us=load["cpu_s"] / chunks * 1e6,
        cpu_share=load["cpu_s"] / load["wall_s"],
        lag_p50_ms=load["lag_p50_s"] * 1e3,
        lag_p99_ms=load["lag_p99_s"] * 1e3,
        lag_max_ms=load["lag_max_s"] * 1e3,
        ttft_ms=None if ttft_s is None else ttft_s * 1e3,
        tpot_ms=None if tpot_s is None else tpot_s * 1e3,
    )


def environment() -> Path | str:
    """The interpreter that has SGLang's client, made when it is not there yet; else why it cannot be had."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = f"sglang {SGLANG}, aiohttp {version('aiohttp')}, {(DRIVER / 'requirements.txt').read_text()}"
    stamp = ENVIRONMENT / "installed.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"making {ENVIRONMENT.name}/ (some 400 MB, once)", file=sys.stderr)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    for wants in (
        ["-r", str(DRIVER / "requirements.txt"), f"aiohttp=={version('aiohttp')}"],
        ["--no-deps", f"sglang=={SGLANG}"],
    ):
        done = subprocess.run([*pip, *wants], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return errors[-1] if errors else f"pip ended with {done.returncode}"
    stamp.write_text(wanted)
    return python


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def compared(streams: int, rounds: int, python: Path | None) -> list[Cost]:
    """Every client in every round, in an order that turns round: load that comes and goes hits all of them."""
    gap_s = max(GAP_S, streams / CHUNKS_PER_S)
    chunks = int(SPAN_S / gap_s)
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="specbench-cost-") as folder:
        record = write_record(Path(folder) / "record", streams, chunks, gap_s, FIRST_S)
        config = record.config.replace({"engine.replay": str(record.folder), "engine.replay_speed": 1.0})
        with launch(config, log_path=Path(folder) / "replay.log") as server:
            for number in range(rounds):
                clients = ["floor", "specbench", *(["sglang"] if python else [])]
                for client in clients if number % 2 == 0 else reversed(clients):
                    total = streams * chunks
                    if client == "sglang" and python is not None:
                        costs.append(sglang(python, server.url, streams, total))
                    else:
                        costs.append(own(client, server.url, streams, total))
    return costs


def best(costs: list[Cost], client: str) -> Cost | None:
    """The round in which a client needed least CPU: what it needs, not what the machine was busy with."""
    return min((cost for cost in costs if cost.client == client), key=lambda cost: cost.cpu_per_chunk_us, default=None)


def ratios(costs: list[Cost]) -> dict[str, float | None]:
    """specbench / the others. Times: of the round in which both agree best, since the server's own delay varies."""
    ours, theirs, floor = (best(costs, client) for client in ("specbench", "sglang", "floor"))
    assert ours is not None
    assert floor is not None
    found: dict[str, float | None] = {"cpu_to_floor": ours.cpu_per_chunk_us / floor.cpu_per_chunk_us}
    found["cpu_to_sglang"] = None if theirs is None else ours.cpu_per_chunk_us / theirs.cpu_per_chunk_us
    for name in ("ttft_ms", "tpot_ms"):
        mine, other = ([getattr(cost, name) for cost in costs if cost.client == who] for who in ("specbench", "sglang"))
        of_rounds = [first / second for first, second in zip(mine, other, strict=True)] if other else []
        found[name.removesuffix("_ms")] = min(of_rounds, key=lambda ratio: abs(ratio - 1)) if of_rounds else None
    return found


def misses(streams: int, found: dict[str, float | None]) -> list[str]:
    """Targets that are not met, in words."""
    wrong = [
        f"{streams} streams: {name.upper()} differs by {abs(ratio - 1):.1%}, target {SAME:.0%}"
        for name in ("ttft", "tpot")
        if (ratio := found[name]) is not None and abs(ratio - 1) > SAME
    ]
    if streams >= FROM_STREAMS:
        for name, target in (("cpu_to_sglang", 1.0), ("cpu_to_floor", OVER_FLOOR)):
            ratio = found[name]
            if ratio is not None and ratio > target:
                wrong.append(f"{streams} streams: {name} is {ratio:.2f}, target {target:.2f}")
    return wrong


def _show(costs: list[Cost], found: dict[str, float | None]) -> None:
    for client in ("floor", "specbench", "sglang"):
        cost = best(costs, client)
        if cost is not None:
            times = "" if cost.ttft_ms is None else f"{cost.ttft_ms:>10.1f}{cost.tpot_ms:>9.3f}"
            print(
                f"{cost.streams:>8}  {client:<10}{cost.cpu_per_chunk_us:>10.1f}{cost.cpu_share:>7.1%}"
                f"{cost.lag_p50_ms:>9.2f}{cost.lag_p99_ms:>9.2f}{cost.lag_max_ms:>9.2f}{times}"
            )
    told = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.items() if ratio is not None)
    print(f"{'':>10}ratios: {told}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64, 256])
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--without-sglang", action="store_true", help="compare with the floor alone")
    options.add_argument("--json", action="store_true")
    options.add_argument("--client", choices=("floor", "specbench"), help=argparse.SUPPRESS)
    options.add_argument("--url", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.client:
        print(json.dumps(asyncio.run(drive(given.client, given.url, given.streams[0]))))
        return 0
    python = "not asked for" if given.without_sglang else environment()
    if isinstance(python, str):
        print(f"sglang's client is left out: {python}", file=sys.stderr)
    if not given.json:
        print(f"{'streams':>8}  {'client':<10}{'µs/chunk':>10}{'CPU':>7}{'lag p50':>9}{'p99':>9}{'max ms':>9}", end="")
        print(f"{'TTFT ms':>10}{'TPOT ms':>9}")
    wrong, results = [], []
    for streams in given.streams:
        costs = compared(streams, given.rounds, None if isinstance(python, str) else python)
        found = ratios(costs)
        wrong += misses(streams, found)
        results.append({"streams": streams, "ratios": found, "rounds": [asdict(cost) for cost in costs]})
        if not given.json:
            _show(costs, found)
    if given.json:
        print(json.dumps({"results": results, "misses": wrong}, indent=1))
    for miss in wrong:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
