"""Starts that are no recordings: what others logged, or what was measured, with what is known of it, in a YAML file.

In: such a file (tests/cases.yaml, tests/starts.yaml). Out: a `Case` per start, and its figures beside what is
predicted. Sizes are computed for the logged counts, counts from the logged free memory where there is some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..budget.limits import limits
from ..budget.predict import predict, solved
from ..budget_types import FreeMemory, PredictedLimit
from ..configuration import yamltext
from ..configuration.config import RunConfig
from ..engines.sglang.demand import units
from ..engines.sglang.offsets import measured_free
from ..engines.sglang.resolve import Settings, settings
from ..engines.sglang.sizing.allocation import allocate
from ..engines.sglang.sizing.contract import Pools
from ..errors import SpecError
from ..gpus import GpuSpec
from ..specs import ModelSpec
from ..terms import TERMS, Limit, Term
from ..units import MIB, Interval, Quantity, gib_text_to_quantity
from .compared import BLOCKS, TABLE, Basis, Compared, Source, Start, compare

_Loaded = Literal["weights", "draft_weights"]
_Counted = Literal["state_slots", "running_requests", "kv_tokens"]
_WEIGHTS: tuple[Term, ...] = ("weights", "draft_weights")
_COUNTS: tuple[_Counted, ...] = ("state_slots", "running_requests", "kv_tokens")
_KEYS = ("case", "report", "config", "card_mib", "known", "free", "counts", "sizes", "refused", "why", "back_solved")
_WHY_START: Mapping[str, str] = {
    "bytes": BLOCKS,
    "configuration": TABLE,
    "measured": "the log rounds the free memory, and its offset was not measured for this model",
}


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

    @property
    def start(self) -> Start:
        version = self.config.engine.version
        return Start(source=self.source, name=self.name, version="?" if version in ("", "main") else version)


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


def _weights(case: Case, resolved: Settings) -> Iterator[Compared]:
    sizes: dict[_Loaded, Interval | None] = {}
    if case.source == "measured start":  # stages and data-parallel attention split them otherwise
        begin = solved(case.config).start
        sizes = {"weights": begin.weights, "draft_weights": begin.draft_weights}
    loaded: dict[_Loaded, ModelSpec | None] = {"weights": resolved.target, "draft_weights": resolved.draft}
    for figure, spec in loaded.items():
        if figure in case.sizes and spec is not None:
            size = sizes.get(figure) or spec.weights_bytes(case.config.parallel.tp_size, fp4=resolved.gpu.is_blackwell)
            yield compare(case.start, figure, "configuration", size, _printed(case.sizes[figure]))


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
            yield compare(case.start, "pool_size", basis, value, size, what=term)


def _counts(case: Case) -> Iterator[Compared]:
    """What the solver gives for the free memory that the log prints; without it what follows from a logged count."""
    found: Mapping[Limit, PredictedLimit] = {}
    basis: Basis = "measured" if case.back_solved is None else "back-solved"
    if case.free is not None:
        # Some are builds that serve a model before the release that does, whose predecessors refuse it.
        found = limits(solved(case.config, gpu=case.gpu, free=_free(case)))
    if case.source == "measured start":
        expected = limits(solved(case.config))
        for name in _COUNTS:
            if name in case.counts:
                yield compare(case.start, name, "configuration", expected[name].value, Quantity(case.counts[name]))
    for name in _COUNTS:
        if name in case.counts and name in found and name != case.back_solved:
            yield compare(case.start, name, basis, found[name].value, Quantity(case.counts[name]))
    each = settings(case.config, gpu=case.gpu).slots_per_request
    told = case.counts.get("slots_per_request")
    if told is not None:
        yield compare(case.start, "slots_per_request", "configuration", Interval.exact(each), Quantity(told))
    if case.source == "public case" and not found and case.back_solved != "scratch_ssm":
        yield from _running_of_slots(case, each)


def _running_of_slots(case: Case, each: int) -> Iterator[Compared]:
    """Requests that run at once, of the logged slots. `each`: slots per request."""
    slots, running = case.counts.get("state_slots"), case.counts.get("running_requests")
    if slots is None or running is None:
        return
    asked, fit = case.config.memory.max_running_requests, slots // each
    served = Interval.exact(fit if asked is None else min(asked, fit))
    yield compare(case.start, "running_requests", "formula", served, Quantity(running))


def _refusal(case: Case) -> Iterator[Compared]:
    if case.refused is None:
        return
    budget = predict(case.config, gpu=case.gpu)
    refused = budget.verdict == "refused" and case.refused in (budget.engine_error or "")
    yield compare(case.start, "refusal", "configuration", Interval.exact(int(refused)), Quantity(1), what="refused")


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
    return Quantity.total(gib_text_to_quantity(part.strip()) for part in str(text).split("+"))
