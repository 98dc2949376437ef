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
    forced: str | None = None  # what comes of `engine.allow_refused`, where it is not the usual

    @property
    def if_allowed(self) -> str:
        """What `engine.allow_refused: true` leads to, as a sentence without its full stop."""
        if self.forced is not None:
            return self.forced
        if self.tolerated:
            return "engine.allow_refused: true starts it all the same; the engine overrides the value"
        return "engine.allow_refused: true starts it all the same, to see the engine's own error"
