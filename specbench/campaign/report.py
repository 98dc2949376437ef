"""A folder of runs -> its pages. Records are read, never changed; the run itself is never repeated.

Every run's folder gets `3_diagnose.ipynb` (executed), `index.html` from it and `run.html` from the run notebook; the
folder above gets `4_analysis.ipynb` and `index.html`. A run without a record gets a page that says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path

from ..errors import RecordError, SpecbenchError
from ..records import listing
from ..records.record import RunRecord
from ..studies.study import RUN_NOTEBOOK, is_run, why_missing
from ..units import counted
from ..workbook.notebooks import execute, source
from . import pages

DIAGNOSIS_NOTEBOOK = "3_diagnose.ipynb"
ANALYSIS_NOTEBOOK = "4_analysis.ipynb"
INDEX = "index.html"
RUN_PAGE = "run.html"
PROGRESS = "progress.jsonl"

WatchStage = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Of the time in which pages are written."""

    until_s: float  # of `time.monotonic`
    page_s: float  # that a page is expected to take
    jobs: int  # pages that are written at once


def build(
    root: Path,
    pool: Executor,
    watch_stage: WatchStage = lambda phase, done, total: None,
    *,
    limit: Limit | None = None,
    first: Collection[Path] = (),
) -> tuple[Path, tuple[str, ...]]:
    """All pages of a folder of runs. Returns the front page and what went wrong on the way.

    With a limit no page is begun that is not expected to be done in time, by what the pages before it took. The front
    page, which is always begun, and those of the runs in `first` come first, then those that have none; what is not
    written is told where there is no older page either.
    RecordError, and nothing is written, when the folder holds no run, or bare records.
    """
    folders = _runs_of(root)
    folders.sort(key=lambda folder: 0 if folder in first else 2 if (folder / INDEX).is_file() else 1)
    return root / INDEX, _write_all(root, folders, pool, watch_stage, limit)


def _runs_of(root: Path) -> list[Path]:
    """The folders of the runs; none where all were skipped. RecordError as of `build`."""
    if not root.is_dir():
        raise RecordError(f"{root}: no folder.\nExpected a folder of runs, as 'specbench run' leaves it (runs/demo).")
    folders = [folder for folder in listing.run_folders(root) if is_run(folder)]
    known = listing.read(root)
    if not folders and (known is None or not known.skipped):
        raise RecordError(
            f"{root}: no run in it.\nExpected a folder of runs, as 'specbench run' leaves it (runs/demo)."
        )
    bare = next((folder for folder in folders if (folder / "status.json").is_file()), None)
    if bare is not None:
        raise RecordError(
            f"{bare}: this is a record itself, and nothing is ever written into a record.\n"
            "Read it with notebooks/3_diagnose.ipynb (a folder of them with 4_analysis.ipynb), or run its params file."
        )
    return folders


def _write_all(
    root: Path, folders: Sequence[Path], pool: Executor, watch_stage: WatchStage, limit: Limit | None
) -> tuple[str, ...]:
    """The front page, then those of the runs, as many at once as the pool or the limit has; what went wrong."""
    problems: list[str] = []
    waiting = [root, *folders]
    tasks: dict[Future[str | None], tuple[Path, float]] = {}  # being written -> of which folder, since when
    total, done = len(waiting), 0
    page_s = 0.0 if limit is None else limit.page_s  # of the last page, once one is written
    watch_stage("pages", 0, total)
    while waiting or tasks:
        while waiting and (limit is None or len(tasks) < limit.jobs):
            now_s = time.monotonic()
            if limit is not None and waiting[0] != root and now_s + page_s > limit.until_s:
                without = [folder for folder in waiting if not (folder / INDEX).is_file()]
                problems += [f"{_what(folder, root)}: not written: the deadline came first" for folder in without]
                waiting.clear()
                break
            folder = waiting.pop(0)
            tasks[pool.submit(write_index if folder == root else write_run, folder)] = (folder, now_s)
        finished, _ = wait(tasks, return_when=FIRST_COMPLETED)
        for future in finished:
            folder, began_s = tasks.pop(future)
            if folder != root:
                page_s = time.monotonic() - began_s
            problem = _problem(future)
            if problem:
                problems.append(f"{_what(folder, root)}: {problem}")
            done += 1
            watch_stage("pages", done, total)
    return tuple(problems)


def _what(folder: Path, root: Path) -> str:
    return "analysis" if folder == root else f"diagnosis of {folder.name}"


def _problem(future: Future[str | None]) -> str | None:
    try:
        return future.result()
    except SpecbenchError as error:  # a worker that was killed, a page that cannot be written
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def write_run(folder: Path) -> str | None:
    """The two pages of one run; what went wrong, or None."""
    back = ("← all runs", f"../{INDEX}")
    try:
        RunRecord.open(folder)
    except RecordError as error:
        return _write_missing(folder, why_missing(folder) or str(error), back)
    problem = execute(source(DIAGNOSIS_NOTEBOOK), folder / DIAGNOSIS_NOTEBOOK, {"record": str(folder)})
    links = [back]
    if (folder / RUN_NOTEBOOK).is_file():
        links.append(("how it ran", RUN_PAGE))
        run_page = pages.Page(title=f"{folder.name}: how it ran", links=(back, ("diagnosis", INDEX)), legend="")
        pages.write(folder / RUN_NOTEBOOK, folder / RUN_PAGE, run_page)
    if problem is None or (folder / DIAGNOSIS_NOTEBOOK).is_file():  # a full disk leaves none
        pages.write(folder / DIAGNOSIS_NOTEBOOK, folder / INDEX, pages.Page(title=folder.name, links=tuple(links)))
    return problem


def _write_missing(folder: Path, error: str, back: tuple[str, str]) -> str | None:
    """The page of a run that left no record: its run notebook, which shows where it stopped."""
    from ..show.campaign import missing_notice

    page = pages.Page(title=folder.name, provenance="no record: the run did not finish", links=(back,), legend="")
    notice = pages.shown_cell(missing_notice(error))
    if (folder / RUN_NOTEBOOK).is_file():
        notebook = pages.read(folder / RUN_NOTEBOOK)
        notebook.cells.insert(0, notice)
    else:
        notebook = pages.notebook_of([notice])
    pages.write_node(notebook, folder / INDEX, page)
    return None


def write_index(root: Path) -> str | None:
    """The front page: the summary of all runs and the analysis; what went wrong, or None."""
    from ..show.campaign import campaign, missing_notice
    from ..studies.study import collect

    known = listing.read(root)
    runs = sum(is_run(folder) for folder in listing.run_folders(root))
    nothing_ran = runs == 0  # everything was skipped: there is nothing to analyse
    problem = None
    if not nothing_ran:
        problem = execute(source(ANALYSIS_NOTEBOOK), root / ANALYSIS_NOTEBOOK, {"records": str(root)})
    page = pages.Page(
        title=f"{known.campaign if known is not None else root.name}: asked, resolved, served",
        provenance=f"{counted(runs, 'run')} in {root.name}",
    )
    if problem is None and not nothing_ran:
        pages.write(root / ANALYSIS_NOTEBOOK, root / INDEX, page)
        return None
    try:
        summary = pages.shown_cell(campaign(collect(root)))
    except SpecbenchError as error:
        summary = pages.shown_cell(missing_notice(str(error)))
    pages.write_node(pages.notebook_of([summary]), root / INDEX, page)
    return problem
