"""The decode lines of a log in a few figures. In: the columns of `ServerLog.decode`. Out: `Serving`, or None."""

from __future__ import annotations

import statistics
from typing import Any

from ..engines.contract import ServerLog
from .types import Serving


def serving(log: ServerLog) -> Serving | None:
    """None when the log has no decode line. A column of which nothing was logged gives None, never 0."""

    def known(name: str) -> list[Any]:
        return [value for value in log.decode.get(name, ()) if value is not None]

    lines = len(log.decode.get("line", ()))
    if lines == 0:
        return None
    accepted = known("accept_length")
    return Serving(
        decode_lines=log.seen.get("decode", lines),
        running_max=max(known("running_requests"), default=None),
        queued_max=max(known("queued_requests"), default=None),
        token_usage_max=max(known("token_usage"), default=None),
        state_usage_max=max(known("state_usage"), default=None),
        accept_length_mean=statistics.fmean(accepted) if accepted else None,
        throughput_max=max(known("throughput"), default=None),
    )
