"""Prediction and observation, joined by term and rank, on every basis that there is.

In: budgets (what should happen) and a pool report (what the engine logged). Out: rows with a verdict. The logged value
has to lie in the predicted interval; a printed figure is an interval itself (its rounding). A term on one side only
says "not logged" or "not predicted": nothing is lost silently. Prediction is per rank; the solver gives every rank the
same pools (it takes the smallest free memory), so one budget meets all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..budget_types import MemoryBudget
from ..engines.contract import PoolReport, RankPools
from ..terms import LIMITS, TERMS, Basis, Limit, Role, Term
from ..units import GIB, Interval, Quantity, format_gib, gib

#: estimated: the prediction is an estimate, which a logged figure neither matches nor contradicts.
RowVerdict = Literal["match", "off", "estimated", "not logged", "not predicted"]

#: The known offsets were fitted to figures that the log rounds to 0.01 GiB; what is left of that is a few tokens.
TOKEN_SLOP = 3

_DRAFT_TERMS: tuple[Term, ...] = ("draft_weights", "draft_kv")
#: Logged by every rank for its own pools.
_BY_RANK: tuple[Limit, ...] = ("state_slots", "kv_tokens")
#: Nothing predicts a value for these, and nothing logs it as such.
_NOT_JOINED: tuple[Term, ...] = ("unexplained",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One term or limit of one rank on one basis."""

    term: Term | Limit
    rank: str  # "" when the engine prints no rank (one GPU)
    role: Role
    basis: Basis
    unit: Literal["bytes", "count"]
    predicted: Interval | None
    observed: int | None
    tolerance: int  # of `observed`: rounding of the log (bytes), or slack of the fit (tokens)
    delta: int | None  # observed - nearest end of the predicted interval (of an estimate too); 0 inside
    verdict: RowVerdict
    attribution: str | None  # for "off": where the difference comes from
    line: int | None  # of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Every joined row, of all bases and ranks."""

    rows: tuple[Row, ...]

    def of(self, term: Term | Limit, basis: Basis, rank: str | None = None) -> tuple[Row, ...]:
        """The rows of a term on a basis, of one rank or all."""
        return tuple(
            row for row in self.rows if row.term == term and row.basis == basis and (rank is None or row.rank == rank)
        )

    @property
    def off(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == "off")


def reconcile(budgets: Mapping[Basis, MemoryBudget], report: PoolReport) -> Reconciliation:
    """Join every budget with the report. A run that printed no pools still gives rows, all "not logged"."""
    rows = [row for basis, budget in budgets.items() for row in _rows(basis, budget, report)]
    return Reconciliation(rows=tuple(_attribute(row, rows, budgets, report) for row in rows))


# ── observed values ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Seen:
    """A logged figure; `value` None: not logged."""

    value: int | None = None
    tolerance: int = 0
    line: int | None = None


def _rows(basis: Basis, budget: MemoryBudget, report: PoolReport) -> Iterator[Row]:
    ranks = tuple(dict.fromkeys(pools.rank for pools in report.ranks)) or ("",)
    by_rank = tuple(limit for limit in _BY_RANK if not _only_of_server(limit, report))
    for rank in ranks:
        mine = {pools.role: pools for pools in report.ranks if pools.rank == rank}
        target, draft = mine.get("target"), mine.get("draft")
        for term in TERMS:
            if term in _NOT_JOINED:
                continue
            role: Role = "draft" if term in _DRAFT_TERMS else "target"
            predicted = _predicted(term, rank, basis, budget, report)
            seen = Seen() if term == "slack" and not _stands(budget, draft) else observed_term(term, target, draft)
            estimated = term in budget.terms and budget.terms[term].estimated
            yield _row(term, rank, role, basis, "bytes", predicted, seen, estimated=estimated)
        for limit in by_rank:
            seen = Seen(getattr(target, limit) if target else None, 0, target.lines.get(limit) if target else None)
            yield _limit_row(limit, rank, basis, budget, seen)
    for limit in LIMITS:
        if limit not in by_rank:
            value = None if limit == "slots_per_request" else getattr(report, limit)
            yield _limit_row(limit, "", basis, budget, Seen(value))


def _predicted(term: Term, rank: str, basis: Basis, budget: MemoryBudget, report: PoolReport) -> Interval | None:
    """What a budget says of a term on one rank: the same of all, but for what is left on a card that had more free."""
    predicted = budget.terms[term].bytes if term in budget.terms else None
    if term != "slack" or predicted is None:
        return predicted
    surplus = _surplus(report, rank)
    return None if surplus is None else predicted.shifted(surplus + _larger_card(basis, budget))


def _only_of_server(limit: Limit, report: PoolReport) -> bool:
    """Whether no rank logged its pool, and the server's own figure is known all the same (/server_info, a summary)."""
    logged = [getattr(pools, limit) for pools in report.ranks if pools.role == "target"]
    return getattr(report, limit) is not None and all(count is None for count in logged)


def observed_term(term: Term, target: RankPools | None, draft: RankPools | None) -> Seen:
    """What the log tells of a term on one rank."""
    match term:
        case "weights":
            return _seen(target, "weights")
        case "draft_weights":
            return _seen(draft, "weights")
        case "draft_kv":
            return _seen(draft, "kv")
        case "graphs":
            return _sum(_seen(target, "graphs"), _seen(draft, "graphs"))
        case "slack":
            return _slack(target, draft)
        case _:
            return _seen(target, term)


def _seen(pools: RankPools | None, field: str) -> Seen:
    quantity: Quantity | None = getattr(pools, field) if pools else None
    if quantity is None or pools is None:
        return Seen()
    return Seen(quantity.bytes, quantity.resolution_bytes, pools.lines.get(field))


