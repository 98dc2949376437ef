"""What happened, why, and what to change: one diagnosis of a record or of a bare log.

In: a record, or a log with what a person tells beside it. Out: a `Diagnosis`; what is found is said by `rules`.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..configuration.explain import shown
from ..engines.contract import PoolReport, ServerLog
from ..engines.sglang import logs
from ..engines.sglang.logs.servers import told_apart
from ..errors import ConfigError, LogFormatError, RecordError, SpecbenchError
from ..judging.judge import budgets, passed
from ..judging.reconcile import reconcile
from ..judging.sides import expected_communication, ranks_of, sides
from ..lifecycle.ending import STOPPED_ANSWERING
from ..logclean import on_one_line
from ..logsources import Again, from_the_beginning
from ..logtext import Pieces
from ..paths import resolve, short_names
from ..reading.communication import inits_by_nvml
from ..reading.freeread import MeasuredOffsets, read_free
from ..reading.outcome import outcome_of, tally
from ..reading.pools import report
from ..reading.rank_gpus import cards, in_use_before
from ..records.caveats import marks, on_cpu
from ..records.folders import has_record
from ..records.listing import run_folders
from ..records.record import RunRecord
from ..records.types import MetricSample, RequestTrace
from ..terms import Basis, Origin, Status
from ..units import counted
from .bare_log import status_of, under_way
from .case import Case
from .finding import OWN_WORDS
from .fromlog import config_of_log
from .ledgers import of_log as ledgers_of_log
from .ledgers import of_record as ledgers_of_record
from .own_figures import own_figures
from .own_reading import own_start
from .own_start import OwnStart
from .refusing import folder_refusal, refusal
from .rules import findings
from .serving import serving
from .shared_log import again, marked_as_one, of_shared, refuse_shared
from .told import Told, contradictions, with_arguments
from .types import Diagnosis, Emulated


def of_path(path: str | Path, *, told: Told | None = None) -> Diagnosis:
    """A record's folder, a log file, or "-" for standard input. `told`: beside a bare log; a record knows itself."""
    if str(path) == "-":
        with again(sys.stdin.buffer) as log:
            return _of_file(log, "standard input", told)
    found = resolve(path, kind="record or log")
    if found.is_dir():
        _refuse_several(found)
        if told not in (None, Told()):
            raise ConfigError(
                f"{found}: a record, which knows its model, card, version and arguments.\n"
                "Leave --model, --gpu, --engine-version, --launch and --server out, or give the log: "
                f"{found / 'server.log'}."
            )
    return of_record(RunRecord.open(found)) if found.is_dir() else _of_file(found, on_one_line(found.name), told)


def _of_file(log: Again | Pieces, label: str, told: Told | None) -> Diagnosis:
    """Of one server's log; of a log that several servers wrote, one of them (see `shared_log`)."""
    asked = None if told is None else told.server
    with told_apart(log) as apart:
        one = of_shared(apart, label, asked, lambda share, name: of_log(share, name=name, told=told))
    if one is not None:
        return one
    whole = log if isinstance(log, Pieces) else from_the_beginning(log)
    return marked_as_one(of_log(whole, name=None if isinstance(log, Path) else label, told=told), apart)


def of_paths(paths: Sequence[str | Path], *, told: Told | None = None) -> Diagnosis:
    """One path as `of_path` takes it; or several logs, of one server's ranks or nodes, in any order.

    RecordError (two lines) for a folder among several.
    """
    if len(paths) == 1:
        return of_path(paths[0], told=told)
    found = list(dict.fromkeys(None if str(path) == "-" else resolve(path, kind="log") for path in paths))
    for file in found:
        if file is not None and file.is_dir():
            raise RecordError(
                f"{file}: a folder among several logs; several are read together only as files of one server.\n"
                f"Give a record alone, or the log in it: specbench diagnose {shlex.quote(str(file))}"
            )
    if len(found) == 1:
        return of_path(found[0] or "-", told=told)
    if told is not None and told.server is not None:
        raise ConfigError(
            f"--server: got {shown(told.server)} for {len(found)} logs, which are read as those of one server.\n"
            "Give the one log that several servers wrote, or leave it out."
        )
    for file in found:
        if file is not None:
            refuse_shared(file)
    names = short_names([file for file in found if file is not None])
    return of_logs(
        {"standard input" if file is None else names[file]: file or sys.stdin.buffer for file in found}, told=told
    )


