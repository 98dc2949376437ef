"""Frames of serving: requests, latency per step, the decode lines over time and their phases, GPU samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ..reading.intervals import intervals
from ..reading.latency import METRICS, accept_length, load_name, tpot_s
from ..reading.phases import clock_of
from ..reading.phases import phases as phases_of
from ..records.caveats import random_weights, simulated_length
from ..studies.seen import Seen
from .columns import build

_STATISTICS = ("count", "mean", "minimum", "p50", "p90", "p95", "p99", "maximum")


def requests(studies: Iterable[Seen], *, warmup: bool = False) -> pd.DataFrame:
    """One row per request; the warm-up only on demand. A failed request has its text and no figure."""
    return build("requests", (row for study in studies for row in _requests(study, warmup)))


def latency(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per run, step and metric; the warm-up excluded."""
    return build("latency", (row for study in studies for row in _latency(study)))


def timeline(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per decode line of the log."""
    return build("timeline", (row for study in studies for row in _timeline(study)))


def phases(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per step of the workload, per stretch of the log and per retraction, on the axis of `timeline`."""
    return build("phases", (row for study in studies for row in _phases(study)))


def gpu(studies: Iterable[Seen]) -> pd.DataFrame:
    """One row per GPU sample; empty where there was no NVML."""
    return build("gpu", (row for study in studies for row in _gpu(study)))


def _requests(study: Seen, warmup: bool) -> Iterator[dict[str, Any]]:
    record = study.record
    if record is None:
        return
    simulated = simulated_length(record)
    for trace in study.requests:
        if trace.phase == "warmup" and not warmup:
            continue
        yield {
            "run": study.name,
            "origin": study.origin,
            "algorithm": record.config.speculative.algorithm,
            "step": trace.step,
            "load": load_name(trace.concurrency, trace.request_rate),
            "input_tokens": trace.input_tokens,
            "ok": trace.ok,
            "ttft_s": trace.ttft_s if trace.ok else None,
            "tpot_s": tpot_s(trace) if trace.ok else None,
            "e2e_s": trace.end_s if trace.ok else None,
            "output_tokens": trace.output_tokens,
            "accept_length": accept_length(trace) if trace.ok else None,
            "error": trace.error,
            "simulated_acceptance": simulated,
        }


def _latency(study: Seen) -> Iterator[dict[str, Any]]:
    record = study.record
    if record is None:
        return
    for step in study.latency.measured:
        common = {
            "run": study.name,
            "origin": study.origin,
            "algorithm": record.config.speculative.algorithm,
            "step": step.step,
            "load": load_name(step.concurrency, step.request_rate),
            "input_tokens": step.input_tokens,
            "ok": step.ok,
            "failed": step.failed,
            "simulated_acceptance": simulated_length(record),
            "random_weights": random_weights(record.config),
        }
        for metric in METRICS:
            values = step.metric(metric)
            yield common | {
                "metric": metric,
                **{name: None if values is None else getattr(values, name) for name in _STATISTICS},
            }
        single = dict.fromkeys(_STATISTICS, None) | {"mean": step.output_throughput}
        yield common | {"metric": "output_throughput", **single}


def _timeline(study: Seen) -> Iterator[dict[str, Any]]:
    decode = study.diagnosis.log.decode
    names = (
        "line",
        "time",
        "rank",
        "running_requests",
        "queued_requests",
        "token_usage",
        "state_usage",
        "accept_length",
        "throughput",
    )
    log = study.diagnosis.log
    clock, lines = clock_of(log), log.seen.get("decode", len(decode["line"]))
    columns = (*(decode[name] for name in names), intervals(log))
    for line, time, rank, running, queued, tokens, state, accepted, speed, interval in zip(*columns, strict=True):
        yield {
            "run": study.name,
            "origin": study.origin,
            "rank": rank,
            "line": line,
            "lines": lines,
            "time_s": clock.at(line, time) if clock.unit == "s" else None,
            "running_requests": running,
            "queued_requests": queued,
            "kv_usage": tokens,
            "state_usage": state,
            "accept_length": accepted,
            "throughput": speed,
            "interval": interval,
        }


def _phases(study: Seen) -> Iterator[dict[str, Any]]:
    log = study.diagnosis.log
    unit = clock_of(log).unit
    for phase in phases_of(log, study.requests):
        yield {
            "run": study.name,
            "origin": study.origin,
            "phase": phase.name,
            "kind": phase.kind,
            "begin": phase.begin,
            "end": phase.end,
            "unit": unit,
        }


def _gpu(study: Seen) -> Iterator[dict[str, Any]]:
    for sample in study.gpu_samples:
        yield {
            "run": study.name,
            "origin": study.origin,
            "time_s": sample.t_s,
            "phase": sample.phase,
            "gpu": sample.gpu,
            "used_bytes": sample.used_bytes,
            "total_bytes": sample.total_bytes,
            "power_w": sample.power_w,
        }
