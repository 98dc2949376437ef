"""What a diagnosis is: everything that is known of one run or log, with its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import Line, PoolReport, ServerLog
from ..judging.ledger import Ledger
from ..judging.reconcile import Reconciliation
from ..judging.side import Sides
from ..terms import Basis, Limit, Origin, Outcome, Status
from .catalogue import FindingId
from .finding import Finding
from .own_figures import OwnFigure
from .told import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The decode lines in a few figures. Means are over lines, not over tokens: the log has no better weight."""

    decode_lines: int
    running_max: int | None
    queued_max: int | None
    token_usage_max: float | None  # share of the KV pool, 0 to 1
    state_usage_max: float | None
    accept_length_mean: float | None  # tokens per verify round, bonus token included; None: no speculation logged
    throughput_max: float | None  # tokens/s; None: not logged, or the highest line counts idle time
    idle_lines: int  # of the lines that are kept: their throughput counts time in which nothing ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """The two fractions of a run in which a larger card stood for a smaller one."""

    card: str  # the emulated one, in words: RTX PRO 6000
    host: str  # the card that is there: H200
    asked: float  # the fraction as on the emulated card
    asked_source: str  # given, or the engine's default for the emulated card
    passed: float | None  # the fraction that the server got; None: not recorded and not logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One of several servers that wrote a log."""

    name: str  # of its sources, as what stands around their lines calls them
    outcome: Outcome | None  # None: not looked at
    finding: FindingId | None = None  # what it failed of; None: it did not fail, or was not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that is known of one run or one log."""

    name: str
    source: str
    origin: Origin
    engine: str
    version: str | None
    version_range: tuple[str | None, str | None]
    status: Status | None  # None: a log that ends before it tells
    outcome: Outcome  # status, asked and resolved, and the requests in one word
    config: RunConfig | None  # None: a bare log of which too little is known
    requested: Mapping[str, Any]
    sent: int | None  # requests of the workload; None: a bare log
    answered: int | None  # of these; None: a bare log
    served: int | None  # most requests running at once, see `running`; 0: none was answered; None: nobody says
    served_source: str | None  # who says so, e.g. "decode line 88"; None: nobody, or none was answered
    serving: Serving | None  # what the decode lines say; None: there are none
    log: ServerLog
    pools: PoolReport
    budgets: Mapping[Basis, MemoryBudget]
    reconciliation: Reconciliation
    findings: tuple[Finding, ...]
    unread: tuple[Line, ...]
    assumptions: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()  # what a bare log does not tell, and how it is told
    own_figures: tuple[OwnFigure, ...] = ()  # bytes of a slot, a request, a token, from the log alone
    ledgers: tuple[Ledger, ...] = ()  # where each rank's memory went, the deciding rank first
    sides: Sides | None = None  # memory from four sides; None: a bare log
    servers: tuple[Server, ...] = ()  # that wrote the log, of which this is one; empty: it alone
    emulation: Emulated | None = None  # None: the card is itself, or its budget is not known
    marks: tuple[str, ...] = ()  # what has to stand beside every figure: see `caveats.marks`

    @property
    def resolved(self) -> dict[Limit, int | None]:
        """What the engine settled on, least over its ranks; None: not known."""
        return {
            "running_requests": self.pools.running_requests,
            "state_slots": self.pools.state_slots,
            "kv_tokens": self.pools.kv_tokens,
            "context_len": self.pools.context_len,
            "max_input_tokens": self.pools.max_input_tokens,
        }

    @property
    def main_finding(self) -> Finding | None:
        """The first cause that cost something."""
        return next((finding for finding in self.findings if finding.severity != "notice"), None)

    @property
    def shown_ledgers(self) -> tuple[Ledger, ...]:
        """The ledgers with that rank first whose failure ended the server; else the one that decides."""
        return tuple(sorted(self.ledgers, key=lambda ledger: ledger.rank != self._failed_rank))

    @property
    def why_shown(self) -> str:
        """Why the first of `shown_ledgers` is that one; "": it is the only one, or nothing chose it."""
        ledgers = self.shown_ledgers
        rank = ledgers[0].rank if len(ledgers) > 1 else ""
        if rank and rank == self._failed_rank:
            return f"shown: {rank}, whose failure is the first in the log"
        if rank and rank == self.pools.deciding_rank:
            return f"shown: {rank}; no rank has less free before loading, and the least decides the pools of all"
        return ""

    @property
    def _failed_rank(self) -> str | None:
        main = self.main_finding
        return self.log.failures[0].rank if self.log.failures and main and main.severity == "fatal" else None

    @property
    def beside(self) -> tuple[Finding, ...]:
        """Further causes of what the main one leaves open, each with a clause to be said after it: that it is capped,
        but not why even fewer ran."""
        main = self.main_finding
        if main is None or not main.id.startswith("capped-"):
            return ()
        return tuple(finding for finding in self.findings if finding is not main and finding.beside)

    @property
    def judged(self) -> bool:
        """Whether enough was read to say that nothing is wrong: the server became ready, or requests were served."""
        return self.status == "served" or bool(self.log.decode.get("line"))

    @property
    def version_text(self) -> str:
        """'0.5.16', or the range that the log's lines leave: '0.5.11 to 0.5.12', '0.5.22 or later'."""
        low, high = self.version_range
        if self.version is not None:
            return self.version
        if low is not None and high is not None:
            return low if low == high else f"{low} to {high}"
        if low is not None:
            return f"{low} or later"
        return f"up to {high}" if high is not None else "of unknown version"
