"""Findings with their evidence, and remedies whose effect was computed before they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..engines.contract import Line
from ..terms import Basis, Limit, Verdict

#: How remedies follow one another, in words.
ORDER = "changes of the server first, then more GPUs, then two changes at once, asking for less last"

Severity = Literal["fatal", "costly", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change, the flags that make it, and what `predict` says it does."""

    set: Mapping[str, Any]  # dotted key -> value, as `--set` takes it
    flags: str  # the server's flags for that engine version; "" when the change is no server flag
    basis: Basis  # what the effect was computed on
    predicted: Mapping[Limit, int | None]
    verdict: Verdict
    note: str  # what it costs, in words
    changes_results: bool  # the output of the model may change (state dtype, KV dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause."""

    id: str  # stable, e.g. capped-by-state-slots
    cause: str  # one sentence with figures
    severity: Severity
    evidence: tuple[Line, ...]
    remedies: tuple[Remedy, ...] = ()
