"""What the clients saw and what the server wrote last. In: a `Seen` or a record. Out: `Shown`."""

from __future__ import annotations

from collections import deque

from ..logtext import as_text, blocks, clean
from ..reading.latency import FEW, Distribution, StepLatency, load_name
from ..records.caveats import SIMULATED, marks_set, on_cpu, random_weights
from ..records.record import RunRecord
from ..studies.seen import Seen
from .client import client_cost
from .figures import amount_cell
from .findings import clipped
from .shown import Cell, Shown, Value, banner, code_lines, joined, paragraph, table

_ON_CPU = "CPU, tiny model: not a performance figure."
_RANDOM = "Random weights: TPOT, output tokens/s and acceptance length say nothing about a trained draft model."


def latency(study: Seen) -> Shown:
    """Times per step with their spread; failed requests are counted with their texts."""
    steps, record, origin = study.latency.rows, study.record, study.origin
    if record is None or not steps:
        return paragraph(study.no_requests, tone="muted")
    headers = [
        "step",
        "load",
        "input tokens",
        "output tokens asked",
        f"answered ({origin})",
        "failed",
        "TTFT s",
        "TPOT ms",
        "end to end s",
        "output tokens/s",
        "acceptance length",
    ]
    caption = f"Times: median, below it the 90th and 99th percentile; of fewer than {FEW} requests (n) the whole range"
    shown = table(headers, [_row(step) for step in steps], caption=caption)
    errors = [(None, f"{step.step}: {count} × {clipped(text)}") for step in steps for text, count in step.errors]
    answered = any(step.ok for step in steps)  # a warm-up stands in this table
    parts = [banner(mark) for mark in marks_set(record) if answered and mark.startswith(SIMULATED)] + [shown]
    if on_cpu(record.config):
        parts.append(banner(_ON_CPU))
    if random_weights(record.config) and record.config.speculative.algorithm != "none":
        parts.append(banner(_RANDOM))
    if errors:
        parts += [paragraph("Failed requests, in the engine's or the connection's own words:", tone="bad")]
        parts += [code_lines(errors, label="errors of requests")]
    inexact = sum(step.inexact or 0 for step in steps)
    if inexact:
        text = (
            f"{inexact} of these requests {'has' if inexact == 1 else 'have'} no counterpart in the recording (more "
            "requests, or other lengths, than were recorded): the times are those of the most similar recorded request."
        )
        parts.append(paragraph(text, tone="warn"))
    return joined([*parts, client_cost(study.name, record, steps)])


def _row(step: StepLatency) -> list[Value]:
    return [
        step.step + (" (warm-up)" if step.phase == "warmup" else ""),
        load_name(step.concurrency, step.request_rate),
        step.input_tokens,
        step.max_new_tokens,
        step.ok,
        Cell(text=str(step.failed), number=True, tone="bad") if step.failed else step.failed,
        _spread(step.ttft_s, 1.0, 2),
        _spread(step.tpot_s, 1e3, 1),
        _spread(step.e2e_s, 1.0, 2),
        _figure(step.output_throughput, 1),
        _figure(step.accept_length_overall, 2, unknown="no speculation" if step.ok else "not logged"),
    ]


def _spread(values: Distribution | None, scale: float, digits: int) -> Cell:
    """The median; below it two percentiles, or what a few values honestly give: their number and range."""
    if values is None:
        return amount_cell(None, "count")

    def said(figure: float) -> str:
        return f"{figure * scale:,.{digits}f}"

    if not values.few:
        below = f"p90 {said(values.p90)}, p99 {said(values.p99)}"
    elif values.count == 1:
        below = "n=1"
    else:
        below = f"n={values.count}: {said(values.minimum)} to {said(values.maximum)}"
    return Cell(text=said(values.p50), below=below, number=True)


def _figure(value: float | None, digits: int, *, unknown: str = "not logged") -> Cell:
    if value is None:
        return Cell(text=unknown, tone="muted")
    return Cell(text=f"{value:,.{digits}f}", number=True)


def log_tail(record: RunRecord, lines: int = 15) -> Shown:
    """The last lines of the server's log with their numbers."""
    last: deque[tuple[int, bytes]] = deque(maxlen=lines + 1)
    for block in blocks(record.log_path):
        whole = clean(block.text[: block.limit]).split(b"\n")[1:]  # a block begins with a newline
        last.extend(enumerate(whole, start=block.lines_before + 1))
    if last and not last[-1][1]:
        last.pop()  # nothing follows the last newline
    if not last:
        return paragraph("The server wrote nothing.", tone="muted")
    shown = [(number, clipped(as_text(line))) for number, line in list(last)[-lines:]]
    return code_lines(shown, label=f"end of the log ({record.origin})")
