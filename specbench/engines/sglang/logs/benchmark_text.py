"""Results of SGLang's benchmark scripts that stand in a pasted log, as notices: not the server's word, but useful.

In: a message that opens such a result. Out: its figures under our names; a name that we do not know is left out.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...contract import Notice
from .message import Message
from .scan import BENCHMARK_HEAD, BENCHMARK_JSON

_NAMES = {
    "max request concurrency": "max_concurrency",
    "successful requests": "requests",
    "benchmark duration (s)": "duration_s",
    "total input tokens": "input_tokens",
    "total generated tokens": "output_tokens",
    "output token throughput (tok/s)": "output_throughput",
    "concurrency": "mean_concurrency",
    "accept length": "accept_length",
    "mean ttft (ms)": "mean_ttft_ms",
    "median ttft (ms)": "median_ttft_ms",
    "p99 ttft (ms)": "p99_ttft_ms",
    "mean tpot (ms)": "mean_tpot_ms",
    "median tpot (ms)": "median_tpot_ms",
    "mean itl (ms)": "mean_itl_ms",
    "median itl (ms)": "median_itl_ms",
    "mean e2e latency (ms)": "mean_e2e_ms",
    "median e2e latency (ms)": "median_e2e_ms",
}
_ROW = re.compile(r"\s*(?P<name>[A-Za-z][^:]{1,60}):\s+(?P<value>-?[\d.]{1,20})\s*\Z")


def benchmark_notice(message: Message) -> Notice | None:
    """The result that a message opens, or None."""
    text = message.text.lstrip()
    if text.startswith(BENCHMARK_HEAD):
        values = _rows(message)
    elif text.startswith(BENCHMARK_JSON):
        values = _json(text)
    else:
        return None
    return Notice(kind="benchmark_result", values=values, rank=message.rank, line=message.line, text=message.text)


def _rows(message: Message) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for line in message.following():
        found = _ROW.match(line)
        name = _NAMES.get(found["name"].strip().lower()) if found else None
        if found and name:
            values[name] = _number(found["value"])
    return values


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    wanted = ("task", "latency", "throughput", "accept_length", "num_requests")
    return {name: data[name] for name in wanted if isinstance(data.get(name), (int, float, str))}


def _number(text: str) -> float | int | None:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return None
