"""Answers of a release, kept for CI: a line each, compressed. In: points and what the engine said. Out: a file.

The least interesting are dropped first: of each kind of answer (served, or refused in which way; by algorithm) about as
many are kept.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .points import FIGURES, Point

STORED = Path(__file__).resolve().parents[2] / "tests" / "oracle"

Answer = tuple[Point, dict[str, Any]]


def kept(answers: Sequence[Answer], most: int) -> list[Answer]:
    """At most `most`, in turns over the kinds; equal sections once."""
    kinds: dict[tuple[str, str, str], list[Answer]] = defaultdict(list)
    seen = set()
    for point, said in answers:
        sections = json.dumps(point.sections, sort_keys=True)
        if sections not in seen:
            seen.add(sections)
            algorithm = point.sections["speculative"]["algorithm"]
            kinds[(str(said["refused"]), algorithm, point.sections["model"].split("/")[0])].append((point, said))
    found: list[Answer] = []
    while len(found) < most and any(kinds.values()):
        for waiting in kinds.values():
            if waiting and len(found) < most:
                found.append(waiting.pop(0))
    return found


def write(name: str, answers: Sequence[Answer], folder: Path = STORED) -> None:
    folder.mkdir(exist_ok=True)
    lines = "\n".join(json.dumps(_line(point, said), separators=(",", ":")) for point, said in answers)
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress((lines + "\n").encode(), mtime=0))


def _line(point: Point, said: dict[str, Any]) -> dict[str, Any]:
    told = {name: said[name] for name in (*FIGURES, "refused") if said.get(name) is not None}
    return {
        "sections": point.sections,
        "card_mib": point.card_mib,
        "pre_bytes": point.pre_bytes,
        "post_bytes": point.post_bytes,
        "said": told,
    }
