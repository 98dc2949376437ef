"""How fast server logs are read, beside a plain loop over the same lines, and how much memory a long one takes.

    python benchmarks/log_reading.py [--mb 40] [--memory-mb 400] [--json]

The logs are made of what the recordings' servers printed: start-ups with their import warnings, the same server
crashing and restarting for ever, and a long service. `ratio` is reading time over that of a loop over the same lines:
of start-ups `for line in open(path, 'rb')`, of which the target is 4; of a service, where every line has figures, the
same loop with one pattern that takes two figures of the decode lines, of which it is 2.5 (ten figures, time and rank
are read). The service also comes packed, whose loop unpacks it, too, and behind what `docker logs -t` puts before a
line, which is taken off. All are CPU time, the best of some rounds in this run. Memory is the peak of a process of its
own, for a log and for one four times as long, plain and packed, which may take 16 MB more than the package alone. Exit
code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal, cast

import zstandard

from specbench.engines.sglang import logs

RECORDS = Path(__file__).resolve().parent.parent / "tests" / "records"
TARGETS = {"start-up": 4.0, "restarts": 4.0, "service": 2.5, "service.gz": 2.5, "service.zst": 2.5, "docker -t": 4.0}
GROWTH_MB = 16.0
LEAST_S = 4.0  # CPU seconds of each log: what takes a tenth of one is measured more often
#: What most people would write first.
_TWO_FIGURES = re.compile(rb"Decode batch.*?#running-req: (\d+).*?gen throughput \(token/s\): ([\d.]+)")
_PEAK = """
import resource, sys
from specbench.engines.sglang import logs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
log = logs.read(sys.argv[1])
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, log.lines_total)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    log: str
    megabytes: float
    lines: int
    loop_mb_s: float
    read_mb_s: float
    ratio: float  # reading time over the time of the loop
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    log: str
    megabytes: float  # unpacked
    lines: int
    peak_mb: float  # of the process, interpreter and package included
    growth_mb: float  # since the package was imported


def start_up(megabytes: float) -> Iterator[bytes]:
    """One start of many ranks: the recorded lines, with the warnings of its imports repeated between them."""
    lines = _recorded("tp4_0512_dflash_r8")
    warnings = [line for line in lines if b"Ignore import error" in line]
    others = [line for line in lines if b"Ignore import error" not in line]
    per_gap = int(megabytes * 1e6 / sum(map(len, warnings)) * len(warnings) / len(others)) + 1
    dice = random.Random(0)
    for line in others:
        yield line
        yield from dice.choices(warnings, k=per_gap)


def restarts(megabytes: float) -> Iterator[bytes]:
    """A container that restarts for ever: whole recorded logs of starts, one after the other."""
    names = ("0512_dflash_r8", "oom_r8", "0512_dflash_r4_exact", "var_noradix_r8", "tp4_0512_dflash_r8")
    together = [line for name in names for line in _recorded(name)]
    yield from _repeated(together, megabytes)


def service(megabytes: float) -> Iterator[bytes]:
    """One start, then decode, prefill and access lines with changing figures."""
    lines = _recorded("dflash_r8")
    ready = next(index for index, line in enumerate(lines) if b"fired up" in line)
    yield from lines[: ready + 1]
    dice = random.Random(0)
    varied = []
    for line in lines[ready + 1 :]:
        for _ in range(20 if b"Decode batch" in line else 2):
            tokens, speed = str(dice.randrange(1000, 9999)).encode(), f"{dice.uniform(10, 900):.2f}".encode()
            varied.append(line.replace(b"#full token: 1063", b"#full token: " + tokens).replace(b"44.", speed[:3]))
    dice.shuffle(varied)
    yield from _repeated(varied, megabytes)


def behind_times(megabytes: float) -> Iterator[bytes]:
    """A service as `docker logs -t` gives it."""
    return (b"2026-05-20T10:11:12.123456789Z " + line for line in service(megabytes))


KINDS: dict[str, Callable[[float], Iterator[bytes]]] = {
    "start-up": start_up,
    "restarts": restarts,
    "service": service,
    "service.gz": service,
    "service.zst": service,
    "docker -t": behind_times,
}


def _recorded(name: str) -> list[bytes]:
    return [line + b"\n" for line in (RECORDS / name / "server.log").read_bytes().split(b"\n")[:-1]]


