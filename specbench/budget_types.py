"""The result of a prediction: terms in bytes, limits in counts, each with its interval and its formula. Per rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .terms import Basis, Limit, Term, Verdict
from .units import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTerm:
    """One term of memory, bytes per rank."""

    term: Term
    bytes: Interval | None  # None: not predicted (then `formula` says why)
    formula: str  # in words: "slots + 1 padding, times linear layers, times …"
    numbers: str  # the same with figures: "48 × (24 + 1) × 61,440 B = 73,728,000 B"
    rule: str  # the rule's version and source, e.g. "sglang 0.5.8-0.5.12 (era I), memory_pool.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLimit:
    """One limit, a count."""

    limit: Limit
    value: Interval | None  # None: not predicted
    formula: str
    numbers: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftForPools:
    """What state, scratch and KV share, bytes per rank: the figure that decides everything else."""

    bytes: Interval
    formula: str
    numbers: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeMemory:
    """What the solver is fed with, bytes per rank."""

    pre: Interval  # free before the weights load
    post: Interval  # free when the pools are sized
    source: str  # "gpu table: …", "given: --pre-gib, --post-gib", "log: line 24 and 30, offsets of …"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """What should happen. Exact figures have an interval of width zero."""

    name: str
    engine: str
    version: str
    rule: str  # e.g. "sglang 0.5.12 (era I)"
    basis: Basis
    free: FreeMemory
    requested_running_requests: int | None  # as asked; None: not given
    terms: Mapping[Term, PredictedTerm]
    limits: Mapping[Limit, PredictedLimit]
    verdict: Verdict
    verdicts: tuple[Verdict, ...]  # every verdict that the free-memory interval allows
    reason: str  # one sentence: what limits, with figures
    engine_error: str | None  # the text this engine version would raise, when refused
    warnings: tuple[str, ...] = ()
    rule_words: str = ""  # what the era means: "the rules of SGLang 0.5.12: … (era I)"
    left: LeftForPools | None = None  # None: the engine refuses the arguments, before any memory is looked at
    details: Mapping[str, Interval] = field(
        default_factory=dict
    )  # slot_bytes, cell_bytes, scratch_per_request_bytes, rest_bytes, padding_bytes, …
