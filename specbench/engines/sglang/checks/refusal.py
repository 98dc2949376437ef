"""One value that an engine version refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One key that the engine version refuses."""

    key: str  # dotted
    value: Any
    reason: str
    allowed: str
    engine_error: str | None = None  # the engine's own text; None: wording not known
    tolerated: bool = False  # the engine starts all the same and overrides the value
