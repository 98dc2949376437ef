"""Memory from four sides: predicted, the engine's log, /server_info, NVML. A row per term or limit, a cell per side.

In: a budget, the pool report, the log, /server_info and the GPU samples of a run. Out: `Sides`: every cell with its
source, None where a side tells nothing, and in words where the log and /server_info differ. The non-obvious thing: NVML
knows no terms, only what a whole card has in use; what it shows above the baseline, above what the distributed init
took and above all logged terms is the engine's CUDA context, its workspaces, and what nobody explains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import PoolReport, RankPools, ServerLog
from ..engines.sglang.server_info import NAMES, ServerInfo, read
from ..engines.sglang.sizing import rule_version
from ..gpus import Communication, load_gpu
from ..rank_names import is_first
from ..reading.freeread_rank import Init
from ..reading.pools import distributed_inits
from ..reading.rank_gpus import Cards
from ..records.types import GpuSample
from ..terms import TERMS, Limit, Role, Term
from ..units import GIB, Interval, Quantity, format_gib
from .ledger import Ledger
from .reconcile import observed_term

Total = Literal[
    "communication",
    "free_before_loading",
    "free_when_sized",
    "before_start",
    "at_ready",
    "peak",
    "given_back",
    "context_and_unexplained",
]

#: Bytes of a whole card (the first and the last two: of a rank), beside the terms.
TOTALS: dict[Total, str] = {
    "communication": "taken of its card by a rank's distributed init once its CUDA context stands (buffers, most of "
    "them for the communication between ranks), before the free memory of the next rows is read",
    "free_before_loading": "free on its card before a rank loads its weights; the server goes by the rank with least",
    "free_when_sized": "free on its card when a rank sizes its pools; the server goes by the rank with least",
    "before_start": "in use before the start: the driver's own, and others'; the baseline of the rows below",
    "at_ready": "in use when the server was ready, above the baseline",
    "peak": "most in use from then until the stop, above the baseline",
    "given_back": "counted in a term and freed after the pools were made: a draft's own embedding and head, which it "
    "then shares with the target",
    "context_and_unexplained": "in use when ready, above the baseline, neither communication nor in a term: CUDA "
    "context, workspaces, the rest",
}
_INFO = "/server_info"
_STOPPED = frozenset({"stop", "steady_end", "killed", "after"})
_POOLS: tuple[Term, ...] = tuple(term for term in TERMS if term not in ("slack", "unexplained"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one side tells."""

    value: int  # in the unit of the row
    tolerance: int  # rounding of the figure
    source: str  # "log line 24", "/server_info memory_usage.weight", "NVML, GPU 0, 12 samples"
    place: str = ""  # the part of `source` in which ranks differ: "log line 24", "GPU 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One row."""

    name: Term | Limit | Total
    rank: str  # "" on one GPU, and for what holds for all ranks
    unit: Literal["bytes", "count"]
    predicted: Interval | None
    log: Told | None
    server_info: Told | None
    nvml: Told | None
    disagreement: str | None  # between the log and /server_info
    predicted_from: str | None = None  # None: what the whole budget rests on


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    rows: tuple[Side, ...]
    deciding: str | None = None  # of several ranks the one with least free before loading; None: one rank, or as much
    not_sampled: str | None = None  # why NVML tells nothing of a rank

    @property
    def disagreements(self) -> tuple[str, ...]:
        return tuple(row.disagreement for row in self.rows if row.disagreement is not None)

    def of(self, name: Term | Limit | Total, rank: str = "") -> Side:
        """The row of a name; KeyError when there is none."""
        for row in self.rows:
            if (row.name, row.rank) == (name, rank):
                return row
        raise KeyError(name)


