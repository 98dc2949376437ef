"""How exact predictions are: figure by figure, against recorded starts and public logs.

In: recordings, and cases (`read_cases`: figures that others logged, with what their logs tell). Out: `Compared` rows.
A row is "exact" when the point is the logged figure (of a size: within the rounding of the log), "inside" when only the
interval holds it, "off" when not. The non-obvious thing: what was known beforehand decides what a hit is worth, so each
row names its basis: the configuration alone; free memory as measured or logged in the start itself; the formula alone,
where the log tells a count and the size is computed for it; back-solved, where one figure was taken from the log to
find what it does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..budget.limits import limits
from ..budget.predict import predict, solved
from ..budget_types import FreeMemory, MemoryBudget, PredictedLimit
from ..configuration import yamltext
from ..configuration.config import RunConfig
from ..diagnose.types import Diagnosis
from ..engines.sglang.demand import units
from ..engines.sglang.offsets import measured_free
from ..engines.sglang.resolve import Settings, settings
from ..engines.sglang.sizing.allocation import allocate
from ..engines.sglang.sizing.contract import Pools
from ..errors import SpecError
from ..gpus import GpuSpec
from ..terms import TERMS, Limit, Term
from ..units import MIB, Interval, Quantity, gib_text_to_quantity

Figure = Literal[
    "state_slots",
    "slots_per_request",
    "running_requests",
    "kv_tokens",
    "weights",
    "draft_weights",
    "pool_size",
    "refusal",
]
Basis = Literal["configuration", "measured", "formula", "back-solved"]
Source = Literal["recording", "measured start", "public case"]
Verdict = Literal["exact", "inside", "off", "not predicted"]

#: In the order of the tables, with what a hit means.
FIGURES: dict[Figure, str] = {
    "state_slots": "state slots",
    "slots_per_request": "slots per request",
    "running_requests": "running requests",
    "kv_tokens": "KV tokens",
    "weights": "weights (exact: within the rounding of the log)",
    "draft_weights": "draft weights (exact: within the rounding of the log)",
    "pool_size": "sizes of pools at the logged counts (exact: within the rounding of the log)",
    "refusal": "refused or not",
}
BASES: dict[Basis, str] = {
    "configuration": "the configuration alone; free memory of the GPU table",
    "measured": "the configuration, and the free memory of that very start (NVML, or as its log rounds it)",
    "formula": "the configuration and a count that the log tells",
    "back-solved": "one figure of the log stands for what it does not tell",
}
_WEIGHTS: tuple[Term, ...] = ("weights", "draft_weights")
_LIMITS: tuple[Limit, ...] = ("state_slots", "running_requests", "kv_tokens")
_KEYS = ("case", "report", "config", "card_mib", "known", "free", "counts", "sizes", "refused", "why", "back_solved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one start."""

    source: Source
    name: str
    version: str  # of the engine; "?": not told
    figure: Figure
    what: str  # the figure, or the pool
    basis: Basis
    unit: Literal["count", "bytes"]
    predicted: Interval | None
    logged: int
    tolerance: int  # rounding of the log
    verdict: Verdict
    why: str = ""  # where it is not exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One start that is no recording: what its log tells, and what of it is compared."""

    source: Source
    name: str
    known: str  # what was known beforehand, in words
    config: RunConfig
    gpu: GpuSpec | None  # None: of the GPU table
    free: tuple[str, str] | None  # GiB as printed: before loading, after it
    counts: Mapping[str, int]
    sizes: Mapping[str, str]  # term -> GiB as printed; 'a + b' where K and V are printed apart
    refused: str | None  # what its error says
    why: Mapping[str, str]  # figure -> why it is not exact
    back_solved: str | None  # the figure that was taken from the log


def compared(recordings: Iterable[Diagnosis], cases: Iterable[Case]) -> tuple[Compared, ...]:
    """Every figure of every start. A recording that logged none has no row."""
    rows = [row for found in recordings for row in of_recording(found)]
    rows += [row for case in cases for row in of_case(case)]
    return tuple(rows)


