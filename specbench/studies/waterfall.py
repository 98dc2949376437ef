"""The card's memory, used up term by term. In: a diagnosis or a budget. Out: steps that add up to the total, twice.

Predicted and observed alike: `before` + `communication` + every term + the unexplained rest + `slack` = total.
Observed, all figures are the ledger's, and the total is a card's only where one is known: else the bars begin with what
was free before loading. What is gone of a card before that is split in two: what the distributed init took (the log's
figure; predicted, the GPU table's), and `before`, all else. Where communication is not known it lies within `before`.
The rest is what lies between the terms: predicted, what is taken between loading and sizing beside the weights, and the
table of requests; observed, whatever was used, and what is not logged. Of several ranks the one with the least free
memory is shown, since it decides for all. `graphs` are part of `slack`. The non-obvious thing: of a run that emulates a
smaller card the predicted bars are that card's and add up to its total, the observed ones are those of the card that is
there. A host's memory has no total: its bars begin at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..diagnose.absent_ranks import absent_ranks
from ..diagnose.types import Diagnosis
from ..errors import SpecbenchError
from ..gpus import Communication, load_gpu
from ..judging.chain import Pool
from ..judging.ledger import LABELS, Ledger
from ..judging.sides import expected_communication
from ..terms import Basis, Term

_POOLS: tuple[Term, ...] = (
    "weights",
    "draft_weights",
    "state_conv",
    "state_ssm",
    "scratch_ssm",
    "scratch_conv",
    "kv",
    "draft_kv",
)
#: Nothing predicts these; only some servers have them.
_OTHER_POOLS: tuple[Pool, ...] = ("kv_window", "int8_checkpoints", "replay_rings")
_LABELS = {
    "before": "driver, context, others",
    "unexplained": "unexplained rest",
    "graphs": "graphs (within slack; predicted: an estimate)",
    "slack": "slack (free when the pools stand)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    term: str  # a term or pool, or before, or communication
    label: str
    predicted: int | None  # bytes per rank; None: not predicted
    observed: int | None  # bytes per rank; None: not logged
    predicted_card: int | None  # bytes of the whole card, of the GPU table; None: not in it
    card: int | None  # bytes of the card that is there, by NVML where it was sampled
    on_host: bool = False  # the memory is a host's: there is no card, and so no total to start from
    rank: str = ""  # of the observed figures; "" where there is one rank, or nothing is observed
    rank_words: str = ""  # why that one: "no rank has less"; or that the log has not all of them


def steps(found: Diagnosis) -> tuple[Step, ...]:
    """From what was in use before loading to what is left, of the rank that decides. Terms that neither the
    configuration nor the log has are left out. Empty: nothing is predicted, and nothing about memory was logged.
    """
    config = found.config
    emulates = config is not None and config.gpu.emulate is not None
    budget = found.budgets.get("config" if emulates else basis(found))
    ledger = found.ledgers[0] if found.ledgers else None
    if budget is None and ledger is None:
        return ()
    return _steps(
        _predicted(
            budget, None if config is None else card_bytes(config), _expected_communication(found.budgets.get("config"))
        ),
        _Side(card=None, pre=None, values={}) if ledger is None else _observed(ledger),
        on_host=ledger.on_host if ledger is not None else config is not None and _is_host(config),
        rank="" if ledger is None else ledger.rank,
        rank_words="" if ledger is None else _rank_words(found, ledger),
    )


def _rank_words(found: Diagnosis, ledger: Ledger) -> str:
    """'no rank has less' is known where all ranks logged what they have."""
    absent = None if found.config is None else absent_ranks(found.config, found.pools)
    if absent is not None:
        return f"{absent.partition(' (')[0]}; others may have less"
    return "no rank has less" if found.pools.deciding_rank == ledger.rank else ""


def basis(found: Diagnosis) -> Basis:
    """The better basis of prediction that there is: the log's own free memory, else the configuration alone."""
    return "measured" if "measured" in found.budgets else "config"


