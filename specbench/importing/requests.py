"""latency.jsonl and overflow.jsonl of a foreign recording -> RequestTrace and Probe.

Each line of latency.jsonl is a request: step, index, concurrency, input_tokens, max_new_tokens, t_start_unix,
http_status, e2e_s, output_tokens, chunks_ms_tokens [[ms since sending, tokens], …], meta_info, and of failures
error_body or exception. A step whose name begins with `warmup` is the warm-up phase.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..records.types import Probe, RequestTrace


def traces_of(file: Path) -> list[RequestTrace]:
    """The requests in the file's order; empty when there is no file."""
    began: dict[str, float] = {}
    rows = list(_lines(file))
    for row in rows:
        began[row["step"]] = min(began.get(row["step"], row["t_start_unix"]), row["t_start_unix"])
    return [_trace(row, began[row["step"]]) for row in rows]


def probes_of(file: Path) -> list[Probe]:
    """Single exchanges with whole bodies. Bodies of successes are left out: they hold the generated text."""
    return [
        Probe(
            case=row["case"],
            path=row["path"],
            sent=row["sent_other_fields"],
            http_status=row["http_status"],
            seconds=row["seconds"],
            body=row["body"] if "error" in row["body"][:40] else "",
        )
        for row in _lines(file)
    ]


def _trace(row: Mapping[str, Any], step_began_unix_s: float) -> RequestTrace:
    meta_info = row["meta_info"]
    finish = meta_info.get("finish_reason")
    return RequestTrace(
        step=row["step"],
        phase="warmup" if row["step"].startswith("warmup") else "measured",
        index=row["index"],
        concurrency=row["concurrency"],
        input_tokens=row["input_tokens"],
        max_new_tokens=row["max_new_tokens"],
        sent_s=round(row["t_start_unix"] - step_began_unix_s, 6),
        sent_unix_s=row["t_start_unix"],
        http_status=row.get("http_status"),
        chunks=tuple((round(ms / 1000, 6), tokens) for ms, tokens in row["chunks_ms_tokens"]),
        end_s=row["e2e_s"],
        output_tokens=row["output_tokens"],
        finish_reason=finish["type"] if isinstance(finish, dict) else finish,
        error=_error(row),
        meta_info=meta_info,
    )


def _error(row: Mapping[str, Any]) -> str | None:
    if "exception" in row:
        return str(row["exception"])
    if "error_body" in row:
        return str(row["error_body"])
    return None if row["output_tokens"] else "the stream ended without a token"


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if file.is_file():
        with file.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
