"""What each frame holds: name, dtype, unit and meaning of every column; and the one way to build a frame from rows.

A missing figure is `pd.NA` in every frame, never 0; bytes and seconds stay as they are, plots and pages convert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

Dtype = Literal["string", "Int64", "Float64", "boolean"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame."""

    name: str
    dtype: Dtype
    unit: str  # "" for names and words
    meaning: str


def _columns(*rows: tuple[str, Dtype, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "runs": _columns(
        ("run", "string", "", "folder of the run"),
        ("version", "string", "", "SGLang version"),
        ("model", "string", "", "target model"),
        ("gpu", "string", "", "row of the GPU table"),
        ("emulate", "string", "", "card whose budget the server was given; NA: its own"),
        ("tp_size", "Int64", "ranks", "tensor parallel size"),
        ("algorithm", "string", "", "speculative algorithm; none is the baseline"),
        ("num_draft_tokens", "Int64", "tokens", "tokens verified per step, as asked"),
        ("mem_fraction_static", "Float64", "", "as asked: with an emulated card, of that card"),
        ("passed_fraction", "Float64", "", "on the command line, where a card is emulated; NA: as asked"),
        ("mamba_full_memory_ratio", "Float64", "", "as asked"),
        ("disable_radix_cache", "boolean", "", "as asked"),
        ("origin", "string", "", "recorded or measured"),
        ("status", "string", "", "served, refused, crashed or timed_out"),
        ("outcome", "string", "", "status, or capped: served with fewer at once than asked"),
        ("asked_requests", "Int64", "requests", "max_running_requests, as asked"),
        ("resolved_requests", "Int64", "requests", "max_running_requests, as the engine resolved it"),
        ("served_requests", "Int64", "requests", "most requests running at once, as the engine says"),
        ("state_slots", "Int64", "slots", "as the engine resolved it"),
        ("kv_tokens", "Int64", "tokens", "as the engine resolved it"),
        ("predicted_requests", "Int64", "requests", "on the better basis"),
        ("predicted_slots", "Int64", "slots", "on the better basis"),
        ("predicted_tokens", "Int64", "tokens", "on the better basis"),
        ("basis", "string", "", "measured or config: what that prediction rests on"),
        ("verdict", "string", "", "predicted: serves, capped or refused"),
        ("off", "Int64", "rows", "rows of the reconciliation that are off, on that basis"),
        ("finding", "string", "", "id of the first finding"),
    ),
    "memory": _columns(
        ("run", "string", "", "folder of the run"),
        ("rank", "string", "", "as the engine prints it; empty on one GPU"),
        ("role", "string", "", "target or draft"),
        ("term", "string", "", "a term of memory (terms.TERMS)"),
        ("basis", "string", "", "config or measured"),
        ("predicted", "Int64", "B", "point of the prediction, per rank"),
        ("predicted_low", "Int64", "B", "lower end of its interval"),
        ("predicted_high", "Int64", "B", "upper end of its interval"),
        ("observed", "Int64", "B", "as logged, per rank"),
        ("tolerance", "Int64", "B", "rounding of the logged figure"),
        ("delta", "Int64", "B", "how far outside the interval; 0 inside"),
        ("verdict", "string", "", "match, off, estimated, not logged or not predicted"),
        ("origin", "string", "", "of the observed figure: recorded or measured"),
    ),
    "limits": _columns(
        ("run", "string", "", "folder of the run"),
        ("rank", "string", "", "as the engine prints it; empty when it holds for all"),
        ("role", "string", "", "target"),
        ("limit", "string", "", "a limit (terms.LIMITS)"),
        ("basis", "string", "", "config or measured"),
        ("predicted", "Int64", "count", "point of the prediction"),
        ("predicted_low", "Int64", "count", "lower end of its interval"),
        ("predicted_high", "Int64", "count", "upper end of its interval"),
        ("observed", "Int64", "count", "as logged"),
        ("tolerance", "Int64", "count", "what a known offset leaves open"),
        ("delta", "Int64", "count", "how far outside the interval; 0 inside"),
        ("verdict", "string", "", "match, off, estimated, not logged or not predicted"),
        ("origin", "string", "", "of the observed figure: recorded or measured"),
    ),
    "waterfall": _columns(
        ("term", "string", "", "a term of memory, or communication; before: all else that is gone before loading"),
        ("label", "string", "", "its name with its meaning"),
        ("predicted_bytes", "Int64", "B", "on the better basis, per rank"),
        ("observed_bytes", "Int64", "B", "as logged, of the rank with the least free memory"),
        ("predicted_card_bytes", "Int64", "B", "the whole card of the prediction, the emulated one; in every row"),
        ("card_bytes", "Int64", "B", "the whole card that is there; in every row"),
        ("place", "string", "", "card or host: whose memory it is; in every row"),
        ("rank", "string", "", "the rank that the observed figures are of; empty where there is one; in every row"),
        ("rank_words", "string", "", "why that one, or that the log has not all ranks; in every row"),
    ),
    "grid": _columns(
        ("setting", "string", "", "what varies, in words; not what is drawn along an axis (requests, context, memory)"),
        ("bound", "string", "", "point; low and high: the ends of the predicted interval, of some points of a curve"),
        ("version", "string", "", "SGLang version"),
        ("gpu", "string", "", "row of the GPU table"),
        ("tp_size", "Int64", "ranks", "tensor parallel size"),
        ("algorithm", "string", "", "speculative algorithm; none is the baseline"),
        ("num_draft_tokens", "Int64", "tokens", "tokens verified per step, as asked; NA: the default"),
        ("asked_requests", "Int64", "requests", "max_running_requests, as asked; NA: not given"),
        ("context_length", "Int64", "tokens", "as asked; NA: the model's own"),
        ("mem_fraction_static", "Float64", "", "as asked; NA: the engine's default"),
        ("mamba_full_memory_ratio", "Float64", "", "as asked; NA: the engine's default"),
        ("max_mamba_cache_size", "Int64", "slots", "as asked; NA: from the ratio"),
        ("pre_bytes", "Int64", "B", "free before loading, per rank, where it varies"),
        ("state_slots", "Int64", "slots", "predicted; NA: no state, or refused by an argument"),
        ("slots_per_request", "Int64", "slots", "predicted"),
        ("running_requests", "Int64", "requests", "predicted; 0 when refused for memory"),
        ("kv_tokens", "Int64", "tokens", "predicted; NA: no pool"),
        ("context_len", "Int64", "tokens", "of a request: as asked, else the model's own"),
        ("max_input_tokens", "Int64", "tokens", "predicted; an input must be shorter"),
        ("scratch_charged_bytes", "Int64", "B", "predicted, per rank: speculative scratch as the engine charges it"),
        ("rest_bytes", "Int64", "B", "predicted, per rank: left for state, scratch and KV"),
        ("slack_bytes", "Int64", "B", "predicted, per rank: left outside when all pools stand"),
        (
            "tokens_per_request",
            "Int64",
            "tokens",
            "predicted; KV tokens for each asked request; NA: not all of them run",
        ),
        ("verdict", "string", "", "predicted: serves, capped or refused; NA: not predicted"),
        ("certainty", "string", "", "that it serves as asked: sure, likely, unlikely or no"),
        ("refusal", "string", "", "why it is refused (grid.REFUSALS); NA: it is not"),
    ),
    "requests": _columns(
        ("run", "string", "", "folder of the run"),
        ("origin", "string", "", "recorded or measured"),
        ("algorithm", "string", "", "speculative algorithm"),
        ("step", "string", "", "step of the workload"),
        ("load", "string", "", "'8 clients' or '2.5 requests/s'"),
        ("input_tokens", "Int64", "tokens", "length of the prompt"),
        ("ok", "boolean", "", "answered completely"),
        ("ttft_s", "Float64", "s", "time to first token"),
        ("tpot_s", "Float64", "s", "time per output token after the first"),
        ("e2e_s", "Float64", "s", "end to end"),
        ("output_tokens", "Int64", "tokens", "tokens received"),
        ("accept_length", "Float64", "tokens", "tokens per verification round, bonus token included"),
        ("error", "string", "", "text of the failure"),
        ("simulated_acceptance", "string", "tokens", "length that was simulated, as written; NA: the drafts' own"),
    ),
    "latency": _columns(
        ("run", "string", "", "folder of the run"),
        ("origin", "string", "", "recorded or measured"),
        ("algorithm", "string", "", "speculative algorithm"),
        ("step", "string", "", "step of the workload"),
        ("load", "string", "", "'8 clients' or '2.5 requests/s'"),
        ("input_tokens", "Int64", "tokens", "length of the prompts"),
        ("ok", "Int64", "requests", "answered completely"),
        ("failed", "Int64", "requests", "failed; in no percentile"),
        ("metric", "string", "", "a name of latency.METRICS, or output_throughput (only a mean)"),
        ("simulated_acceptance", "string", "tokens", "length that was simulated, as written; NA: the drafts' own"),
        ("random_weights", "boolean", "", "random weights: with speculation TPOT and acceptance say nothing"),
        ("count", "Int64", "", "values of the metric; below latency.FEW the high percentiles say nothing"),
        ("mean", "Float64", "of the metric", "over the answered requests"),
        ("minimum", "Float64", "of the metric", "smallest"),
        ("p50", "Float64", "of the metric", "median"),
        ("p90", "Float64", "of the metric", "90th percentile"),
        ("p95", "Float64", "of the metric", "95th percentile"),
        ("p99", "Float64", "of the metric", "99th percentile"),
        ("maximum", "Float64", "of the metric", "largest"),
    ),
    "timeline": _columns(
        ("run", "string", "", "folder of the run"),
        ("origin", "string", "", "recorded or measured"),
        ("rank", "string", "", "as the engine prints it"),
        ("line", "Int64", "", "line of the log"),
        ("lines", "Int64", "lines", "decode lines that the log has, of which a long one keeps fewer; in every row"),
        ("time_s", "Float64", "s", "since the first batch line; stamps of a log have 1 s resolution; NA: no stamp"),
        ("running_requests", "Int64", "requests", "running"),
        ("queued_requests", "Int64", "requests", "waiting"),
        ("kv_usage", "Float64", "share", "KV tokens in use, 0 to 1"),
        ("state_usage", "Float64", "share", "state slots in use, 0 to 1"),
        ("accept_length", "Float64", "tokens", "tokens per verification round"),
        ("throughput", "Float64", "tokens/s", "generated; no speed where the interval spans idle time"),
        ("interval", "string", "", "since the line before: steady, mixed, spans_idle, unknown (reading/intervals.py)"),
    ),
    "phases": _columns(
        ("run", "string", "", "folder of the run"),
        ("origin", "string", "", "recorded or measured"),
        ("phase", "string", "", "name of the step, or of what the lines tell"),
        ("kind", "string", "", "step, start, serving, idle, drained, ended, prefill or retraction"),
        ("begin", "Float64", "unit", "on the axis of `timeline`"),
        ("end", "Float64", "unit", "the same; of a mark its begin"),
        ("unit", "string", "", "s: since the first batch line; line: number of the log's line"),
    ),
    "gpu": _columns(
        ("run", "string", "", "folder of the run"),
        ("origin", "string", "", "recorded or measured"),
        ("time_s", "Float64", "s", "since the start of the run"),
        ("phase", "string", "", "phase of the run"),
        ("gpu", "Int64", "", "NVML index"),
        ("used_bytes", "Int64", "B", "in use, whole card"),
        ("total_bytes", "Int64", "B", "size of the card"),
        ("power_w", "Float64", "W", "power draw"),
    ),
}


def build_columns(name: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Like `build`, from whole columns."""
    declared = COLUMNS[name]
    if columns.keys() != {column.name for column in declared}:
        raise ValueError(f"frame {name!r}: columns {sorted(columns.keys())} are not as declared")
    return pd.DataFrame({column.name: pd.array(columns[column.name], dtype=column.dtype) for column in declared})


def build(name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Exactly the declared columns with their dtypes; a row that lacks one, or has another, is a mistake of ours."""
    columns = COLUMNS[name]
    names = {column.name for column in columns}
    listed = list(rows)
    for row in listed:
        if row.keys() != names:
            raise ValueError(f"frame {name!r}: columns {sorted(row.keys() ^ names)} are not as declared")
    return pd.DataFrame(
        {column.name: pd.array([row[column.name] for row in listed], dtype=column.dtype) for column in columns}
    )