def _repeated(lines: list[bytes], megabytes: float) -> Iterator[bytes]:
    for _ in range(int(megabytes * 1e6 / sum(map(len, lines))) + 1):
        yield from lines


def _write(path: Path, lines: Iterator[bytes]) -> None:
    with _opened(path, "wb") as out:
        for line in lines:
            out.write(line)


def _opened(path: Path, mode: Literal["rb", "wb"]) -> IO[bytes]:
    match path.suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(path, mode, compresslevel=1) if mode == "wb" else gzip.open(path, mode))
        case ".zst":
            packed = cast(io.RawIOBase, zstandard.open(path, mode))
            return packed if mode == "wb" else io.BufferedReader(packed)
        case _:
            return path.open(mode)


def _plain(path: Path) -> int:
    count = 0
    with _opened(path, "rb") as lines:
        for _ in lines:
            count += 1
    return count


def _two_figures(path: Path) -> int:
    count = 0
    with _opened(path, "rb") as lines:
        for line in lines:
            if _TWO_FIGURES.search(line):
                count += 1
    return count


#: What reading is compared with.
LOOPS: dict[str, Callable[[Path], int]] = {"start-up": _plain, "restarts": _plain}  # else `_two_figures`


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def speed(kind: str, path: Path, rounds: int) -> Speed:
    lines, loop = _plain(path), LOOPS.get(kind, _two_figures)
    looped: list[float] = []
    read: list[float] = []
    while len(read) < rounds or sum(looped) + sum(read) < LEAST_S:  # in turns: load that comes and goes hits both
        looped.append(_seconds(lambda: loop(path)))
        read.append(_seconds(lambda: logs.read(path)))
        looped.append(_seconds(lambda: loop(path)))
    with _opened(path, "rb") as unpacked:
        megabytes = sum(map(len, unpacked)) / 1e6
    return Speed(
        log=kind,
        megabytes=round(megabytes, 1),
        lines=lines,
        loop_mb_s=round(megabytes / min(looped), 1),
        read_mb_s=round(megabytes / min(read), 1),
        ratio=round(min(read) / min(looped), 2),
        target=TARGETS[kind],
    )


def memory(path: Path, megabytes: float) -> Memory:
    command = [sys.executable, "-c", _PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, peak, lines = map(int, done.stdout.split())
    per_mb = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is bytes on macOS, KiB elsewhere
    return Memory(
        log=path.name,
        megabytes=round(megabytes, 1),
        lines=lines,
        peak_mb=round(peak / per_mb, 1),
        growth_mb=round((peak - before) / per_mb, 1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=40, help="size of the logs whose reading is timed")
    parser.add_argument(
        "--memory-mb", type=float, default=400, help="size of the log whose memory is measured; 0: skip"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specbench-logs-") as folder:
        speeds, memories = [], []
        for kind, lines in KINDS.items():
            path = Path(folder) / f"server.log{Path(kind).suffix}"
            _write(path, lines(options.mb))
            speeds.append(speed(kind, path, options.rounds))
        for megabytes in (options.memory_mb / 4, options.memory_mb) if options.memory_mb else ():
            for suffix in ("", ".gz", ".zst"):
                path = Path(folder) / f"long.log{suffix}"
                _write(path, service(megabytes))
                memories.append(memory(path, megabytes))
                path.unlink()
    if options.json:
        print(json.dumps({"speed": [asdict(row) for row in speeds], "memory": [asdict(row) for row in memories]}))
    else:
        print(f"{'log':<12}{'MB':>8}{'lines':>10}{'loop MB/s':>12}{'read MB/s':>12}{'ratio':>8}{'target':>8}")
        for row in speeds:
            print(
                f"{row.log:<12}{row.megabytes:>8}{row.lines:>10,}{row.loop_mb_s:>12}{row.read_mb_s:>12}"
                f"{row.ratio:>8}{row.target:>8}"
            )
        for peak in memories:
            size = f"{peak.megabytes} MB, {peak.lines:,} lines"
            print(f"memory: {peak.log:<13}{size}: peak {peak.peak_mb} MB (+{peak.growth_mb})")
    met = all(row.ratio <= row.target for row in speeds) and all(peak.growth_mb <= GROWTH_MB for peak in memories)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
