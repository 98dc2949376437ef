"""What a person tells beside a bare log, where the log itself is silent: model, card, version, launch arguments.

In: answers to what the log cannot tell. Out: a log whose arguments are known. What the log says wins: the answers fill
holes and never contradict it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines.contract import ServerLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers of the user; None: not told."""

    model: str | None = None  # a shipped model, or a folder with its config.json
    gpu: str | None = None  # a card of the GPU table
    version: str | None = None  # release of the engine
    arguments: Mapping[str, Any] = field(default_factory=dict)  # ServerArgs field -> value, e.g. max_running_requests


def with_arguments(log: ServerLog, told: Told) -> ServerLog:
    """The log with the told version and arguments where it names none. Without any, the log as it is."""
    if told.version is not None and log.version is None:
        log = dataclasses.replace(log, version=told.version)
    if not told.arguments:
        return log
    return dataclasses.replace(log, server_args={**told.arguments, **(log.server_args or {})})
