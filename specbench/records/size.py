"""A record stays small: what of a very long log and of very many chunks is kept, and the sentence that says so.

In: what a run left. Out: bytes within a bound, and a note for the record where something was left out; None where all
of it is there. Together with the bounds of the tables (`telemetry`, `logtail`, `metering`) a record is under 5 MB.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..units import MIB
from .types import RequestTrace

#: A larger log is stored compressed.
_COMPRESS_LOG_FROM = 8 * MIB
_COMPRESS_REQUESTS_FROM = MIB
#: Compressed. Some 30 MB of an engine's log; the chunks of some 5,000 answers of 256 tokens.
LOG_BYTES = 3 * MIB // 2
REQUESTS_BYTES = 3 * MIB // 2
#: Of a cut log the beginning tells of the memory, the end of what went wrong.
_HEAD_SHARE = 0.7
_PIECE = MIB


def fit_log(log: Path) -> str | None:
    """Compresses a large log in place (`<name>.gz`); one that stays too large loses lines from its middle."""
    size = log.stat().st_size if log.is_file() else 0
    if size < _COMPRESS_LOG_FROM:
        return None
    packed = log.with_name(f"{log.name}.gz")
    kept: int | None = None
    while True:
        lost = _pack(log, packed, kept)
        took = packed.stat().st_size
        if took <= LOG_BYTES or kept == 0:
            break
        kept = int((size if kept is None else kept) * 0.9 * LOG_BYTES / took)
    log.unlink()
    if not lost:
        return None
    return f"the engine wrote {size / 1e6:,.0f} MB of log; {lost:,} lines of its middle are not in the record"


def _pack(log: Path, packed: Path, kept: int | None) -> int:
    """Writes the log compressed, whole or with about `kept` bytes of it; how many lines were left out."""
    with log.open("rb") as plain, gzip.GzipFile(packed, "wb", mtime=0) as out:
        if kept is None:
            shutil.copyfileobj(plain, out, _PIECE)
            return 0
        left = int(kept * _HEAD_SHARE)
        while left > 0 and (line := plain.readline(left + _PIECE)):
            out.write(line)
            left -= len(line)
        tail_from = log.stat().st_size - int(kept * (1 - _HEAD_SHARE))
        lost = 0
        while plain.tell() < tail_from and plain.readline():
            lost += 1
        out.write(b"[specbench: %d lines were left out here to keep the record small]\n" % lost)
        shutil.copyfileobj(plain, out, _PIECE)
        return lost


def fit_requests(traces: Sequence[RequestTrace]) -> tuple[str, bool, str | None]:
    """The lines of requests.jsonl, whether they are to be compressed, and what was left out of them.

    Of too many chunks neighbours are merged, each request's first staying as it is: times to the first token, per
    output token and to the end are what they were, times between chunks are coarser.
    """
    merged, factor = traces, 1
    while True:
        text = "".join(f"{trace.model_dump_json()}\n" for trace in merged)
        if len(text) < _COMPRESS_REQUESTS_FROM and factor == 1:
            return text, False, None
        fits = len(gzip.compress(text.encode())) <= REQUESTS_BYTES
        if fits or all(len(trace.chunks) <= 2 for trace in merged):
            break
        factor *= 2
        merged = [_merged(trace, factor) for trace in traces]
    if factor == 1:
        return text, True, None
    told = f"chunks of answers were merged by {factor} to keep the record small: times between chunks are coarser"
    return text, True, told


def _merged(trace: RequestTrace, factor: int) -> RequestTrace:
    first, rest = trace.chunks[:1], trace.chunks[1:]
    groups = [rest[begin : begin + factor] for begin in range(0, len(rest), factor)]
    merged = tuple((group[-1][0], sum(tokens for _, tokens in group)) for group in groups)
    return trace.model_copy(update={"chunks": (*first, *merged)})
