"""What `predict` says of a changed configuration, beside what was observed. Pure: no widget, no picture, no file.

In: a diagnosis. Out: an `Outlook` per change. The non-obvious thing: an impossible combination is an answer, in words,
and no exception: whoever moves a control passes through many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from ..budget.grid import predict_grid
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..configuration.explain import problem_text
from ..diagnose.changed import loads_otherwise, passed_after, predict_changed
from ..diagnose.types import Diagnosis
from ..engines import check
from ..errors import ConfigError, SpecbenchError
from ..judging.judge import as_resolved, passed
from ..terms import Basis, Limit, Origin, Outcome, Term

_REQUESTS = "memory.max_running_requests"
#: Limits that stand beside each other on the cliff curve.
CURVES: tuple[Limit, ...] = ("running_requests", "kv_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the start that the log tells of came to. None: not logged."""

    name: str
    origin: Origin
    outcome: Outcome
    asked: int | None  # requests at once; None: not given
    resolved: Mapping[Limit, int | None]
    served: int | None
    terms: Mapping[str, int | None] = field(default_factory=dict)  # bytes of the rank that decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is predicted for one change."""

    changes: Mapping[str, Any]  # dotted keys, as `--set` takes them; empty: as it was
    config: RunConfig | None  # None: there is no such configuration
    budget: MemoryBudget | None  # None: nothing is predicted, and `refusal` says why
    refusal: str | None = None

    @property
    def verdict(self) -> str:
        """'serves', 'capped', 'refused', 'impossible' (no such configuration) or 'not predicted'."""
        if self.budget is not None:
            return self.budget.verdict
        return "impossible" if self.config is None else "not predicted"

    @property
    def reason(self) -> str:
        """Why, in one sentence with figures."""
        return self.budget.reason if self.budget is not None else self.refusal or ""

    @property
    def basis(self) -> Basis | None:
        return None if self.budget is None else self.budget.basis

    def limit(self, limit: Limit) -> int | None:
        """At the likely free memory; None: not predicted."""
        found = self.budget.limits.get(limit) if self.budget is not None else None
        return found.value.point if found is not None and found.value is not None else None

    def term(self, term: Term) -> int | None:
        """Bytes of one rank; None: not predicted."""
        found = self.budget.terms.get(term) if self.budget is not None else None
        return found.bytes.point if found is not None and found.bytes is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Limits over the number of requests asked, everything else as in the outlook."""

    asked: tuple[int, ...]
    limits: Mapping[Limit, tuple[int | None, ...]] = field(default_factory=dict)  # None: refused, or not predicted
    refused: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One start, and what is known of it: enough to say what another configuration would have come to."""

    config: RunConfig  # as it was started
    resolved: RunConfig  # with the static fraction that the engine resolved, where none was given
    free: FreeMemory | None  # of this very start; None: not logged, and then the configuration alone tells
    passed_fraction: float | None  # on the command line, where a larger card stood for a smaller one
    observed: Observed

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> WhatIf:
        """ConfigError (two lines) when the configuration is not known: then there is nothing to change."""
        config = diagnosis.config
        if config is None:
            why = "; ".join(diagnosis.assumptions) or "the log does not name it"
            raise ConfigError(
                f"{diagnosis.name}: its configuration is not known: {why}.\n"
                "Tell what the log does not (`told`: model, gpu, version, arguments), or give the record of the run."
            )
        measured = diagnosis.budgets.get("measured")
        asked = diagnosis.requested.get("running_requests")
        return cls(
            config=config,
            resolved=as_resolved(config, diagnosis.pools),
            free=None if measured is None else measured.free,
            passed_fraction=passed(config, diagnosis.pools),
            observed=Observed(
                name=diagnosis.name,
                origin=diagnosis.origin,
                outcome=diagnosis.outcome,
                asked=asked if isinstance(asked, int) else None,
                resolved=diagnosis.resolved,
                served=diagnosis.served,
                terms=_logged(diagnosis),
            ),
        )

    def with_(self, changes: Mapping[str, Any]) -> Outlook:
        """What the changed configuration is predicted to come to. Never raises for a combination of settings."""
        if changes and self._chosen is not None and "memory.mem_fraction_static" not in changes:
            # Left to the engine it may become another one for the changed server: it has to be said.
            changes = {**changes, "memory.mem_fraction_static": self._chosen}
        try:
            config = self.config.replace(changes)
        except ValidationError as error:
            problem = problem_text(error.errors(include_url=False)[0], RunConfig, "this change")
            return Outlook(changes=changes, config=None, budget=None, refusal=_one_line(problem))
        try:
            after = config if changes else self.resolved
            budget = predict_changed(self.resolved, after, self.free, self.passed_fraction)
        except SpecbenchError as error:
            return Outlook(changes=changes, config=config, budget=None, refusal=_one_line(str(error)))
        return Outlook(changes=changes, config=config, budget=budget)

    def refusals(self, config: RunConfig) -> tuple[str, ...]:
        """What this engine version refuses of a configuration before it loads anything, in words."""
        try:
            return tuple(f"{one.key}: {one.reason}; allowed: {one.allowed}" for one in check(config))
        except SpecbenchError as error:
            return (_one_line(str(error)),)

    def curve(self, outlook: Outlook, asked: Sequence[int]) -> Curve:
        """What each number of requests would get with the other settings of `outlook`; empty: cannot be sized."""
        if outlook.config is None or outlook.budget is None:
            return Curve(asked=())
        after = outlook.config if outlook.changes else self.resolved
        free = None if loads_otherwise(self.resolved, after) else self.free
        try:
            found = predict_grid(
                after,
                {_REQUESTS: asked},
                free=free,
                passed_fraction=None if free is None else passed_after(self.resolved, after, self.passed_fraction),
            )
        except SpecbenchError:
            return Curve(asked=())
        return Curve(
            asked=tuple(asked),
            limits={limit: tuple(_whole(value) for value in found[limit].tolist()) for limit in CURVES},
            refused=tuple(found.verdict.are("refused").tolist()),
        )

    @property
    def _chosen(self) -> float | None:
        """The static fraction that the engine chose; None: it was given, or is not known."""
        return None if self.resolved is self.config else self.resolved.memory.mem_fraction_static


def _logged(diagnosis: Diagnosis) -> dict[str, int | None]:
    rank = diagnosis.pools.deciding_rank
    rows = [row for row in diagnosis.reconciliation.rows if row.unit == "bytes" and rank in (None, row.rank)]
    return {row.term: row.observed for row in reversed(rows)}


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())
