"""Memory from four sides: predicted, the engine's log, /server_info, NVML. A row per term or limit, a cell per side.

In: a budget, the pool report, the log, /server_info and the GPU samples of a run. Out: `Sides`: every cell with its
source, None where a side tells nothing, and in words where the log and /server_info differ. NVML knows no terms: what
it shows of whole cards is in rows of their own (see `whole_cards`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import PoolReport, RankPools, ServerLog
from ..engines.sglang.server_info import NAMES, ServerInfo, read
from ..engines.sglang.sizing import rule_version
from ..gpus import Communication, load_gpu
from ..rank_names import is_first
from ..reading.freeread_rank import Init
from ..reading.rank_gpus import Cards
from ..terms import TERMS, Limit, Role, Term
from ..units import Interval, Quantity
from .ledger import Ledger
from .reconcile import observed_term
from .side import SERVER_INFO, Side, Sides, Told, Total, by_line, row
from .whole_cards import taken_by_init, totals

_POOLS: tuple[Term, ...] = tuple(term for term in TERMS if term not in ("slack", "unexplained"))


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
        taken = list(taken_by_init(log, rank, communication, _from_table(budget), card, init))
        terms = list(_terms(budget, mine, rank, answers))
        rows += [
            *taken,
            *_free(budget, report, rank),
            *terms,
            *totals(log, [*taken, *terms], card, answers, rank, by_rank.get(rank)),
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
            log = Told(value=figures[rank].bytes, tolerance=figures[rank].resolution_bytes, source="log, loading")
            yield row(name, rank, predicted=predicted, log=log)


# ── terms ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _terms(
    budget: MemoryBudget | None, mine: Mapping[Role, RankPools], rank: str, told: ServerInfo | None
) -> Iterator[Side]:
    for term in _POOLS:
        expected = budget.terms.get(term) if budget is not None else None
        predicted = expected.bytes if expected is not None else None
        seen = observed_term(term, mine.get("target"), mine.get("draft"))
        log = None if seen.value is None else by_line(seen.value, seen.tolerance, seen.line)
        server = None if told is None else _told_term(term, told)
        if log is None and server is None and (predicted is None or predicted.high == 0):
            continue  # the configuration does not have it
        # Graphs of the draft are in the log's figure and, up to 0.5.19, not in that of /server_info.
        alike = term != "graphs" or mine.get("draft") is None or (told is not None and told.graphs_of != "target")
        basis = "estimated" if expected is not None and expected.estimated else None
        yield row(term, rank, predicted=predicted, log=log, server_info=server, alike=alike, predicted_from=basis)


def _told_term(term: Term, told: ServerInfo) -> Told | None:
    named: dict[Term, tuple[Quantity | None, str]] = {
        "weights": (told.weights, "weight (target alone)"),
        "kv": (told.kv, "kvcache (target alone)"),
        "graphs": (told.graphs, f"graph ({told.graphs_of})"),
    }
    size, name = named.get(term, (None, ""))
    if size is None or (term == "graphs" and not size.bytes):  # 0 also where none were captured
        return None
    return Told(value=size.bytes, tolerance=size.resolution_bytes, source=f"{SERVER_INFO} memory_usage.{name}")


def _limits(budget: MemoryBudget | None, report: PoolReport, log: ServerLog, told: ServerInfo | None) -> Iterator[Side]:
    target = [pools for pools in report.ranks if pools.role == "target"]
    logged: dict[Limit, tuple[int | None, str]] = {
        "state_slots": (_least(pools.state_slots for pools in target), "log, state pool"),
        "running_requests": (_least(one.running_requests for one in log.resolved), "log, summary"),
        "kv_tokens": (_least(pools.kv_tokens for pools in target), "log, KV pool"),
        "context_len": (_least(one.context_len for one in log.resolved), "log, summary"),
        "max_input_tokens": (None, ""),
    }
    for limit, name in NAMES.items():
        expected = budget.limits.get(limit) if budget is not None else None
        value, source = logged[limit]
        answer: int | None = getattr(told, limit) if told is not None else None
        yield row(
            limit,
            "",
            "count",
            predicted=expected.value if expected is not None else None,
            log=None if value is None else Told(value=value, tolerance=0, source=source),
            server_info=None if answer is None else Told(value=answer, tolerance=0, source=f"{SERVER_INFO} {name}"),
        )


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