def _sum(first: Seen, second: Seen) -> Seen:
    if first.value is None or second.value is None:
        return first if second.value is None else second
    return Seen(first.value + second.value, first.tolerance + second.tolerance, first.line)


def _slack(target: RankPools | None, draft: RankPools | None) -> Seen:
    """Free when the last pool stands. Up to 0.5.13 the target's graphs exist by then: slack in use, added back."""
    last = draft if draft is not None and draft.available is not None else target
    seen = _seen(last, "available")
    if last is draft and target is not None and target.graphs is not None and seen.line is not None:
        captured = target.lines.get("graphs")
        if captured is not None and captured < seen.line:
            return _sum(seen, _seen(target, "graphs"))
    return seen


def _stands(budget: MemoryBudget, draft: RankPools | None) -> bool:
    """Whether the last predicted pool was logged: what is free before that is not the slack."""
    expected = budget.terms.get("draft_kv")
    if expected is None or expected.bytes is None or expected.bytes.high == 0:
        return True
    return draft is not None and draft.kv is not None


def _surplus(report: PoolReport, rank: str) -> int | None:
    """How much more this rank has free than the rank that decides for all. None: which one decides is not known."""
    least = report.least(report.pre)
    if least is None:
        return 0 if len({pools.rank for pools in report.ranks}) < 2 else None
    return report.pre[rank].bytes - least.bytes if rank in report.pre else 0


def _larger_card(basis: Basis, budget: MemoryBudget) -> int:
    """How much more the card that emulates has outside the budget; measured memory is that card's own already."""
    emulation = budget.emulation
    return emulation.room_bytes if emulation is not None and basis == "config" else 0


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _row(
    term: Term | Limit,
    rank: str,
    role: Role,
    basis: Basis,
    unit: Literal["bytes", "count"],
    predicted: Interval | None,
    seen: Seen,
    *,
    estimated: bool = False,
) -> Row:
    tolerance = TOKEN_SLOP if term in ("kv_tokens", "max_input_tokens") else seen.tolerance
    delta: int | None = None
    verdict: RowVerdict
    if seen.value is None:
        verdict = "not logged"
    elif predicted is None:
        verdict = "not predicted"
    else:
        delta = seen.value - min(max(seen.value, predicted.low), predicted.high)
        verdict = "match" if abs(delta) <= tolerance else "off"
        if estimated:
            verdict = "estimated"
    return Row(
        term=term,
        rank=rank,
        role=role,
        basis=basis,
        unit=unit,
        predicted=predicted,
        observed=seen.value,
        tolerance=tolerance,
        delta=delta,
        verdict=verdict,
        attribution=None,
        line=seen.line,
    )


def _limit_row(limit: Limit, rank: str, basis: Basis, budget: MemoryBudget, seen: Seen) -> Row:
    predicted = budget.limits[limit].value if limit in budget.limits else None
    return _row(limit, rank, "target", basis, "count", predicted, seen)


def _attribute(row: Row, rows: list[Row], budgets: Mapping[Basis, MemoryBudget], report: PoolReport) -> Row:
    if row.verdict != "off":
        return row
    return replace(row, attribution=_cause(row, rows, budgets, report))


#: Why what one rank has free may be logged too low; and by how much at most (seen: 0.08 GiB, live/quarters).
SHARED = "several processes share the card, and one that was just allocating is counted a moment late"
_LATE_BYTES = GIB // 10


def _cause(row: Row, rows: list[Row], budgets: Mapping[Basis, MemoryBudget], report: PoolReport) -> str:
    """Where a difference comes from: weights, free memory, the solver, or a figure that follows another."""
    is_late = row.term in ("weights", "draft_weights", "slack") and abs(row.delta or 0) <= _LATE_BYTES
    if budgets[row.basis].shared_card and is_late:
        return SHARED
    if row.term in ("weights", "draft_weights"):
        return "weights: the shapes of the config give another size than the engine loaded"
    leading = next(
        (r for r in rows if r.basis == row.basis and r.rank == row.rank and r.term == _LEADS.get(row.term)), None
    )
    if leading is not None and leading.verdict == "off":
        return f"follows from {leading.term}"
    if row.basis == "config":
        measured = next((r for r in rows if r.basis == "measured" and r.term == row.term and r.rank == row.rank), None)
        if measured is not None and measured.verdict == "match":
            return _inputs(budgets["config"], report)
        if measured is None:
            return "free memory, weights or solver: the log has no free memory to tell them apart"
    if row.unit == "bytes" and row.term == "slack":
        return "memory used outside the terms, or free memory read at another moment"
    return f"solver: with the {budgets[row.basis].free.words} the rule gives another value"


#: A pool's bytes are wrong when its count is.
_LEADS: dict[Term | Limit, Limit] = {
    "state_conv": "state_slots",
    "state_ssm": "state_slots",
    "scratch_ssm": "running_requests",
    "scratch_conv": "running_requests",
    "kv": "kv_tokens",
    "draft_kv": "kv_tokens",
    "max_input_tokens": "kv_tokens",
}


def _inputs(budget: MemoryBudget, report: PoolReport) -> str:
    """Free memory or weights, whichever of the two inputs missed by more."""
    pre, post = report.least(report.pre), report.least(report.post)
    if pre is None or post is None:
        return "free memory or weights: not logged"
    missed_pre = pre.bytes - budget.free.pre.point
    missed_weights = (pre.bytes - post.bytes) - (budget.free.pre.point - budget.free.post.point)
    if abs(missed_pre) >= abs(missed_weights):
        text = f"free memory: {gib(missed_pre):+z.2f} GiB against the GPU table's {format_gib(budget.free.pre.point)}"
    else:
        text = f"weights: {gib(missed_weights):+z.2f} GiB against the config's shapes"
    return text
