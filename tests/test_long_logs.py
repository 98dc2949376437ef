"""Long logs: flat memory whatever they are packed in, and a bar for who waits."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from rich.console import Console

from specbench.cli import reading_bar
from specbench.diagnose.diagnosis import of_path
from specbench.engines.sglang import logs

RECORDS = Path(__file__).parent / "records"
SERVICE = (
    "[2026-05-20 10:{minute:02}:{second:02}] Decode batch, #running-req: {running}, #full token: 1063, "
    "full token usage: 0.01, mamba num: 4, mamba usage: 0.50, accept len: 1.00, accept rate: 0.00, cuda graph: True, "
    "gen throughput (token/s): {speed}.64, #queue-req: {queued}\n"
    '[2026-05-20 10:{minute:02}:{second:02}] INFO:     127.0.0.1:4242 - "POST /generate HTTP/1.1" 200 OK\n'
)
PACKING: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1),
    "zstd": zstandard.ZstdCompressor(level=1).compress,
    "docker -t": lambda data: data.replace(b"[2026", b"2026-05-20T10:11:12.123456789Z [2026"),
}
#: The peak of a process that reads its arguments one after the other, above what it is after the first.
_GROWTH = """
import resource, sys
from specbench.engines.sglang import logs
peaks = []
for path in sys.argv[1:]:
    logs.read(path)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[-1] - peaks[0])
"""


def service(megabytes: float) -> bytes:
    lines = [
        SERVICE.format(minute=at % 60, second=at * 7 % 60, running=at % 8, speed=at % 97, queued=at % 5)
        for at in range(2000)
    ]
    piece = "".join(lines).encode()
    return piece * round(megabytes * 1e6 / len(piece))


def test_memory_is_flat(tmp_path: Path) -> None:
    """After one log in each packing four times as much of each takes no more: 6 MB of tolerance, of 72 MB more text.

    What grows at first are the kept rows of the tables, which are full after the first log.
    """
    paths = []
    for size in (6, 24):
        data = service(size)
        for name, pack in PACKING.items():
            paths.append(tmp_path / f"{name}-{size}.log")
            paths[-1].write_bytes(pack(data))
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH, *paths[3:]], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 6_000  # KB


@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
def test_the_bar_ends_where_the_file_ends(packing: str, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(PACKING[packing]((RECORDS / "oom_r8" / "server.log").read_bytes() * 30))
    paper = io.StringIO()
    with reading_bar.reading_bar([file], Console(file=paper, force_terminal=True, width=100, legacy_windows=False)):
        found = of_path(file)
    assert found.log.failures
    assert "reading" in paper.getvalue()
    size = f"{file.stat().st_size / 1000:.1f}"
    assert f"{size}/{size} kB" in paper.getvalue()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_for_terminals_and_long_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.log"
    with file.open("wb") as stream:
        stream.truncate(reading_bar.LONG)
    short = RECORDS / "oom_r8" / "server.log"
    pipe, terminal = io.StringIO(), _Terminal()
    for stderr, stdout, json_output, path, wanted in (
        (terminal, terminal, False, file, True),
        (terminal, pipe, False, file, True),
        (terminal, terminal, True, file, True),
        (terminal, pipe, True, file, False),
        (pipe, terminal, False, file, False),
        (terminal, terminal, False, short, False),
        (terminal, terminal, False, RECORDS / "oom_r8", False),
        (terminal, terminal, False, Path("-"), True),
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert reading_bar.wanted([path], json_output=json_output) is wanted
    monkeypatch.setattr(sys, "stdin", terminal)
    assert reading_bar.pasted([Path("-")])
    assert not reading_bar.wanted([Path("-")], json_output=False)


def test_a_bar_of_somebody_else_is_not_moved() -> None:
    """What is read outside is not told of."""
    from specbench.logtext import watched

    seen: list[int] = []
    with watched(seen.append):
        logs.read(RECORDS / "oom_r8" / "server.log")
    told = sum(seen)
    logs.read(RECORDS / "oom_r8" / "server.log")
    assert told == sum(seen) == (RECORDS / "oom_r8" / "server.log").stat().st_size
