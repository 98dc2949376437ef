"""Foreign recordings -> records. A foreign folder holds what a plain script saves of a run:

    command.txt         the command line                     result.json   phases (t_*_s), status, version
    env.json            environment of the server            server.log    untouched
    gpu_memory.csv      NVML every 0.5 s, MiB                latency.jsonl, overflow.jsonl, metrics.txt
    server_info.json, server_info_after.json, model_info.json

What such a folder does not say (card, driver, which published model a path means) comes from a facts file; facts and
their source are kept in env.json. The one non-obvious thing: `status` is ours, not the script's; it is classified from
the log by the same rule as a run of our own.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ..configuration.config import RunConfig
from ..configuration.secret_names import shown
from ..engines.sglang.acceptance import simulated
from ..engines.sglang.command_line import sections_of
from ..engines.sglang.logs import read as read_log
from ..errors import RecordError
from ..lifecycle.ending import Ending, classify
from ..reading.lost_rank import lost_rank
from ..records.caveats import caveats
from ..records.record import RunRecord
from ..records.types import GpuSample, Probe, RequestTrace, RunStatus
from ..records.writer import RecordWriter, sha256_bytes, sha256_text
from ..units import MIB
from .requests import probes_of, traces_of

#: Larger metrics texts are stored compressed.
_COMPRESS_METRICS_FROM = 16_000
_COPIED = ("server_info.json", "server_info_after.json", "model_info.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the folders do not say themselves."""

    source: str  # who says so
    gpu: str  # a row of the GPU table
    models: Mapping[str, str] = field(default_factory=dict)  # path on that machine -> published name
    versions: Mapping[str, str] = field(default_factory=dict)  # the script's label -> engine version
    machine: Mapping[str, Any] = field(default_factory=dict)  # driver, torch, …: kept as they are
    notes: Mapping[str, str] = field(default_factory=dict)  # environment variable -> what a reader must know
    reworded: Mapping[str, str] = field(default_factory=dict)  # a note of the script -> plain words; "": said elsewhere
    #: Of runs of specbench: name -> {place in env.json: what is right}, as in `gpu_memory.after.0.holders.0.ours`
    corrected: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_facts(file: Path) -> Facts:
    """The facts file (YAML). RecordError names what is wrong."""
    try:
        return Facts(**yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, TypeError, yaml.YAMLError) as error:
        raise RecordError(
            f"{file}: no facts file: {error}.\n"
            "Expected YAML with source, gpu, models, versions, machine, notes, reworded, corrected."
        ) from None


def is_foreign(folder: Path) -> bool:
    """Whether `folder` is one recording in the foreign form."""
    return all((folder / name).is_file() for name in ("command.txt", "server.log", "result.json"))


def import_folder(source: Path, target: Path, facts: Facts) -> RunRecord:
    """Converts one foreign recording into the record folder `target`. RecordError when it cannot be read."""
    if not is_foreign(source):
        raise RecordError(f"{source}: no foreign recording.\nExpected command.txt, result.json and server.log in it.")
    try:
        return _import(source, target, facts)
    except (ValueError, KeyError, ValidationError) as error:
        raise RecordError(f"{source}: cannot be imported: {type(error).__name__}: {error}") from None


def _import(source: Path, target: Path, facts: Facts) -> RunRecord:
    result = json.loads((source / "result.json").read_text(encoding="utf-8"))
    argv = shlex.split((source / "command.txt").read_text(encoding="utf-8"))
    variables = json.loads((source / "env.json").read_text(encoding="utf-8"))
    traces = traces_of(source / "latency.jsonl")
    probes = probes_of(source / "overflow.jsonl")
    ending = _ending(source, result, traces)
    config = _config(source.name, argv, variables, traces, facts, result, ending)
    with RecordWriter(target) as writer:
        writer.log_path.write_bytes((source / "server.log").read_bytes())
        writer.config(config)
        writer.command(argv)
        writer.env(_env(source, config, variables, facts, result))
        if traces:
            writer.requests(traces)
        if probes:
            writer.probes(probes)
        writer.gpu_samples(_gpu_samples(source / "gpu_memory.csv"))
        for name in _COPIED:
            if (source / name).is_file():
                writer.text(name, (source / name).read_text(encoding="utf-8"))
        metrics = source / "metrics.txt"
        if metrics.is_file():
            size = metrics.stat().st_size
            writer.text(metrics.name, metrics.read_text(encoding="utf-8"), compress=size > _COMPRESS_METRICS_FROM)
        notes = (*caveats(config), *_notes(config, result, variables, traces, probes, facts))
        return writer.finish(_status(result, traces, ending, notes))


def _ending(source: Path, result: Mapping[str, Any], traces: Sequence[RequestTrace]) -> Ending:
    ready = result["status"] == "ready"
    log = read_log(source / "server.log")
    #: The script killed every server that was still alive; one that died while serving refused its last requests.
    refused_later = any(trace.http_status is None for trace in traces)
    code = result["status"].rpartition("rc=")[2]
    return classify(
        ready=ready,
        ended_by_itself=not ready or refused_later,
        exit_code=None if ready else int(code),
        failures=log.failures,
        lost=lost_rank(log),
    )


