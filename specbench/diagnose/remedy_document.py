"""A remedy as JSON-safe values: also of `predict`, which needs nothing else of a diagnosis."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .finding import Remedy


def remedy_document(remedy: Remedy) -> dict[str, Any]:
    """One remedy, as `diagnose --json` and `predict --json` print it. Without a prediction `predicted` is null, and
    `basis` says what it rests on: a recording, or the engine's source. `free_memory` says of the basis "config" whether
    the free memory of such cards was measured, as `predict --json` and `plan --json` do; else it is null. On a log's
    own figures (of a model that is not known) `bounds` are the least and the most that their rounding leaves.
    """
    return {
        "set": dict(remedy.set),
        "flags": remedy.flags,
        "basis": remedy.basis,
        "free_memory": None if remedy.rests_on is None else asdict(remedy.rests_on),
        "predicted": None if remedy.verdict is None else {"verdict": remedy.verdict, **remedy.predicted},
        **({"bounds": {name: [value.low, value.high] for name, value in remedy.spans.items()}} if remedy.spans else {}),
        "note": remedy.note,
        "changes_results": remedy.changes_results,
    }