def sides(
    budget: MemoryBudget | None,
    report: PoolReport,
    log: ServerLog,
    info: Mapping[str, Any] | None,
    cards: Cards,
    *,
    communication: Communication | None = None,
    inits: Mapping[str, Init] | None = None,
    ledgers: Sequence[Ledger] = (),
) -> Sides:
    """`budget`: on the better basis. /server_info answers for the first rank. `communication`: what the GPU table has
    of the card that is there, which no measurement of a start replaces. `inits`: the distributed init of each rank by
    NVML, where that is known. `ledgers`: of its ranks; without them nothing is known to have been given back."""
    told = None if info is None else read(info)
    by_rank = {ledger.rank: ledger for ledger in ledgers}
    rows: list[Side] = []
    for rank in ranks_of(report):
        mine = {pools.role: pools for pools in report.ranks if pools.rank == rank}
        answers = told if is_first(rank) else None
        card, init = cards.samples.get(rank), (inits or {}).get(rank)
        taken = list(_communication(log, rank, communication, _from_table(budget), card, init))
        terms = list(_terms(budget, mine, rank, answers))
        rows += [
            *taken,
            *_free(budget, report, rank),
            *terms,
            *_totals(log, [*taken, *terms], card, answers, rank, by_rank.get(rank)),
        ]
    rows += _limits(budget, report, log, told)
    return Sides(rows=tuple(rows), deciding=_deciding(report), not_sampled=cards.missing)


def _deciding(report: PoolReport) -> str | None:
    least = report.deciding_rank
    return least if least is not None and len({size.bytes for size in report.pre.values()}) > 1 else None


def ranks_of(report: PoolReport) -> tuple[str, ...]:
    """The ranks that logged pools; one without a name where none did."""
    return tuple(dict.fromkeys(pools.rank for pools in report.ranks)) or ("",)


def expected_communication(config: RunConfig) -> Communication | None:
    """Of the card that is there, also where a smaller one is emulated. ConfigError when it is not in the GPU table."""
    ranks = config.parallel.tp_size * config.parallel.pp_size
    return load_gpu(config.gpu.name).free_before_load(ranks, rule_version(config.engine)).communication


def _from_table(budget: MemoryBudget | None) -> str:
    """An emulated budget is of another card than the one of which the table's figure is."""
    emulation = None if budget is None else budget.emulation
    return "GPU table" if emulation is None else f"GPU table, on the {emulation.host} that is there"


def _communication(
    log: ServerLog,
    rank: str,
    expected: Communication | None,
    expected_from: str,
    card: Sequence[GpuSample] | None,
    init: Init | None,
) -> Iterator[Side]:
    logged = distributed_inits(log).get(rank)
    if logged is None:
        return
    used: Quantity = logged.values["used"]
    nvml = None
    if init is not None and card:
        taken, after = init.taken, init.after
        low = "" if after.is_exact else f"{after.low / GIB:.4f} to "
        nvml = Told(
            value=taken.point,
            tolerance=max(taken.high - taken.point, taken.point - taken.low),
            source=f"NVML, GPU {card[0].gpu}: {format_gib(init.before_bytes, digits=4)} free before the distributed "
            f"init, {low}{format_gib(after.high, digits=4)} after it",
            place=f"GPU {card[0].gpu}",
        )
    yield dataclasses.replace(
        _side(
            "communication",
            rank,
            "bytes",
            None if expected is None else expected.bytes,
            _logged(used.bytes, used.resolution_bytes, logged.line),
            None,
            nvml,
        ),
        predicted_from=None if expected is None else expected_from,
    )


def _free(budget: MemoryBudget | None, report: PoolReport, rank: str) -> Iterator[Side]:
    """What the solver starts from. On the measured basis it is no prediction but its input; of a smaller card that is
    emulated it is that card's."""
    expected = budget.free if budget is not None and budget.basis == "config" and budget.emulation is None else None
    found: tuple[tuple[Total, Mapping[str, Quantity], Interval | None], ...] = (
        ("free_before_loading", report.pre, expected.pre if expected is not None else None),
        ("free_when_sized", report.post, expected.post if expected is not None else None),
    )
    for name, figures, predicted in found:
        if rank in figures:
            logged = Told(value=figures[rank].bytes, tolerance=figures[rank].resolution_bytes, source="log, loading")
            yield _side(name, rank, "bytes", predicted, logged, None, None)