def predicted_steps(budget: MemoryBudget, config: RunConfig) -> tuple[Step, ...]:
    """The same from a prediction alone; nothing is observed."""
    total = card_bytes(config) if budget.basis == "config" else _total(config.gpu.name)
    if budget.basis == "config":
        communication = _expected_communication(budget)
    else:
        table = _table_communication(config)
        communication = None if table is None else table.bytes.point
    return _steps(
        _predicted(budget, total, communication), _Side(card=None, pre=None, values={}), on_host=_is_host(config)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Predicted or observed."""

    card: int | None
    pre: int | None  # free before loading
    values: Mapping[str, int | None]
    communication: int | None = None  # taken before `pre` is read; None: not known, then it is within `before`
    rest: str = _LABELS["unexplained"]  # what the rest is called
    last: str = _LABELS["slack"]  # what the last bar is called

    def step(self, term: str, present: list[str]) -> int | None:
        if term == "before":
            gone = _less(self.card, self.pre)
            return gone if self.communication is None else _less(gone, self.communication)
        if term == "communication":
            return self.communication
        if term == "unexplained" and term not in self.values:
            return _rest(self.pre, self.values, present)
        return self.values.get(term)


def _predicted(budget: MemoryBudget | None, card: int | None, communication: int | None) -> _Side:
    """`communication`: the GPU table's. With the free memory of a log it is not of this start: where it is more than
    all that is gone of the card (one rank of four, started alone), this start took less; how much is not predicted.
    """
    pre = None if budget is None else budget.free.pre.point
    gone = _less(card, pre)
    if gone is not None and communication is not None and communication > gone:
        communication = None
    return _Side(card=card, pre=pre, values={} if budget is None else _points(budget), communication=communication)


def _table_communication(config: RunConfig) -> Communication | None:
    try:
        return expected_communication(config)
    except SpecbenchError:
        return None


def _observed(ledger: Ledger) -> _Side:
    """What a ledger tells, with its rest up to the last pool, and what was left when that stood; where not all pools
    stood, what is left at last. The ledger's own rest has also what went after the pools, and is another figure."""
    sizes = {term: ledger.of(term) for term in (*_POOLS, *_OTHER_POOLS, "graphs")}
    values: dict[str, int | None] = {term: None if size is None else size.bytes for term, size in sizes.items()}
    before, used, left = ledger.of("before"), ledger.of("communication"), ledger.of("left")
    slack = ledger.slack if ledger.slack is not None else left
    values["slack"] = None if slack is None else slack.bytes
    gone = sum(size.bytes for size in (before, used) if size is not None)
    pools = sum(value for term, value in values.items() if value is not None and term not in ("graphs", "slack"))
    whole = slack is not None or ledger.rest.size is not None
    values["unexplained"] = ledger.total.bytes - gone - pools - (values["slack"] or 0) if whole else None
    return _Side(
        card=ledger.total.bytes if ledger.total_of == "card" else None,
        pre=ledger.total.bytes - gone if before is not None or ledger.total_of != "card" else None,
        values=values,
        communication=None if used is None else used.bytes,
        rest=ledger.rest.label if ledger.slack is None else f"{ledger.rest.label}, until the pools stood",
        last=_LABELS["slack"] if ledger.slack is not None else "slack (observed: left free at last)",
    )


def _expected_communication(budget: MemoryBudget | None) -> int | None:
    """Of the GPU table: only a budget from the configuration has it, and only of a card that was measured."""
    found = None if budget is None else budget.free.communication
    return None if found is None else found.bytes.point


def _points(budget: MemoryBudget) -> dict[str, int | None]:
    return {term: one.bytes.point if one.bytes is not None else None for term, one in budget.terms.items()}


def _steps(
    predicted: _Side, observed: _Side, *, on_host: bool, rank: str = "", rank_words: str = ""
) -> tuple[Step, ...]:
    present: list[str] = [
        term for term in (*_POOLS, *_OTHER_POOLS) if predicted.values.get(term) or observed.values.get(term)
    ]
    order = [*present, "unexplained", "graphs", "slack"]
    if not on_host:
        order = ["before", "communication", *order]
    labels = dict[str, str](LABELS.items()) | _LABELS | {"unexplained": observed.rest, "slack": observed.last}
    return tuple(
        Step(
            term=term,
            label=labels[term] if term in _LABELS or term in _OTHER_POOLS else term,
            predicted=predicted.step(term, present),
            observed=observed.step(term, present),
            predicted_card=predicted.card,
            card=observed.card,
            on_host=on_host,
            rank=rank,
            rank_words=rank_words,
        )
        for term in order
    )


def card_bytes(config: RunConfig) -> int | None:
    """The total of the card whose budget it is, as the driver shows it; None: no card, or not in the GPU table."""
    return _total(config.gpu.emulate or config.gpu.name)


def _total(name: str) -> int | None:
    try:
        return load_gpu(name).card_bytes
    except SpecbenchError:
        return None


def _is_host(config: RunConfig) -> bool:
    try:
        return load_gpu(config.gpu.name).is_host
    except SpecbenchError:
        return False


def _less(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first - second


def _rest(pre: int | None, values: Mapping[str, int | None], present: list[str]) -> int | None:
    """What of the free memory before loading lies in no term; None when a term is unknown: a hole is not a zero."""
    used = [values.get(term) for term in (*present, "slack")]
    if pre is None or any(value is None for value in used):
        return None
    return pre - sum(value for value in used if value is not None)