def _refuse_several(folder: Path) -> None:
    """RecordError (two lines) for a folder of records: which one is meant is not told."""
    if has_record(folder):
        return
    inside = [run for run in run_folders(folder) if has_record(run)]
    if inside:
        raise RecordError(
            f"{folder}: no record itself; it holds {counted(len(inside), 'record')}, the first is {inside[0].name}.\n"
            f"Name one of them: specbench diagnose {shlex.quote(str(inside[0]))}"
        )
    if (said := folder_refusal(folder)) is not None:
        raise RecordError(said)


def of_record(record: RunRecord) -> Diagnosis:
    """The diagnosis of a record. Everything is read and predicted anew."""
    log = logs.read(record.log_path, name=record.log_path.name, version=record.config.engine.version)
    pools = report(log, record.server_info())
    read = read_free(record, log, pools)
    sampled = cards(record, ranks_of(pools))
    case = _case(
        record.config,
        log,
        pools,
        record.status.status,
        record.requests(),
        read=read,
        bare=False,
        stopped_answering=record.status.reason.startswith(STOPPED_ANSWERING),
        metrics=_metrics(record),
        in_use_before=in_use_before(sampled),
    )
    measured = record.origin == "measured" and bool(case.budgets.get("measured"))
    unread = isinstance(read, str) and measured and not on_cpu(record.config)
    found = _diagnosis(
        case,
        name=record.name,
        source=str(record.folder),
        origin=record.origin,
        marked=marks(record),
        assumptions=(f"the free memory that the engine read is not known from NVML: {read}",) if unread else (),
    )
    accounts = ledgers_of_record(case, sampled)
    seen = sides(
        case.budget,
        pools,
        log,
        record.server_info(),
        sampled,
        communication=expected_communication(record.config) if "config" in case.budgets else None,
        inits=inits_by_nvml(record, log, sampled),
        ledgers=accounts,
    )
    return dataclasses.replace(
        found,
        sides=seen,
        emulation=_emulated(case, record.env.get("emulation")),
        ledgers=accounts,
    )


def _emulated(case: Case, recorded: object) -> Emulated | None:
    """`recorded`: the emulation that env.json names. Without it the passed fraction is the log's."""
    budget = case.budgets.get("config")
    if case.config is None or budget is None or budget.emulation is None:
        return None
    told = recorded.get("passed") if isinstance(recorded, Mapping) else None
    return Emulated(
        card=budget.emulation.card,
        host=budget.emulation.host,
        asked=budget.emulation.asked,
        asked_source=budget.emulation.asked_source,
        passed=told if isinstance(told, float) else passed(case.config, case.pools),
    )


def _metrics(record: RunRecord) -> tuple[MetricSample, ...]:
    try:
        return record.metric_samples()
    except RecordError:
        return ()


def of_log(source: Path | Iterable[bytes], *, name: str | None = None, told: Told | None = None) -> Diagnosis:
    """The diagnosis of a bare log: a path, or an open binary stream. LogFormatError when nothing in it is known.

    `told`: what the user knows and the log does not say.
    """
    path = source if isinstance(source, Path) else None
    label = on_one_line(name or (path.name if path else "log"))
    log = logs.read(source, name=label)
    return _of_bare(
        log, label, on_one_line(str(path or label)), told or Told(), size=path.stat().st_size if path else None
    )


def of_logs(sources: Mapping[str, Path | BinaryIO], *, told: Told | None = None) -> Diagnosis:
    """The diagnosis of the logs of one server's ranks or nodes, by the names that lines are cited under."""
    label = " + ".join(sorted(sources))
    return _of_bare(logs.read_several(sources, label), label, label, told or Told())


