"""Records and everything computed from them. In: a folder of runs. Out: a `Study` per record, a `Missing` per failure.

Nothing computed is ever stored: a better log reader or solver improves old runs. A run folder without a record is not
skipped: its executed notebook tells why there is none.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..configuration.config import RunConfig
from ..diagnose import diagnosis
from ..diagnose.against import with_siblings
from ..diagnose.types import Diagnosis
from ..errors import RecordError, SpecbenchError
from ..host.gpu_use import regrouped
from ..paths import resolve
from ..reading.latency import LatencyTable
from ..reading.latency import table as latency_table
from ..records.folders import PARTIAL, RECORD, has_record
from ..records.listing import Skipped, read, run_folders
from ..records.provenance import provenance
from ..records.record import RunRecord
from ..records.types import GpuSample, RequestTrace
from ..terms import Limit
from .seen import Seen

RUN_NOTEBOOK = "2_run.ipynb"
#: Why a run left no record, when its notebook does not say.
ERROR = "error.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Seen):
    """One record, diagnosed."""

    name: str  # of the folder: unique in its campaign
    folder: Path
    record: RunRecord
    diagnosis: Diagnosis
    latency: LatencyTable

    @property
    def config(self) -> RunConfig:
        return self.record.config

    @property
    def asked_limits(self) -> Mapping[Limit, int | None]:
        """As the configuration gives them; None: not given."""
        memory = self.config.memory
        return {
            "running_requests": memory.max_running_requests,
            "state_slots": memory.max_mamba_cache_size,
            "kv_tokens": memory.max_total_tokens,
            "context_len": memory.context_length,
        }

    @property
    def asked_is_told(self) -> bool:
        """Whether a limit that is None was left to the engine, rather than not known."""
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noted while it ran."""
        return tuple(map(regrouped, self.record.status.notes))

    @property
    def provenance(self) -> tuple[str, ...]:
        """Where the figures come from, in parts."""
        return provenance(self.record)

    @property
    def requests(self) -> tuple[RequestTrace, ...]:
        return self.record.requests()

    @property
    def gpu_samples(self) -> tuple[GpuSample, ...]:
        return self.record.gpu_samples()

    @property
    def no_requests(self) -> str:
        """Why there are none, where there are none."""
        if self.outcome in ("refused", "timed_out"):
            why = "The server was never ready."
        else:
            why = "The workload asks for none, or the replayed recording is load-only."
        return f"No request was sent in this run, so there are no times. {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A run folder without a finished record."""

    name: str
    folder: Path
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The runs below a folder, in the order of their names or of the campaign."""

    folder: Path
    entries: tuple[Study | Missing, ...]
    waiting: tuple[str, ...] = ()  # configurations of the campaign that are still to run, or to run again
    skipped: Mapping[str, Skipped] = field(default_factory=dict)  # configurations that were not started, by prediction

    @property
    def studies(self) -> tuple[Study, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Study))

    @property
    def missing(self) -> tuple[Missing, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Missing))


def study(path: str | Path) -> Study:
    """A record folder, or a run folder that holds one; in a campaign its acceptance is judged against the others of it.

    RecordError when there is none, or when it is damaged.
    """
    alone = _alone(path)
    return _judged(alone, _siblings(alone))


def _judged(study: Study, others: Iterable[RunRecord]) -> Study:
    """Whether its speculation pays, where one of the others ran without; a damaged one tells nothing."""
    try:
        return dataclasses.replace(study, diagnosis=with_siblings(study.diagnosis, others))
    except RecordError:
        return study


def _alone(path: str | Path) -> Study:
    asked = resolve(path, kind="record")
    record = RunRecord.open(asked)
    folder = asked.parent if asked.name == RECORD else asked
    try:
        found = diagnosis.of_record(record)
        latency = latency_table(record)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # Files of a right form may hold values that no server gives; one such record must not cost a whole report.
        raise RecordError(
            f"{record.folder}: what it holds cannot be evaluated ({type(error).__name__}: {str(error)[:200]}).\n"
            "The record is damaged; run the configuration again."
        ) from error
    return Study(name=folder.name, folder=folder, record=record, diagnosis=found, latency=latency)


def collect(path: str | Path) -> Collection:
    """Every run of a folder, in the campaign's order when it has one. ConfigError: no such folder."""
    root = resolve(path, kind="records")
    entries: list[Study | Missing] = []
    for folder in run_folders(root):
        try:
            entries.append(_alone(folder))
        except SpecbenchError as error:  # of a damaged record also what its values are refused with
            if is_run(folder):
                entries.append(Missing(name=folder.name, folder=folder, error=why_missing(folder) or str(error)))
    known = read(root)
    if not entries and (known is None or not known.skipped):
        raise RecordError(f"{root}: no record in it.\nExpected a folder of runs, as 'specbench run' leaves it.")
    if known is None:
        return Collection(folder=root, entries=tuple(entries))
    records = [entry.record for entry in entries if isinstance(entry, Study)]
    entries = [_judged(entry, records) if isinstance(entry, Study) else entry for entry in entries]
    return Collection(folder=root, entries=tuple(entries), waiting=known.waiting, skipped=known.skipped)


def is_run(folder: Path) -> bool:
    """Whether a run left something here: a record (finished or not), or at least its notebook."""
    return (
        has_record(folder)
        or any((folder / name).is_file() for name in (RUN_NOTEBOOK, ERROR))
        or any(folder.glob(f"{RECORD}{PARTIAL}*"))
    )


def siblings(study: Seen) -> tuple[RunRecord, ...]:
    """The other records of the campaign that a run belongs to. Empty for what lies outside a campaign."""
    return tuple(_siblings(study))


def _siblings(study: Seen) -> Iterator[RunRecord]:
    """Each is opened only when it is asked for."""
    if study.folder is None or read(study.folder.parent) is None:
        return
    for folder in run_folders(study.folder.parent):
        if folder != study.folder and (record := _record(folder)) is not None:
            yield record


def why_missing(folder: Path) -> str | None:
    """Why a run folder has no record: as the batch noted, else the run notebook's error. None: nothing tells."""
    if (folder / ERROR).is_file():
        return (folder / ERROR).read_text("utf-8", "replace")
    return _notebook_error(folder)


def _notebook_error(folder: Path) -> str | None:
    path = folder / RUN_NOTEBOOK
    if not path.is_file():
        return None
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{path.name} is no readable notebook"
    for cell in cells:
        for output in cell.get("outputs", ()):
            if output.get("output_type") == "error":
                return f"{output.get('ename')}: {output.get('evalue')}"
    return None


def _record(folder: Path) -> RunRecord | None:
    try:
        return RunRecord.open(folder)
    except SpecbenchError:
        return None