def shares(rows: Iterable[Compared]) -> dict[tuple[str, Basis, Figure], tuple[int, int, int, int]]:
    """(source, basis, figure) -> rows, exact, inside, off or not predicted."""
    found: dict[tuple[str, Basis, Figure], list[Compared]] = {}
    for row in rows:
        found.setdefault((row.source, row.basis, row.figure), []).append(row)
    return {
        key: (
            len(mine),
            sum(row.verdict == "exact" for row in mine),
            sum(row.verdict == "inside" for row in mine),
            sum(row.verdict in ("off", "not predicted") for row in mine),
        )
        for key, mine in found.items()
    }


def farthest(rows: Iterable[Compared]) -> tuple[Compared, Compared] | None:
    """The rows whose points miss by the most: in their unit, and as a share of what was logged. None: none misses."""
    apart = [row for row in rows if row.verdict != "exact" and row.predicted is not None]
    if not apart:
        return None
    return max(apart, key=missed_by), max(apart, key=lambda row: missed_by(row) / max(row.logged, 1))


def missed_by(row: Compared) -> int:
    """By how much a point misses, without its sign."""
    return 0 if row.predicted is None else abs(row.predicted.point - row.logged)


# ── recordings ───────────────────────────────────────────────────────────────────────────────────────────────────────


def of_recording(found: Diagnosis) -> Iterator[Compared]:
    """A row per figure; where ranks logged different ones, each its own."""
    if found.config is None:
        return
    for basis, budget in found.budgets.items():
        named: Basis = "configuration" if basis == "config" else "measured"
        seen: set[tuple[str, int]] = set()
        for row in found.reconciliation.rows:
            if row.basis != basis or row.observed is None or (row.term, row.observed) in seen:
                continue
            seen.add((row.term, row.observed))
            figure = _FIGURE_OF.get(row.term)
            if figure is None or (row.unit == "bytes" and named == "measured"):
                continue
            logged = Quantity(row.observed, 0 if row.unit == "count" else row.tolerance)
            version = found.config.engine.version
            one = _compared("recording", found.name, version, figure, row.term, named, row.predicted, logged, row.unit)
            yield one if one.verdict == "exact" else replace(one, why=_why(one, budget))
        yield from _recorded_limits(found, budget, named)


_FIGURE_OF: Mapping[str, Figure] = {
    "state_slots": "state_slots",
    "running_requests": "running_requests",
    "kv_tokens": "kv_tokens",
    "weights": "weights",
    "draft_weights": "draft_weights",
}


def _why(row: Compared, budget: MemoryBudget) -> str:
    """Why a recording's figure is not exact: what its basis leaves open."""
    if row.unit == "bytes":
        return _BLOCKS
    if row.basis == "measured" and budget.free.watched:
        return "NVML leaves an interval of the free memory: a level between two samples passed unseen"
    if row.basis == "measured":
        return "not watched by NVML: the log rounds the free memory, and its offset was fitted to several starts"
    if budget.emulation is not None:
        return (
            "emulated: the fraction was passed by an earlier free-memory table (0.0034 GiB off with 0.5.12 on two GPUs)"
        )
    return _TABLE


def _recorded_limits(found: Diagnosis, budget: MemoryBudget, basis: Basis) -> Iterator[Compared]:
    """What only a notice tells: slots per request; and whether the start was refused."""
    assert found.config is not None
    version = found.config.engine.version
    if basis == "configuration":
        said = [*(one.values for one in found.log.notices), *(one.values for one in found.log.failures)]
        for count in {values["slots_per_request"] for values in said if "slots_per_request" in values}:
            each, name = budget.limits["slots_per_request"].value, "slots_per_request"
            yield _compared("recording", found.name, version, "slots_per_request", name, basis, each, Quantity(count))
    if found.status is not None:
        refused = found.status == "refused"
        expected, what = Interval.exact(int(budget.verdict == "refused")), "refused" if refused else "not refused"
        one = _compared("recording", found.name, version, "refusal", what, basis, expected, Quantity(int(refused)))
        why = next((failure.text for failure in found.log.failures), "")
        yield one if one.verdict == "exact" else replace(one, why=f"the engine's own words: {why}")