def _config(
    name: str,
    argv: Sequence[str],
    variables: Mapping[str, str],
    traces: Sequence[RequestTrace],
    facts: Facts,
    result: Mapping[str, Any],
    ending: Ending,
) -> RunConfig:
    sections = sections_of(argv)
    version = facts.versions.get(result["version"], result["version"])
    sections["name"] = name
    sections["model"] = facts.models.get(sections["model"], sections["model"])
    draft = sections["speculative"].get("draft_model_path")
    if draft is not None:
        sections["speculative"]["draft_model_path"] = facts.models.get(draft, draft)
    sections["engine"] |= {"name": "sglang", "version": version, "allow_refused": ending.status == "refused"}
    sections["engine"]["env"] = {key: value for key, value in shown(variables).items() if key.startswith("SGLANG_")}
    parallel = sections["parallel"]
    sections["gpu"] = {"name": facts.gpu, "count": parallel.get("tp_size", 1) * parallel.get("pp_size", 1)}
    sections["workload"] = _workload(traces)
    return RunConfig.model_validate(sections)


def _workload(traces: Sequence[RequestTrace]) -> dict[str, Any]:
    """The measured steps of the shape that most steps had, as one workload. Other steps are in the requests alone."""
    measured = [trace for trace in traces if trace.phase == "measured"]
    if not measured:
        return {"requests": 0, "warmup": 0}
    of_step = {trace.step: (trace.input_tokens, trace.max_new_tokens) for trace in measured}
    shapes = list(of_step.values())
    shape = max(dict.fromkeys(shapes), key=shapes.count)
    chosen = [trace for trace in measured if of_step[trace.step] == shape]
    loads = list(dict.fromkeys(trace.concurrency for trace in chosen))
    sent = [sum(trace.concurrency == load for trace in chosen) for load in loads]
    return {
        "input_tokens": [shape[0]],
        "output_tokens": shape[1],
        "concurrency": loads,
        "requests": sent[0] if len(set(sent)) == 1 else sent,
        "warmup": len(traces) - len(measured),
    }


def _env(
    source: Path, config: RunConfig, variables: Mapping[str, str], facts: Facts, result: Mapping[str, Any]
) -> dict[str, Any]:
    from .. import __version__

    return {
        "specbench": __version__,
        "engine": {"name": "sglang", "version": config.engine.version, "version_from": "the recording's own label"},
        "imported": {
            "from": source.name,
            "server_log_sha256": sha256_bytes((source / "server.log").read_bytes()),
            "facts_source": facts.source,
            "note": result.get("note"),
        },
        "machine": {"gpu": facts.gpu, **facts.machine},
        "environment": shown(variables),
        "simulated_acceptance": simulated(config, variables) or None,
        "gpu_telemetry": "NVML every 0.5 s, first GPU only, in whole MiB",
        "inputs_sha256": {"params": sha256_text(config.model_dump_json())},
        "replay": None,
    }


def _notes(
    config: RunConfig,
    result: Mapping[str, Any],
    variables: Mapping[str, str],
    traces: Sequence[RequestTrace],
    probes: Sequence[Probe],
    facts: Facts,
) -> list[str]:
    """What the recording itself tells that a reader of its figures must know."""
    notes = [text for name, text in facts.notes.items() if name in variables]
    for name, value in simulated(config, variables).items():
        notes.append(
            f"draft acceptance was simulated ({name}={value}): latencies are a cost model, no claim about the draft "
            "model's quality"
        )
    if not traces and not probes:
        notes.append("load only: no request was sent, so there are no latencies")
    own = str(result.get("note", ""))
    notes.append(facts.reworded.get(own, f"the recording's own note: {own}" if own else ""))
    return [note for note in notes if note]


def _status(
    result: Mapping[str, Any], traces: Sequence[RequestTrace], ending: Ending, notes: Sequence[str]
) -> RunStatus:
    marks = {key[2:-2]: value for key, value in result.items() if key.startswith("t_") and key.endswith("_s")}
    total_s = marks.pop("total", None)
    phases = {"start": marks["ready"]} if "ready" in marks else {}
    for step in dict.fromkeys(trace.step for trace in traces):
        ends = [trace.sent_s + (trace.end_s or 0.0) for trace in traces if trace.step == step]
        phases[step] = round(max(ends), 6)
    return RunStatus(
        status=ending.status,
        origin="recorded",
        exit_code=ending.exit_code,
        reason=ending.reason,
        ready_s=marks.get("ready"),
        phases=phases | ({"total": total_s} if total_s is not None else {}),
        marks=marks,
        notes=tuple(notes),
    )


def _gpu_samples(file: Path) -> list[GpuSample]:
    with file.open(newline="", encoding="utf-8") as text:
        return [
            GpuSample(
                t_s=float(row["t_s"]),
                phase=row["phase"],
                gpu=0,
                used_bytes=int(row["used_mib"]) * MIB,
                free_bytes=int(row["free_mib"]) * MIB,
                total_bytes=int(row["total_mib"]) * MIB,
                utilization_pct=float(row["gpu_util_pct"]),
                power_w=float(row["power_w"]),
            )
            for row in csv.DictReader(text)
        ]


def import_all(source: Path, out: Path, facts: Facts) -> list[RunRecord]:
    """Imports `source` (one recording, or a folder of them) below `out`: `<out>/<name>` is the record folder itself."""
    folders = [source] if is_foreign(source) else sorted(f for f in source.iterdir() if f.is_dir() and is_foreign(f))
    if not folders:
        raise RecordError(f"{source}: no foreign recording in it.\nExpected folders with command.txt and server.log.")
    out.mkdir(parents=True, exist_ok=True)
    return [import_folder(folder, out / folder.name, facts) for folder in folders]
