"""A record on disk: written once, atomically, and read back as values. Nothing is read out of a folder's name.

    <run folder>/record/
      config.yaml             the RunConfig (loads back equal)
      command.json            exact argument list of the engine (or of the replay)
      env.json                schema, versions, machine, hashes of the inputs, what was replayed
      server.log | .gz        untouched bytes
      requests.jsonl | .gz    a RequestTrace per line
      probes.jsonl            single HTTP exchanges with whole bodies (imported records)
      gpu.csv | .gz           NVML samples
      log_times.csv.gz        when each line of the log was seen
      metrics.csv.gz          /metrics while the server was ready: figures when they changed
      server_info.json, server_info_after.json, model_info.json, metrics.txt | .gz
      status.json             written last

The non-obvious thing: everything is written into `record.partial-<pid>` beside the target and renamed at the end, so a
reader never sees half a record; a folder of that name which stays behind is an unfinished run, and is reported as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from ..configuration import yamltext
from ..configuration.config import RunConfig
from ..errors import RecordError
from ..host.gpu_use import GpuMemory
from ..terms import Origin
from . import foreign_json
from .files import gpu_sample, log_arrival, metric_sample, one_line, read_bytes, read_json, read_lines, read_table
from .folders import RECORD, why_no_record
from .types import SCHEMA, GpuSample, LogArrival, MetricSample, Probe, RequestTrace, RunStatus, SeenMachine

_GPU_MEMORY = TypeAdapter(GpuMemory)
_Row = TypeVar("_Row")


class RunRecord:
    """One run, read from disk. Parts are read when they are asked for."""

    def __init__(self, folder: Path, status: RunStatus, config: RunConfig, env: Mapping[str, Any]) -> None:
        self.folder = folder
        self.status = status
        self.config = config
        self.env = env

    @classmethod
    def open(cls, path: str | Path) -> RunRecord:
        """The record in `path`: a record folder, or a run folder with a `record/` in it. RecordError: there is none."""
        asked = Path(path)
        folder = next((f for f in (asked, asked / RECORD) if (f / "status.json").is_file()), None)
        if folder is None:
            raise RecordError(why_no_record(asked))
        status_data = read_json(folder / "status.json")
        _check_schema(folder, status_data)
        env = read_json(folder / "env.json")
        _check_schema(folder, env)
        try:
            status = RunStatus.model_validate(status_data)
            sections = yamltext.written((folder / "config.yaml").read_text(encoding="utf-8"))
            config = RunConfig.model_validate(_as_of_today(sections))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise RecordError(
                f"{folder}: config.yaml or status.json cannot be read: {one_line(error)}.\nThe record is damaged."
            ) from None
        return cls(folder.resolve(), status, config, env)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def origin(self) -> Origin:
        return self.status.origin

    @property
    def replayed(self) -> bool:
        """Whether a replay answered, one of ours or an attached one; a record that was merely imported has none."""
        return self.config.engine.replay is not None or isinstance(self.env.get("replay"), Mapping)

    @property
    def recorded_machine(self) -> SeenMachine | None:
        """The machine of the recording that this run replayed or was imported from. None: a real start, or not said."""
        return self._machine(self.env.get("machine")) if self.origin == "recorded" else None

    @property
    def this_machine(self) -> SeenMachine | None:
        """The machine on which this run took place, a replay too. None: an imported recording, or not said."""
        if self.origin == "measured":
            return self._machine(self.env.get("machine"))
        replay = self.env.get("replay")
        return self._machine(replay.get("played_on")) if isinstance(replay, Mapping) else None

    @property
    def gpu_memory(self) -> GpuMemory | None:
        """Who held the GPUs' memory before the server and after it. None: not recorded."""
        said = self.env.get("gpu_memory")
        if said is None:
            return None
        try:
            return _GPU_MEMORY.validate_python(said)
        except ValidationError as error:
            raise RecordError(
                f"{self.folder / 'env.json'}: gpu_memory: {one_line(error)}.\nThe record is damaged."
            ) from None

    def _machine(self, said: Any) -> SeenMachine | None:
        if not isinstance(said, Mapping):
            return None
        listed = said.get("gpus")
        gpus = listed if isinstance(listed, list) else []
        names: tuple[str, ...] = tuple(str(gpu["name"]) for gpu in gpus if isinstance(gpu, Mapping) and "name" in gpu)
        if said.get("gpu_name"):  # imported: one card is described, the configuration says how many the server had
            names = (str(said["gpu_name"]),) * self.config.gpu.count
        return SeenMachine(gpus=names, driver=_text(said.get("driver")), reason=_text(said.get("reason")))

    @property
    def log_path(self) -> Path:
        """The engine's log, plain or gzip. RecordError when the record has none."""
        for name in ("server.log", "server.log.gz"):
            if (self.folder / name).is_file():
                return self.folder / name
        raise RecordError(f"{self.folder}: no server.log.\nThe record is incomplete; run the configuration again.")

    def log_bytes(self) -> bytes:
        """The log, whole and untouched."""
        return read_bytes(self.log_path)

    @cached_property
    def _requests(self) -> tuple[RequestTrace, ...]:
        packed = self.folder / "requests.jsonl.gz"
        return tuple(read_lines(packed if packed.is_file() else self.folder / "requests.jsonl", RequestTrace))

    def requests(self) -> tuple[RequestTrace, ...]:
        """Every request in the order of sending, warm-up included. Empty: nothing was sent (load only)."""
        return self._requests

    def probes(self) -> tuple[Probe, ...]:
        return tuple(read_lines(self.folder / "probes.jsonl", Probe))

    @cached_property
    def _gpu_samples(self) -> tuple[GpuSample, ...]:
        return tuple(self._table(("gpu.csv", "gpu.csv.gz"), gpu_sample))

    def gpu_samples(self) -> tuple[GpuSample, ...]:
        """NVML samples; empty when there were none (`env["gpu_telemetry"]` says why)."""
        return self._gpu_samples

    def log_arrivals(self) -> tuple[LogArrival, ...]:
        """When the log's lines were seen, in their order; empty: not recorded."""
        return tuple(self._table(("log_times.csv.gz",), log_arrival))

    @cached_property
    def _metric_samples(self) -> tuple[MetricSample, ...]:
        return tuple(self._table(("metrics.csv.gz",), metric_sample))

    def metric_samples(self) -> tuple[MetricSample, ...]:
        """/metrics over time; empty: not recorded. A figure holds until its next sample."""
        return self._metric_samples

    def _table(self, names: tuple[str, ...], row: Callable[[Mapping[str, str]], _Row]) -> Iterable[_Row]:
        file = next((self.folder / name for name in names if (self.folder / name).is_file()), None)
        return () if file is None else read_table(file, row)

    def command(self) -> tuple[str, ...]:
        """The exact argument list that started the server."""
        file = self.folder / "command.json"
        said = read_json(file)
        if not isinstance(said, list) or not all(isinstance(word, str) for word in said):
            raise RecordError(f"{file}: expected a list of texts.\nThe record is damaged; run the configuration again.")
        return tuple(said)

    @cached_property
    def _server_info(self) -> Mapping[str, Any] | None:
        return self._optional_json("server_info.json")

    def server_info(self) -> Mapping[str, Any] | None:
        """/server_info when ready; None: not recorded."""
        return self._server_info

    def server_info_after(self) -> Mapping[str, Any] | None:
        """/server_info after the workload; None: not recorded."""
        return self._optional_json("server_info_after.json")

    def model_info(self) -> Mapping[str, Any] | None:
        return self._optional_json("model_info.json")

    def metrics_text(self) -> str | None:
        """/metrics after the workload (Prometheus text); None: not recorded."""
        for name in ("metrics.txt", "metrics.txt.gz"):
            if (self.folder / name).is_file():
                return read_bytes(self.folder / name).decode("utf-8", "replace")
        return None

    def sha256(self) -> str:
        """One hash over all files, names included: what a replay states as its source."""
        digest = hashlib.sha256()
        for file in sorted(p for p in self.folder.iterdir() if p.is_file()):
            digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def _optional_json(self, name: str) -> Mapping[str, Any] | None:
        file = self.folder / name
        if not file.is_file():
            return None
        said = read_json(file, foreign_json.parse)
        if not isinstance(said, dict):
            raise RecordError(f"{file}: expected a JSON object.\nThe record is damaged; run the configuration again.")
        return said


def _as_of_today(written: Any) -> Any:
    """A configuration written before `engine.enable_metrics` was a key: the server had the flag if it was given."""
    engine = written.get("engine") if isinstance(written, dict) else None
    if not isinstance(engine, dict) or "enable_metrics" in engine:
        return written
    args = engine.get("args") or {}
    if not isinstance(args, dict):
        return written
    spelled = [name for name in args if str(name).strip("-").replace("_", "-") == "enable-metrics"]
    asked = any(args[name] is True for name in spelled)
    rest = {name: value for name, value in args.items() if name not in spelled}
    return written | {"engine": engine | {"args": rest, "enable_metrics": asked}}


def _check_schema(folder: Path, data: Any) -> None:
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or schema < 1:
        raise RecordError(f"{folder}: status.json or env.json has no schema number.\nExpected schema 1 to {SCHEMA}.")
    if schema > SCHEMA:
        raise RecordError(
            f"{folder}: schema {schema} was written by a later specbench; this one reads up to schema {SCHEMA}.\n"
            "Update specbench to read it."
        )


def _text(said: Any) -> str | None:
    return said if isinstance(said, str) else None