# ── cases ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_cases(file: Path) -> tuple[Case, ...]:
    """The cases of a YAML file. SpecError names the case and what is wrong."""
    table = yamltext.read_mapping(file, expected="source, compared, not_compared")
    return tuple(_case(dict(row), file, table["source"]) for row in table["compared"])


def read_not_compared(file: Path) -> Mapping[str, str]:
    """Case -> why nothing of it is compared."""
    return dict(yamltext.read_mapping(file, expected="source, compared, not_compared")["not_compared"])


def _case(row: dict[str, Any], file: Path, source: Source) -> Case:
    name = str(row.get("case") or row.get("report"))
    unknown = [key for key in row if key not in _KEYS]
    if unknown:
        raise SpecError(f"{file.name}: {name}: {unknown[0]!r}: no such key.\nAllowed here: {', '.join(_KEYS)}.")
    config = RunConfig.model_validate({"name": re.sub(r"[^A-Za-z0-9]+", "-", name)} | row["config"])
    card = row.get("card_mib")
    free = row.get("free")
    return Case(
        source=source,
        name=name,
        known=row["known"],
        config=config,
        gpu=None
        if card is None
        else GpuSpec(name="unnamed", title=f"a card of {card:,} MiB", card_bytes=card * MIB, listed={}),
        free=None if free is None else (str(free["before"]), str(free["after"])),
        counts=row.get("counts", {}),
        sizes=row.get("sizes", {}),
        refused=row.get("refused"),
        why=row.get("why", {}),
        back_solved=row.get("back_solved"),
    )


def of_case(case: Case) -> Iterator[Compared]:
    """Sizes by the formula for the logged counts; counts from the logged free memory where there is some."""
    resolved = settings(case.config, gpu=case.gpu)
    for row in (*_weights(case, resolved), *_sizes(case, resolved), *_counts(case), *_refusal(case)):
        why = case.why.get(row.what, case.why.get(row.figure, ""))
        if not why and case.source == "measured start":
            why = _WHY_START[row.basis if row.unit == "count" else row.unit]
        yield replace(row, why=why) if row.verdict != "exact" and why else row


_BLOCKS = "PyTorch's allocator keeps small tensors in shared blocks: the size depends on their order in the model"
_TABLE = "the free memory of the GPU table and the weights by shapes are known to 0.01 GiB"
_WHY_START: Mapping[str, str] = {
    "bytes": _BLOCKS,
    "configuration": _TABLE,
    "measured": "the log rounds the free memory, and its offset was not measured for this model",
}


def _weights(case: Case, resolved: Settings) -> Iterator[Compared]:
    draft = resolved.draft
    sizes: dict[str, Interval | None] = {}
    if case.source == "measured start":  # stages and data-parallel attention split them otherwise
        begin = solved(case.config).start
        sizes = {"weights": begin.weights, "draft_weights": begin.draft_weights}
    for figure, spec in (("weights", resolved.target), ("draft_weights", draft)):
        if figure in case.sizes and spec is not None:
            size = sizes.get(figure) or spec.weights_bytes(case.config.parallel.tp_size, fp4=resolved.gpu.is_blackwell)
            yield _of_case(case, figure, figure, "configuration", size, _printed(case.sizes[figure]))  # type: ignore[arg-type]


def _sizes(case: Case, resolved: Settings) -> Iterator[Compared]:
    wanted = {term: _printed(case.sizes[term]) for term in TERMS if term in case.sizes and term not in _WEIGHTS}
    if not wanted:
        return
    slot, cell = units(resolved)
    pools = Pools(
        slots=case.counts.get("state_slots", 0),
        scratch_charged_bytes=0,
        tokens=case.counts.get("kv_tokens", 0),
        requests=case.counts.get("running_requests", 0),
        left_gib=0.0,
        refusal=None,
        allocated=True,
    )
    shares = allocate(resolved, slot, cell, pools).shares
    basis: Basis = "back-solved" if case.back_solved in wanted else "formula"
    for term, size in wanted.items():
        if term != case.back_solved:
            share = shares.get(term)
            value = None if share is None else Interval.exact(share.bytes)
            yield _of_case(case, "pool_size", term, basis, value, size)


