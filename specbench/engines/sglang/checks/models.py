"""Models that a version does not serve at all."""

from __future__ import annotations

from collections.abc import Iterator

from ....specs import ModelSpec
from ..families import not_served
from .refusal import Refusal


def refusals(version: str, target: ModelSpec) -> Iterator[Refusal]:
    """SGLang looks the architecture up by its name before anything is loaded."""
    first = not_served(target.architecture, version)
    if first is not None:
        yield Refusal(
            key="engine.version",
            value=version,
            reason=f"{target.architecture} is not served by it",
            allowed=f"{first} or later",
        )