def _of_bare(log: ServerLog, label: str, source: str, told: Told, size: int | None = None) -> Diagnosis:
    if not logs.recognised(log):
        raise LogFormatError(refusal(label, log, size))
    if log.two_servers:
        raise LogFormatError(f"{log.two_servers}.\nGive the log of one alone; several are read as one server.")
    against = tuple(contradictions(log, told))
    log = with_arguments(log, told)
    pools = report(log)
    read = config_of_log(log, pools, label, told)
    own = own_start(log, pools, read.arguments) if read.arguments is not None else None
    known = own if isinstance(own, OwnStart) else None
    case = _case(read.config, log, pools, status_of(log), (), bare=True, card_known=read.card_known, own=known)
    assumptions = (*log.assumptions, *log.version_from, *read.assumptions, *against)
    if known is not None:
        assumptions += (f"remedies are computed {OWN_WORDS}",)
    elif own is not None:
        assumptions += (f"nothing is computed from this log's own figures either: {own}",)
    found = _diagnosis(case, name=label, source=source, origin="recorded", assumptions=assumptions)
    return dataclasses.replace(found, ledgers=ledgers_of_log(case, told), questions=read.questions)


def _case(
    config: RunConfig | None,
    log: ServerLog,
    pools: PoolReport,
    status: Status | None,
    requests: Sequence[RequestTrace],
    *,
    bare: bool,
    stopped_answering: bool = False,
    card_known: bool = True,
    read: MeasuredOffsets | str | None = None,
    metrics: Sequence[MetricSample] = (),
    in_use_before: Mapping[str, int] | None = None,
    own: OwnStart | None = None,
) -> Case:
    found: Mapping[Basis, MemoryBudget] = {}
    unsized = None
    if config is not None:
        # A configuration that cannot be sized (a model or an algorithm we do not know) still has a log to read.
        try:
            found = budgets(config, pools, read if isinstance(read, MeasuredOffsets) else None)
        except SpecbenchError as error:
            unsized = error.clause
    return Case(
        config=config,
        log=log,
        pools=pools,
        budgets=found,
        status=status,
        requests=requests,
        bare=bare,
        stopped_answering=stopped_answering,
        card_known=card_known,
        unsized=unsized,
        metrics=metrics,
        in_use_before=in_use_before or {},
        own=own,
    )


def _diagnosis(
    case: Case,
    *,
    name: str,
    source: str,
    origin: Origin,
    assumptions: tuple[str, ...] = (),
    marked: tuple[str, ...] = (),
) -> Diagnosis:
    found = findings(case)
    seen = serving(case.log)
    sent, answered = (None, None) if case.bare else tally(case.requests)
    at_once = case.at_once
    none_answered = bool(sent and not answered)
    return Diagnosis(
        name=name,
        source=source,
        origin=origin,
        engine=case.log.engine,
        version=case.log.version if case.bare or case.config is None else case.config.engine.version,
        version_range=case.log.version_range,
        status=case.status,
        outcome=outcome_of(
            case.status,
            asked=case.wanted_requests,
            resolved=case.pools.running_requests,
            sent=sent,
            answered=under_way(case.log) if case.bare else answered,
        ),
        config=case.config,
        requested={
            **case.pools.requested,
            "running_requests": case.asked_requests,
            "mem_fraction_static": case.asked_fraction,
        },
        sent=sent,
        answered=answered,
        served=0 if none_answered else (None if at_once is None else at_once.requests),
        served_source=None if none_answered or at_once is None else at_once.source,
        serving=seen,
        log=case.log,
        pools=case.pools,
        budgets=case.budgets,
        reconciliation=reconcile(case.budgets, case.pools),
        findings=found,
        unread=case.log.unread,
        own_figures=own_figures(case.log, case.pools),
        assumptions=assumptions if case.unsized is None else (*assumptions, f"memory is not predicted: {case.unsized}"),
        marks=marked,
    )