def _counts(case: Case) -> Iterator[Compared]:
    """What the solver gives for the free memory that the log prints; without it what follows from a logged count."""
    found: Mapping[Limit, PredictedLimit] = {}
    basis: Basis = "measured" if case.back_solved is None else "back-solved"
    if case.free is not None:
        # Some are builds that serve a model before the release that does, whose predecessors refuse it.
        found = limits(solved(case.config, gpu=case.gpu, free=_free(case)))
    if case.source == "measured start":
        expected = limits(solved(case.config))
        for name in _LIMITS:
            if name in case.counts:
                logged = Quantity(case.counts[name])
                yield _of_case(case, name, name, "configuration", expected[name].value, logged)  # type: ignore[arg-type]
    for name in _LIMITS:
        if name in case.counts and name in found and name != case.back_solved:
            yield _of_case(case, name, name, basis, found[name].value, Quantity(case.counts[name]))  # type: ignore[arg-type]
    resolved = settings(case.config, gpu=case.gpu)
    told = case.counts.get("slots_per_request")
    if told is not None:
        each = Interval.exact(resolved.slots_per_request)
        yield _of_case(case, "slots_per_request", "slots_per_request", "configuration", each, Quantity(told))
    slots, running = case.counts.get("state_slots"), case.counts.get("running_requests")
    if (
        case.source == "public case"
        and not found
        and slots is not None
        and running is not None
        and case.back_solved != "scratch_ssm"
    ):
        asked = case.config.memory.max_running_requests
        fit = slots // resolved.slots_per_request
        served = Interval.exact(fit if asked is None else min(asked, fit))
        yield _of_case(case, "running_requests", "running_requests", "formula", served, Quantity(running))


def _refusal(case: Case) -> Iterator[Compared]:
    if case.refused is None:
        return
    budget = predict(case.config, gpu=case.gpu)
    refused = budget.verdict == "refused" and case.refused in (budget.engine_error or "")
    yield _of_case(case, "refusal", "refused", "configuration", Interval.exact(int(refused)), Quantity(1))


def _free(case: Case) -> FreeMemory:
    assert case.free is not None
    before, after = (gib_text_to_quantity(text) for text in case.free)
    config = case.config
    return measured_free(
        config.engine.sizing or config.engine.version,
        config.speculative.algorithm,
        config.parallel.tp_size,
        config.gpu.name,
        before,
        after,
    )


def _printed(text: str) -> Quantity:
    """'2.71 + 2.71': K and V are printed apart, each rounded."""
    if str(text).endswith(" B"):
        return Quantity(int(str(text).removesuffix(" B")))
    parts = [gib_text_to_quantity(part.strip()) for part in str(text).split("+")]
    return Quantity(sum(part.bytes for part in parts), sum(part.resolution_bytes for part in parts))


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_case(
    case: Case, figure: Figure, what: str, basis: Basis, predicted: Interval | None, logged: Quantity
) -> Compared:
    unit: Literal["count", "bytes"] = "bytes" if figure in ("weights", "draft_weights", "pool_size") else "count"
    version = "?" if case.config.engine.version in ("", "main") else case.config.engine.version
    return _compared(case.source, case.name, version, figure, what, basis, predicted, logged, unit)


def _compared(
    source: Source,
    name: str,
    version: str,
    figure: Figure,
    what: str,
    basis: Basis,
    predicted: Interval | None,
    logged: Quantity,
    unit: Literal["count", "bytes"] = "count",
) -> Compared:
    verdict: Verdict = "off"
    if predicted is None:
        verdict = "not predicted"
    elif abs(predicted.point - logged.bytes) <= logged.resolution_bytes:
        verdict = "exact"
    elif predicted.contains(logged.bytes, slop=logged.resolution_bytes):
        verdict = "inside"
    return Compared(
        source=source,
        name=name,
        version=version,
        figure=figure,
        what=what,
        basis=basis,
        unit=unit,
        predicted=predicted,
        logged=logged.bytes,
        tolerance=logged.resolution_bytes,
        verdict=verdict,
    )
