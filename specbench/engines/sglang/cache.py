"""What SGLang says of its prefix cache after a flush: the answer to /flush_cache, /v1/loads and /metrics.

In: the answers' texts. Out: figures, None where an answer has none. The non-obvious thing: /v1/loads asks the scheduler
at that moment, but counts only what running requests hold; cached tokens are a gauge of /metrics, which an idle engine
renews every 30 s, so it may still show what was there before the flush.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .metrics import figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Summed over data-parallel ranks; None: not told."""

    used_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None


def loads(text: str) -> Loads:
    """The body of /v1/loads."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return Loads()
    ranks = told.get("loads") if isinstance(told, dict) else None
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, dict) for rank in ranks):
        return Loads()

    def total(key: str) -> int | None:
        values = [rank.get(key) for rank in ranks]
        counts = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        return sum(counts) if len(counts) == len(values) else None

    return Loads(
        used_tokens=total("num_used_tokens"), running=total("num_running_reqs"), waiting=total("num_waiting_reqs")
    )


def evictable_tokens(metrics_text: str) -> int | None:
    """Cached tokens of the KV pool, summed over the ranks that tell it."""
    told = [value for name, value in figures(metrics_text).items() if name.partition("{")[0] == "kv_evictable_tokens"]
    return int(sum(told)) if told else None


def was_flushed(status: int, body: str) -> bool:
    """0.5.6 to 0.5.23 answer 200 and say it; one with requests in flight answers 400."""
    return status == 200 and "flushed" in body.lower()
