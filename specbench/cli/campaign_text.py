"""A campaign on a terminal: progress while it runs, a table when it is done; and the same as a JSON document."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..campaign.types import CampaignResult, Event, PointResult
from ..diagnose.outgoing import safe
from ..reading.outcome import in_words
from ..records.listing import Skipped

if TYPE_CHECKING:
    from ..studies.study import Study
    from ..terms import Outcome

_STYLES: dict[Outcome, str] = {
    "served": "green",
    "capped": "yellow",
    "unanswered": "red",
    "refused": "red",
    "crashed": "magenta",
    "timed_out": "magenta",
    "no_record": "red",
}
_INDENT = " " * 4
_HEADERS = ("configuration", "asked", "resolved", "served", "outcome")


class Screen:
    """One bar for the campaign, one line per configuration that is running; plain lines where there is no terminal."""

    def __init__(self, campaign: str, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.campaign = campaign
        self.live = self.console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[phase]}"),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self.tasks: dict[str | None, TaskID] = {}
        self.said = False  # that pages begin, where nothing is drawn

    def __enter__(self) -> Screen:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def show(self, event: Event) -> None:
        """Called for every change."""
        if event.notice:
            self.console.print(escape(event.phase), highlight=False, soft_wrap=True)
            return
        if not self.live:
            if event.finished:
                self.console.print(escape(_line(self.campaign, event)), highlight=False, soft_wrap=True)
            elif event.run is None and not self.said:  # they take as long as the replays: else it seems to hang
                self.said = True
                what = f"{self.campaign} {event.done}/{event.total}: {event.total - event.done} {event.phase} begin"
                self.console.print(escape(what), highlight=False, soft_wrap=True)
            return
        main = self._task(None, event.total)
        self.bar.update(main, completed=event.done, total=event.total, phase="" if event.run else escape(event.phase))
        if event.run is not None:
            if event.finished:
                if event.run in self.tasks:
                    self.bar.remove_task(self.tasks.pop(event.run))
                self.bar.console.print(escape(_line(self.campaign, event)), highlight=False)
            else:
                self.bar.update(self._task(event.run, None), phase=escape(event.phase))

    def _task(self, run: str | None, total: int | None) -> TaskID:
        if run not in self.tasks:
            text = f"[bold]{escape(self.campaign)}" if run is None else f"  {escape(run)}"
            self.tasks[run] = self.bar.add_task(text, total=total, phase="")
        return self.tasks[run]


def _line(campaign: str, event: Event) -> str:
    return f"{campaign} {event.done}/{event.total}: {event.run or event.phase}" + (
        f": {event.phase}" if event.run else ""
    )


def document(result: CampaignResult) -> dict[str, Any]:
    """The result for programs. Unknown is null; what quotes a log is without secrets."""
    studies = _studies(result)
    return {
        "schema": 1,
        "campaign": result.name,
        "folder": str(result.folder),
        "index": str(result.index) if result.index.is_file() else None,
        "complete": result.complete,
        "left": {name: safe(reason) for name, reason in result.left.items()},
        "runs": [_run(point, studies.get(point.folder.name)) for point in result.points],
        "skipped": [_skip(name, skipped) for name, skipped in result.skipped.items()],
        "problems": list(result.problems),
    }


def _run(point: PointResult, study: Study | None) -> dict[str, Any]:
    return {
        "name": point.name,
        "folder": str(point.folder),
        "status": point.status,
        "outcome": point.outcome,
        "origin": study.record.origin if study else None,  # of resolved and served: recorded or measured
        "running_requests": {
            "requested": study.asked if study else None,
            "resolved": study.resolved if study else None,
            "served": study.served if study else None,
        },
        "finding": study.diagnosis.findings[0].id if study and study.diagnosis.findings else None,
        "seconds": _seconds(study),
        "error": None if point.error is None else safe(point.error),
    }


def _skip(name: str, skipped: Skipped) -> dict[str, Any]:
    """What was not started: nothing of it is recorded or measured."""
    return {
        "name": name,
        "outcome": "not_started",
        "predicted": skipped.predicted,
        "reason": skipped.reason,
        "requested_running_requests": skipped.asked_requests,
        "seconds_saved": skipped.saved_s,
        "gpu_minutes_saved": round(skipped.saved_gpu_s / 60, 2),
    }


def _seconds(study: Study | None) -> dict[str, float | None] | None:
    """Where the time of a run went, on this machine."""
    if study is None:
        return None
    from ..reading.spent import spent

    time = spent(study.folder, study.record)
    return {
        "engine_start": time.start_s,
        "warmup": time.warmup_s,
        "measured": time.measured_s,
        "engine_stop": time.stop_s,
        "specbench": time.own_s,
        "whole_run": time.run_s,
        "diagnosis": time.diagnosis_s,
    }


def _studies(result: CampaignResult) -> dict[str, Study]:
    """By the name of the run's folder; empty when no run left a record."""
    from ..studies.study import collect

    return {study.name: study for study in collect(result.folder).studies} if result.points else {}


