"""A difference in lines. In: both answers. Out: what each side says of every figure that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .points import differences


def explain(ours: Mapping[str, Any], engine: Mapping[str, Any]) -> Iterator[str]:
    for name, (predicted, said) in differences(ours, engine).items():
        yield f"{name}: predicted {predicted}"
        yield f"{' ' * len(name)}  the engine {said}"
    if engine.get("at"):
        yield f"raised at {engine['at']}"
