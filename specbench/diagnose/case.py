"""Everything a rule may look at, gathered once: configuration, log, pools, budgets, requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import Line, PoolReport, ServerLog
from ..engines.sglang.per_worker import requests_of_worker
from ..engines.sglang.sizing import rule_version
from ..errors import ConfigError
from ..judging.judge import passed
from ..records.types import MetricSample, RequestTrace
from ..terms import Basis, Limit, Status
from ..versions import version_key
from .finding import Remedy
from .own_remedies import own_remedies
from .own_start import OwnStart
from .remedies import at_most, longer_requests, remedies, shortage, working
from .remedies_pools import for_context, give_slots_back, less_memory, smaller_draft_kv, smaller_scratch
from .running import AtOnce, most_at_once
from .trying import Change, Goal, Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run or log, as the rules see it."""

    config: RunConfig | None  # None: too little is known to predict
    log: ServerLog
    pools: PoolReport
    budgets: Mapping[Basis, MemoryBudget]
    status: Status | None
    requests: Sequence[RequestTrace]  # empty for a bare log
    stopped_answering: bool  # of a record: its processes went on, and were ended for that
    bare: bool  # a log without a record: `config` was read from it
    card_known: bool = True  # recorded or told; False: guessed by the free memory
    in_use_before: Mapping[str, int] = field(default_factory=dict)  # rank -> bytes on its card before the start (NVML)
    unsized: str | None = None  # why there is no budget of `config`
    own: OwnStart | None = None  # a bare log of a model that is not known: the start by its own figures
    metrics: Sequence[MetricSample] = ()  # of the engine while it served; empty for a bare log
    #: Changes whose effect was predicted already (`trying.changed`).
    predicted: dict[str, tuple[RunConfig, MemoryBudget] | None] = field(default_factory=dict, compare=False)

    @property
    def budget(self) -> MemoryBudget | None:
        """The better founded budget."""
        return self.budgets.get("measured") or self.budgets.get("config")

    @property
    def free(self) -> FreeMemory | None:
        """Free memory of this very start; None: only the configuration tells."""
        measured = self.budgets.get("measured")
        return None if measured is None else measured.free

    @property
    def one_engine(self) -> bool:
        """Whether all requests go to one scheduler."""
        return self.config is None or self.config.parallel.dp_size == 1

    @property
    def at_once(self) -> AtOnce | None:
        """Most requests that ran at once, and who says so; None: nobody."""
        return most_at_once(self.log, self.metrics, self.requests if self.one_engine else ())

    @property
    def rules_version(self) -> str | None:
        """The release whose rules the server follows. None: not known."""
        told = self.log.version or self.log.version_range[0]
        try:
            if self.config is not None:
                return rule_version(self.config.engine)
            return told if told is not None and version_key(told) else None
        except ConfigError:
            return None

    @property
    def asked_requests(self) -> int | None:
        """Running requests that were asked for. None: not given.

        The engine prints its own default (48 with speculation) as if it had been asked; that is not asking.
        """
        if self.config is not None and not self.bare:
            return self.config.memory.max_running_requests
        if any(notice.kind == "requests_default_48" for notice in self.log.notices):
            return None
        asked = self.pools.requested.get("running_requests")
        return asked if isinstance(asked, int) else None

    @property
    def asked_fraction(self) -> float | None:
        """The static fraction as asked; None: not given. With `gpu.emulate` the engine tells the one it was passed,
        which is of the larger card; else it tells what it was asked.
        """
        if self.config is not None and self.config.gpu.emulate is not None:
            return self.config.memory.mem_fraction_static
        told = self.pools.requested.get("mem_fraction_static")
        return told if isinstance(told, float) else None

    @property
    def wanted_requests(self) -> int | None:
        """Asked of one data-parallel worker, the unit in which the engine resolves."""
        return self.asked_requests if self.config is None else requests_of_worker(self.config, self.asked_requests)

    def line(self, number: int | None) -> tuple[Line, ...]:
        """The line as evidence, when it is known."""
        text = self.log.evidence.get(number) if number is not None else None
        return (self.log.at(number, text),) if number is not None and text is not None else ()

    def limit(self, limit: Limit) -> int | None:
        """As predicted on the better basis."""
        predicted = self.budget.limits.get(limit) if self.budget else None
        return predicted.value.point if predicted and predicted.value else None

    def remedies(self, *, wanted: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which the prediction serves `wanted` requests (default: those asked for)."""
        target = wanted if wanted is not None else self.wanted_requests
        if self.own is not None and target is not None:
            return own_remedies(self.own, target)
        situation = None if target is None else self._situation(target)
        return () if situation is None else remedies(situation)

    def remedies_for_context(self, tokens: int, *, requests: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which the KV pool of one worker holds `tokens` at once, while `requests` run (default: the limit
        that the server resolved); at last a context that the pool can hold."""
        return self._others(requests, lambda situation: for_context(situation, tokens))

    def less_memory(self, size_bytes: int = 0, *, requests: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which at least `size_bytes` more per rank stay beside the pools than now, and in any case what
        graphs and a full prefill take, while `requests` run (default: resolved, else asked)."""
        return self._others(requests, lambda situation: less_memory(situation, size_bytes))

    def give_slots_back(self, *, requests: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which state slots that `requests` (default: resolved) cannot use become KV tokens."""
        return self._others(requests, give_slots_back)

    def smaller_scratch(self, *, requests: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which the speculative scratch of `requests` (default: resolved, else asked) is smaller than the KV
        pool that it serves."""
        return self._others(requests, smaller_scratch)

    def smaller_draft_kv(self, *, requests: int | None = None) -> tuple[Remedy, ...]:
        """Changes by which the draft's KV is smaller than the target's, while `requests` (default: resolved) run."""
        return self._others(requests, smaller_draft_kv)

    def _others(self, requests: int | None, of: Callable[[Situation], tuple[Remedy, ...]]) -> tuple[Remedy, ...]:
        """Nothing where neither is known how many are to run, nor what would happen."""
        situation = self._situation(requests or self.pools.running_requests or self.wanted_requests or 1)
        return () if situation is None else of(situation)

    def _situation(self, wanted: int) -> Situation | None:
        if self.config is None or self.budget is None:
            return None
        graphs = sum(pools.graphs.bytes for pools in self.pools.ranks if pools.graphs is not None)
        ranks = max(1, len({pools.rank for pools in self.pools.ranks}))
        return Situation(
            config=self.config,
            budget=self.budget,
            free=self.free,
            wanted_requests=wanted,
            passed_fraction=passed(self.config, self.pools),
            graphs_bytes=graphs // ranks,
            fraction_may_be_default=self.bare,
            predicted=self.predicted,
        )

    def fitting(self, input_tokens: int, output_tokens: int) -> tuple[Remedy, ...]:
        """Changes by which a request of that length is accepted."""
        situation = self._situation(self.pools.running_requests or 1)
        return () if situation is None else longer_requests(situation, input_tokens, output_tokens)

    def tried(self, ladder: Iterable[Change], goal: Goal) -> Remedy | None:
        """The first of ever larger changes that reaches the goal by the prediction."""
        situation = self._situation(goal.requests)
        return None if situation is None else next(working(situation, (tuple(ladder),), goal), None)

    def room_up_to(self, requests: int) -> Remedy | None:
        """The most requests at once, up to so many, that memory allows beyond the limit; None: no more than that."""
        limit = self.pools.running_requests
        situation = None if limit is None else self._situation(requests)
        return None if situation is None or limit is None else at_most(situation, limit + 1, requests)

    def why_no_more(self) -> str:
        """What keeps memory from one request more than the limit, as a sentence."""
        limit = self.pools.running_requests
        situation = None if limit is None else self._situation(limit + 1)
        return "not known." if situation is None else shortage(situation)

    def pool_lines(self) -> tuple[Line, ...]:
        """The state pool line and the first KV line of the first rank: what the engine got."""
        numbers = [pool.line for pool in self.log.state_pools[:1]] + [pool.line for pool in self.log.kv_pools[:1]]
        return tuple(line for number in numbers for line in self.line(number))

    def column(self, name: str) -> list[Any]:
        """A column of the decode lines."""
        return list(self.log.decode.get(name, ()))