def summary(result: CampaignResult) -> None:
    """The table of outcomes, with each cause below its row, and where the report is."""
    console = Console(file=sys.stdout)
    studies = _studies(result)
    rows = [_row(point, studies.get(point.folder.name)) for point in result.points]
    styles = [_STYLES.get(point.outcome, "") for point in result.points]
    for name, skipped in result.skipped.items():
        rows.append(((name, _figure(skipped.asked_requests, "not given"), "-", "-", skipped.outcome), skipped.why))
        styles.append("dim")
    widths = [max(len(str(cells[i])) for cells in (_HEADERS, *(cells for cells, _ in rows))) for i in range(5)]
    console.print(_cells(_HEADERS, widths, "bold"), soft_wrap=True, highlight=False)
    for (cells, why), style in zip(rows, styles, strict=True):
        console.print(_cells(cells, widths, style), soft_wrap=True, highlight=False)
        if why:
            wrapped = textwrap.fill(
                why, console.width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
            )
            console.print(Text(wrapped, style="dim"), soft_wrap=True, highlight=False)
    origins = _origins(result, studies)
    if origins:
        console.print(Text(textwrap.fill(origins, console.width), style="dim"), soft_wrap=True, highlight=False)
    for problem in result.problems:
        console.print(Text.assemble(("problem: ", "red"), problem), soft_wrap=True)
    console.print(escape(report_line(result.index)), soft_wrap=True, highlight=False)


def _origins(result: CampaignResult, studies: Mapping[str, Study]) -> str:
    """'resolved and served: recorded', or which of them are recorded and which measured."""
    held: dict[str, list[str]] = {}
    for point in result.points:
        if point.folder.name in studies:
            held.setdefault(studies[point.folder.name].record.origin, []).append(point.name)
    if not held:
        return ""
    told = [origin if len(held) == 1 else f"{origin} in {', '.join(names)}" for origin, names in held.items()]
    return f"resolved and served: {'; '.join(told)}"


def report_line(index: Path) -> str:
    """Where the report is, if there is one."""
    return f"report: {index}" if index.is_file() else f"report: not written ({index} does not exist)"


def _cells(cells: tuple[str, ...], widths: list[int], style: str) -> Text:
    """A row; figures to the right, the outcome in its colour."""
    name, *figures, outcome = cells
    padded = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=False)]
    text = Text("  ".join([name.ljust(widths[0]), *padded, ""]))
    return text.append(outcome, style=style)


def _row(point: PointResult, study: Study | None) -> tuple[tuple[str, ...], str]:
    """The cells and the reason why it did not get what was asked; "": it did."""
    from ..show.run import partly_answered, served_cell

    if study is None:
        return (point.name, "-", "-", "-", in_words(point.outcome)), safe(point.error or "")
    main = study.diagnosis.main_finding
    beside = [finding.beside for finding in study.diagnosis.beside]
    cause = "" if main is None else " ".join([main.cause, *beside])
    asked, resolved = _figure(study.asked, "not given"), _figure(study.resolved, "not logged")
    figures = (asked, resolved, served_cell(study).printed)
    why = ": ".join(part for part in (partly_answered(study), cause) if part)
    return (point.name, *figures, in_words(point.outcome)), safe(why)


def _figure(value: int | None, unknown: str) -> str:
    return unknown if value is None else str(value)
