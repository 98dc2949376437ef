"""Whether speculation pays, judged against the same server without it: what `--against` and a campaign give.

In: a diagnosis and the speed of a server without speculation. Out: the diagnosis with what follows. The user waits for
tokens, so the time per output token decides, at the same number of clients (records) or of running requests (logs).
Acceptance breaks even where a round takes as long as the accepted tokens would without speculation:
(time per token × acceptance length) with speculation / time per token without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..configuration.config import RunConfig
from ..engines.contract import Line
from ..errors import ConfigError
from ..records.folders import has_record
from ..records.record import RunRecord
from ..terms import Basis
from ..units import counted
from . import speed
from .finding import Finding, Remedy, by_cost
from .speed import Speed
from .trying import Change, Goal, Situation, tried
from .types import Diagnosis

LOW: Final = "acceptance-too-low"
#: Times of two runs differ by less than this without a reason.
_TOLERANCE = 0.05
#: Of logs only lines whose requests are about as long compare: attention takes longer with the context.
_AS_LONG = 2.0
_SHOWN = 3
_SPECULATIVE = ("draft_model_path", "num_draft_tokens", "num_steps", "eagle_topk")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """One load that both servers had."""

    words: str  # at 8 clients
    at_once: int  # clients, or running requests
    with_s: float  # seconds per output token
    without_s: float
    rests_on: str  # 8 and 8 requests
    weight: int  # the fewer of the two
    accept_length: float | None

    @property
    def ratio(self) -> float:
        return self.with_s / self.without_s

    @property
    def break_even(self) -> float | None:
        """Acceptance length above which this load is faster with speculation."""
        return None if self.accept_length is None else self.ratio * self.accept_length


def with_other(found: Diagnosis, path: str | Path) -> Diagnosis:
    """Judged against a record or a log that the user names.

    ConfigError (two lines): it speculates itself, is of another model or TP size, or there is nothing to judge.
    """
    own, other = _own(found), speed.of_path(path)
    if own.algorithm is None:
        raise ConfigError(
            f"{found.name}: this server does not speculate, so there is no acceptance to judge.\n"
            "Leave --against out, or give the record or the log of a server that speculates."
        )
    if other.algorithm is not None:
        raise ConfigError(
            f"--against {path}: that server speculates itself ({other.algorithm}).\n"
            "Expected a record or a log of the same server without speculation."
        )
    if not speed.same_model(own.model, other.model) or _differ(own.tp_size, other.tp_size):
        raise ConfigError(
            f"--against {path}: {other.model}, TP {other.tp_size}; this server: {own.model}, TP {own.tp_size}.\n"
            "Expected a record or a log of the same model on as many GPUs, without speculation."
        )
    return _judged(found, own, other)


def with_siblings(found: Diagnosis, others: Iterable[RunRecord]) -> Diagnosis:
    """Judged against the record without speculation, among those of a campaign, that had most of the same loads.
    The diagnosis as it is, when there is none."""
    if found.config is None or found.config.speculative.algorithm.lower() == "none" or not found.answered:
        return found
    config = found.config
    plain = [
        record
        for record in others
        if record.config.speculative.algorithm.lower() == "none"
        and (record.config.model, record.config.gpu, record.config.parallel)
        == (config.model, config.gpu, config.parallel)
        and record.config.engine.version == config.engine.version
        and record.status.status == "served"
    ]
    best = max(plain, key=lambda record: _in_common(config, record.config), default=None)
    if best is None or not _in_common(config, best.config):
        return found
    own, other = _own(found), speed.of_record(best)
    if not own.steps.keys() & other.steps.keys() or speed.differences(own, other):
        return found
    return _judged(found, own, other)


def _in_common(one: RunConfig, other: RunConfig) -> int:
    """Steps of the workload that both have."""
    clients = set(one.workload.concurrency) & set(other.workload.concurrency)
    return len(clients) * len(set(one.workload.input_tokens) & set(other.workload.input_tokens))


def _own(found: Diagnosis) -> Speed:
    folder = Path(found.source)
    if folder.is_dir() and has_record(folder):
        return speed.of_record(RunRecord.open(folder), found.log)
    return speed.of_log(found.log)


def _differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one != other


def _judged(found: Diagnosis, own: Speed, other: Speed) -> Diagnosis:
    loads = list(_loads(own, other))
    if not loads:
        said = (
            f"acceptance is not judged against {other.name}: no number of clients or of running requests, at about "
            "the same length, is in both"
        )
        return dataclasses.replace(found, assumptions=(*found.assumptions, said))
    rest = [finding for finding in found.findings if finding.id != LOW]
    low = _too_low(found, own, other, loads)
    return dataclasses.replace(found, findings=by_cost([*rest, *([] if low is None else [low])]))


def _loads(own: Speed, other: Speed) -> Iterator[_Load]:
    """Steps of the workload that both had; only where there are none, numbers of running requests."""
    common = sorted(own.steps.keys() & other.steps.keys())
    lengths = {tokens for _, tokens in common}
    for clients, tokens in common:
        mine, theirs = own.steps[clients, tokens], other.steps[clients, tokens]
        if mine.tpot_s is None or theirs.tpot_s is None:
            continue
        yield _Load(
            at_once=clients,
            words=f"at {counted(clients, 'client')}" + (f" of {tokens:,} input tokens" if len(lengths) > 1 else ""),
            with_s=mine.tpot_s.p50,
            without_s=theirs.tpot_s.p50,
            rests_on=f"{mine.tpot_s.count} and {theirs.tpot_s.count} requests",
            weight=min(mine.tpot_s.count, theirs.tpot_s.count),
            accept_length=mine.accept_length_overall,
        )
    if common:
        return
    for running in sorted(own.paces.keys() & other.paces.keys()):
        pace, plain = own.paces[running], other.paces[running]
        if pace.tokens_each and plain.tokens_each:
            shorter, longer = sorted((pace.tokens_each, plain.tokens_each))
            if longer > _AS_LONG * shorter:
                continue
        yield _Load(
            at_once=running,
            words=f"at {counted(running, 'running request')}",
            with_s=pace.token_s,
            without_s=plain.token_s,
            rests_on=f"{pace.lines} and {plain.lines} decode lines",
            weight=min(pace.lines, plain.lines),
            accept_length=pace.accept_length,
        )


def _too_low(found: Diagnosis, own: Speed, other: Speed, loads: list[_Load]) -> Finding | None:
    slower = sorted((load for load in loads if load.ratio > 1 + _TOLERANCE), key=lambda load: -load.ratio)
    if not slower:
        return None
    shown = [*slower[:_SHOWN], *[load for load in loads if load not in slower][:_SHOWN]]
    times = ", ".join(
        f"{load.words} {load.with_s * 1e3:,.1f} against {load.without_s * 1e3:,.1f} ms ({load.rests_on})"
        for load in shown
    )
    slow = f"an output token takes longer than in {other.name} without it"
    said = [f"Speculation with {own.algorithm} does not pay: {slow}, {times}; medians."]
    # Where fewer ran at once than there were clients, a round is one of a smaller batch: no fair break-even.
    limit = found.pools.running_requests
    fair = [load for load in slower if load.accept_length is not None and (limit is None or load.at_once <= limit)]
    known = max(fair, key=lambda load: (load.weight, load.at_once), default=None)
    if known is not None and known.break_even is not None and known.accept_length is not None:
        round_s = known.with_s * known.accept_length
        said.append(
            f"{known.words[0].upper()}{known.words[1:]} a round takes {round_s * 1e3:,.1f} ms and gives "
            f"{known.accept_length:.2f} tokens; it breaks even at {known.break_even:.2f}."
        )
    differ = speed.differences(own, other)
    if own.version != other.version and None not in (own.version, other.version):
        differ.append(f"sglang {own.version} against {other.version}")
    if differ:
        said.append(f"The two also differ in {', '.join(differ)}.")
    if own.random_weights:
        said.append(
            "The weights are random (--load-format dummy), so a draft is accepted about never, by construction: "
            "this says nothing of a trained one but what it has to reach."
        )
    off = None if own.random_weights else _speculation_off(found, other)
    worst = slower[0]
    return Finding(
        id=LOW,
        cause=" ".join(said),
        severity="notice" if own.random_weights else "costly",
        evidence=_evidence(found),
        remedies=() if off is None else (off,),
        lost=None if own.random_weights else 1 - 1 / worst.ratio,
    )


def _evidence(found: Diagnosis) -> tuple[Line, ...]:
    """The first line of the server that says what it accepts."""
    decode = found.log.decode
    rows = zip(decode.get("line", ()), decode.get("accept_length", ()), strict=False)
    number = next((line for line, accepted in rows if accepted is not None), None)
    text = None if number is None else found.log.evidence.get(number)
    return () if number is None or text is None else (found.log.at(number, text),)


def _speculation_off(found: Diagnosis, other: Speed) -> Remedy | None:
    """Without speculation, when the prediction says that as many requests run then."""
    budget = found.budgets.get("measured") or found.budgets.get("config")
    running = found.pools.running_requests
    if found.config is None or budget is None or running is None:
        return None
    basis: Basis = budget.basis
    situation = Situation(
        config=found.config,
        budget=budget,
        free=None,
        wanted_requests=running,
        passed_fraction=None,
        graphs_bytes=0,
        fraction_may_be_default=basis == "measured",
    )
    section = found.config.speculative
    unset = {f"speculative.{name}": None for name in _SPECULATIVE if getattr(section, name) is not None}
    note = f"no speculation (leave its flags out): {other.name} shows the speed"
    change = Change({"speculative.algorithm": "none", **unset}, note)
    return tried(situation, change, Goal(requests=running, workload=False))
