"""Writing one record: into a partial folder beside the target, forced to disk, renamed at the end; never edited."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from ..configuration.config import RunConfig
from ..errors import RecordError
from ..params import dump_run
from .folder_lock import hold
from .folders import PARTIAL, make_folder
from .record import RunRecord
from .redaction import Redaction
from .size import fit_log, fit_requests
from .types import (
    GPU_COLUMNS,
    LOG_COLUMNS,
    METRIC_COLUMNS,
    SCHEMA,
    GpuSample,
    LogArrival,
    MetricSample,
    Probe,
    RequestTrace,
    RunStatus,
)

#: A longer table is stored compressed.
_COMPRESS_TABLE_FROM = 200_000


class RecordWriter:
    """Writes one record. `finish` makes it visible; leaving the `with` block without it removes what was written."""

    def __init__(self, target: str | Path, redaction: Redaction | None = None) -> None:
        """`target` is the record's final folder, e.g. `<run folder>/record`. RecordError when it exists, or cannot.

        `redaction` takes the key of an attached server out of what that server, and we of it, said. The configuration
        is what somebody else wrote, and `text` is told without a key already.
        """
        self._clean: Callable[[Any], Any] = _as_it_is if redaction is None else redaction.values
        self.target = Path(target)
        if os.path.lexists(self.target):
            raise RecordError(
                f"{self.target}: is there already.\nA record is written once: choose another folder (--out)."
            )
        self.folder = self.target.with_name(f"{self.target.name}{PARTIAL}{os.getpid()}")
        make_folder(self.folder)
        self._lock: int | None = hold(self.folder)  # as long as this process lives, the record is not given up
        self._done = False
        self._left_out: list[str] = []  # for the record's notes

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._done:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._release()

    @property
    def log_path(self) -> Path:
        """Where the server's output goes while it runs."""
        return self.folder / "server.log"

    def config(self, config: RunConfig) -> None:
        self._text("config.yaml", dump_run(config))

    def command(self, argv: Iterable[str]) -> None:
        self._json("command.json", self._clean(list(argv)))

    def env(self, env: Mapping[str, Any]) -> None:
        self._json("env.json", {"schema": SCHEMA, **self._clean(dict(env))})

    def requests(self, traces: Iterable[RequestTrace]) -> None:
        content, large, note = fit_requests([self._cleaned(trace) for trace in traces])
        self.text("requests.jsonl", content, compress=large)
        self._left_out += [note] if note else []

    def probes(self, probes: Iterable[Probe]) -> None:
        self._text("probes.jsonl", "".join(f"{probe.model_dump_json()}\n" for probe in probes))

    def gpu_samples(self, samples: Iterable[GpuSample]) -> None:
        self._table("gpu.csv", GPU_COLUMNS, samples)

    def log_arrivals(self, arrivals: Iterable[LogArrival]) -> None:
        self._table("log_times.csv", LOG_COLUMNS, arrivals, compress=True)

    def metric_samples(self, samples: Iterable[MetricSample]) -> None:
        self._table("metrics.csv", METRIC_COLUMNS, samples, compress=True)

    def text(self, name: str, content: str, *, compress: bool = False) -> None:
        """A file as the engine gave it: server_info.json, metrics.txt, …"""
        if compress:
            (self.folder / f"{name}.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
        else:
            self._text(name, content)

    def finish(self, status: RunStatus) -> RunRecord:
        """Writes the status, forces everything to disk and renames the folder to its final name."""
        log = fit_log(self.log_path)
        left_out = (*self._left_out, *([log] if log else []))
        if left_out:
            status = status.model_copy(update={"notes": (*status.notes, *left_out)})
        told = {"reason": status.reason, "notes": status.notes, "flushes": status.flushes}
        status = status.model_copy(update={**self._clean(told), "notes": tuple(self._clean(status.notes))})
        self._text("status.json", status.model_dump_json(by_alias=True, indent=1) + "\n")
        for file in self.folder.iterdir():
            _fsync(file)
        _fsync(self.folder)
        try:
            self.folder.rename(self.target)
        except OSError as error:
            raise RecordError(
                f"{self.target}: cannot be put in place ({error}).\nAnother run wrote it first?"
            ) from None
        self._done = True
        self._release()
        _fsync(self.target.parent)
        return RunRecord.open(self.target)

    def _cleaned(self, trace: RequestTrace) -> RequestTrace:
        told = {"error": trace.error, "finish_reason": trace.finish_reason, "meta_info": trace.meta_info}
        return trace.model_copy(update=self._clean(told))

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _table(
        self,
        name: str,
        columns: Sequence[str],
        rows: Iterable[GpuSample | LogArrival | MetricSample],
        *,
        compress: bool = False,
    ) -> None:
        """CSV with a header; an unknown figure is empty. A large one is stored compressed."""
        text = io.StringIO(newline="")
        table = csv.writer(text)
        table.writerow(columns)
        table.writerows(["" if value is None else value for value in astuple(row)] for row in rows)
        content = text.getvalue()
        self.text(name, content, compress=compress or len(content) >= _COMPRESS_TABLE_FROM)

    def _json(self, name: str, data: Any) -> None:
        self._text(name, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    def _text(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content, encoding="utf-8")


def _as_it_is(value: Any) -> Any:
    return value


def sha256_text(text: str) -> str:
    return sha256_bytes(text.encode())


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
