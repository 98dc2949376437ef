"""What CI does: `predict` against stored answers, without an engine. In: tests/oracle. Out: points that differ."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .points import Point, differences, predicted_pools


def stored(file: Path) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Points and the engine's answers; a figure that it does not tell is absent."""
    for line in gzip.decompress(file.read_bytes()).decode().splitlines():
        row = json.loads(line)
        said = {"refused": None, "text": None, **row.pop("said")}
        yield Point(**row), said


def differing(file: Path) -> list[tuple[Point, dict[str, tuple[Any, Any]]]]:
    compared = ((point, differences(predicted_pools(point), said)) for point, said in stored(file))
    return [(point, found) for point, found in compared if found]