# ── terms ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _terms(
    budget: MemoryBudget | None, mine: Mapping[Role, RankPools], rank: str, told: ServerInfo | None
) -> Iterator[Side]:
    for term in _POOLS:
        expected = budget.terms.get(term) if budget is not None else None
        predicted = expected.bytes if expected is not None else None
        seen = observed_term(term, mine.get("target"), mine.get("draft"))
        log = None if seen.value is None else _logged(seen.value, seen.tolerance, seen.line)
        server = None if told is None else _told_term(term, told)
        if log is None and server is None and (predicted is None or predicted.high == 0):
            continue  # the configuration does not have it
        # Graphs of the draft are in the log's figure and, up to 0.5.19, not in that of /server_info.
        alike = term != "graphs" or mine.get("draft") is None or (told is not None and told.graphs_of != "target")
        side = _side(term, rank, "bytes", predicted, log, server, None, alike=alike)
        estimated = expected is not None and expected.estimated
        yield dataclasses.replace(side, predicted_from="estimated" if estimated else None)


def _told_term(term: Term, told: ServerInfo) -> Told | None:
    named: dict[Term, tuple[Quantity | None, str]] = {
        "weights": (told.weights, "weight (target alone)"),
        "kv": (told.kv, "kvcache (target alone)"),
        "graphs": (told.graphs, f"graph ({told.graphs_of})"),
    }
    size, name = named.get(term, (None, ""))
    if size is None or (term == "graphs" and not size.bytes):  # 0 also where none were captured
        return None
    return Told(value=size.bytes, tolerance=size.resolution_bytes, source=f"{_INFO} memory_usage.{name}")


def _limits(budget: MemoryBudget | None, report: PoolReport, log: ServerLog, told: ServerInfo | None) -> Iterator[Side]:
    target = [pools for pools in report.ranks if pools.role == "target"]
    logged: dict[Limit, tuple[int | None, str]] = {
        "state_slots": (_least(pools.state_slots for pools in target), "log, state pool"),
        "running_requests": (_least(row.running_requests for row in log.resolved), "log, summary"),
        "kv_tokens": (_least(pools.kv_tokens for pools in target), "log, KV pool"),
        "context_len": (_least(row.context_len for row in log.resolved), "log, summary"),
        "max_input_tokens": (None, ""),
    }
    for limit, name in NAMES.items():
        expected = budget.limits.get(limit) if budget is not None else None
        value, source = logged[limit]
        answer: int | None = getattr(told, limit) if told is not None else None
        yield _side(
            limit,
            "",
            "count",
            expected.value if expected is not None else None,
            None if value is None else Told(value=value, tolerance=0, source=source),
            None if answer is None else Told(value=answer, tolerance=0, source=f"{_INFO} {name}"),
            None,
        )


# ── whole cards ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _totals(
    log: ServerLog,
    taken: Sequence[Side],
    card: Sequence[GpuSample] | None,
    told: ServerInfo | None,
    rank: str,
    ledger: Ledger | None,
) -> Iterator[Side]:
    """`taken`: communication, where it is logged, and the terms."""
    before = next((sample for sample in card or () if sample.phase == "before"), None)
    if card is None or before is None:
        return
    serving = _serving(card)
    base, place = before.used_bytes, f"GPU {before.gpu}"

    def seen(value: int, words: str) -> Told:
        return Told(value=value, tolerance=0, source=f"NVML, {place}, {words}", place=place)

    yield _side("before_start", rank, "bytes", None, None, None, seen(base, "before the start"))
    if not serving:
        return
    ready = serving[0].used_bytes - base
    summary = next((row for row in log.resolved if row.rank == rank and row.available is not None), None)
    end = None
    if summary is not None and summary.available is not None:
        free = summary.available
        end = Told(
            value=before.total_bytes - free.bytes - base,
            tolerance=free.resolution_bytes,
            source=f"{_line(summary.line)}: {format_gib(free.bytes)} free, of the total by NVML, less the baseline",
            place=_line(summary.line),
        )
    server = None
    if told is not None and told.free_after_start is not None:
        server = Told(
            value=before.total_bytes - told.free_after_start.bytes - base,
            tolerance=told.free_after_start.resolution_bytes,
            source=f"{_INFO} memory_usage.startup_available, of the total by NVML, less the baseline",
        )
    yield _side("at_ready", rank, "bytes", None, end, server, seen(ready, "first sample when ready"), alike=False)
    most = max(sample.used_bytes for sample in serving) - base
    yield _side("peak", rank, "bytes", None, None, None, seen(most, f"{len(serving)} samples until the stop"))
    known = [row.log for row in taken]
    if all(one is not None for one in known):
        back = _given_back(ledger)
        if back is not None:
            yield _side("given_back", rank, "bytes", None, back, None, None)
        named = sum(one.value for one in known if one is not None) - (back.value if back is not None else 0)
        rounding = sum(one.tolerance for one in (*known, back) if one is not None)
        terms = [row for row in taken if row.name != "communication"]
        less = "" if back is None else ", without what was given back"
        beside = "communication and " if len(terms) < len(taken) else ""
        words = f"when ready, less {beside}the {len(terms)} terms of the log ({format_gib(named)}{less})"
        if ready + rounding < named:
            words += "; below 0: what a term counts was given back later, or is shared"
        rest = dataclasses.replace(seen(ready - named, words), tolerance=rounding)
        yield _side("context_and_unexplained", rank, "bytes", None, None, None, rest)


def _given_back(ledger: Ledger | None) -> Told | None:
    """What is free again after the last pool, as the rank's ledger has it. SGLang's multi-token heads load an embedding
    and a head of their own, which the log counts as theirs, and free them for the target's (set_embed_and_head)."""
    entry = None if ledger is None else next((one for one in ledger.entries if one.term == "given_back"), None)
    if entry is None or entry.size is None:
        return None
    return Told(
        value=-entry.size.bytes,
        tolerance=entry.size.resolution_bytes,
        source=entry.source,
        place=_line(entry.line),
    )


def _serving(card: Sequence[GpuSample]) -> list[GpuSample]:
    """The samples from ready to the stop; none when the server was never ready."""
    first = next((place for place, sample in enumerate(card) if sample.phase == "ready"), None)
    if first is None:
        return []
    last = next((place for place in range(first, len(card)) if card[place].phase in _STOPPED), len(card))
    return list(card[first:last])


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _side(
    name: Term | Limit | Total,
    rank: str,
    unit: Literal["bytes", "count"],
    predicted: Interval | None,
    log: Told | None,
    server_info: Told | None,
    nvml: Told | None,
    *,
    alike: bool = True,
) -> Side:
    """`alike`: whether the log and /server_info mean the same thing here."""
    differ = None
    if alike and log is not None and server_info is not None:
        apart = abs(log.value - server_info.value)
        if apart > log.tolerance + server_info.tolerance:
            said = [_amount(one.value, unit) for one in (log, server_info)]
            differ = (
                f"{name}{f' of {rank}' if rank else ''}: {said[0]} ({log.source}), {said[1]} ({server_info.source})"
            )
    return Side(
        name=name,
        rank=rank,
        unit=unit,
        predicted=predicted,
        log=log,
        server_info=server_info,
        nvml=nvml,
        disagreement=differ,
    )


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _amount(value: int, unit: str) -> str:
    return format_gib(value) if unit == "bytes" else f"{value:,}"


def _logged(value: int, tolerance: int, line: int | None) -> Told:
    return Told(value=value, tolerance=tolerance, source=_line(line), place="" if line is None else _line(line))


def _line(number: int | None) -> str:
    return "log" if number is None else f"log line {number}"
