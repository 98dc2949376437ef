"""Time that specbench adds to a configuration, beside the engine's start and end and the requests; where it goes.

    python benchmarks/overhead.py [--records dflash_r8 …] [--speed instant 20] [--rounds 2] [--json]
    python benchmarks/overhead.py --campaign runs/h200

The first plays recordings one after the other in one worker, as a campaign of real engines does, and times each part:
run notebook, diagnosis notebook, both pages; after them the front page and the bare command. Target: under 6 s of wall
time per configuration, the best of the rounds, without what other work on this machine adds: how many times its own CPU
time a process that only imports takes, just before and after, is divided out (1 on a quiet machine). The second reads a
campaign that was run, such as one on a GPU, and says what share of its wall time was specbench's; target: under 5 %.
Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from specbench.campaign import report
from specbench.campaign.runs import run_point
from specbench.params import load_run
from specbench.reading.spent import DIAGNOSIS, RUN, Spent, spent
from specbench.records import listing
from specbench.records.record import RunRecord
from specbench.studies.study import collect
from specbench.workbook.notebooks import source

ROOT = Path(__file__).resolve().parent.parent
TARGET_S, TARGET_SHARE = 6.0, 0.05
RECORDS = ("nospec_r4", "dflash_r8")
#: What follows the run of a configuration is made for several at a time, when all have run; one at a time is counted.
PARTS = (
    ("engine", "engine start and end, requests"),
    ("run_kernel", "run notebook: papermill, start and end of its kernel"),
    ("run_imports", "run notebook: imports"),
    ("run_cells", "run notebook: prediction, tables"),
    ("capture", "run notebook: checks, captures, writing the record"),
    ("diagnosis_kernel", "diagnosis: papermill, start and end of its kernel"),
    ("diagnosis_imports", "diagnosis: imports"),
    ("diagnosis_cells", "diagnosis: figures and tables"),
    ("pages", "two pages"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Seconds of one configuration, by the names of `PARTS`."""

    name: str
    seconds: dict[str, float]
    cpu_s: float  # of this process and all that it started
    waiting: float = 1.0  # wall time / CPU time of a process that only computes, on this machine just then

    @property
    def quiet_s(self) -> float:
        """What it would take if nothing else ran."""
        return self.own_s / self.waiting

    @property
    def own_s(self) -> float:
        return math.fsum(value for part, value in self.seconds.items() if part != "engine")


def cells(notebook: Path) -> dict[str, float]:
    """Seconds of each cell by its id, as papermill noted them."""
    content = json.loads(notebook.read_text("utf-8"))["cells"]
    noted = {cell.get("id", ""): cell["metadata"].get("papermill", {}).get("duration") for cell in content}
    return {name: float(seconds) for name, seconds in noted.items() if seconds is not None}


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    problem = work()
    took_s = time.perf_counter() - began
    if problem is not None:
        raise SystemExit(str(problem))
    return took_s


def cpu_s() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def waiting(repeats: int = 2) -> tuple[float, float]:
    """Wall and CPU seconds of processes that only import what a diagnosis needs."""
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    for _ in range(repeats):
        subprocess.run([sys.executable, "-c", "import pandas, matplotlib.pyplot"], check=True)
    return time.perf_counter() - began_s, cpu_s() - began_cpu_s


def split(record: str, speed: str, root: Path) -> Split:
    """Runs one configuration into `root` and writes its pages, part by part, as a worker does."""
    replay_speed = speed if speed == "instant" else float(speed)
    config = load_run(ROOT / "params" / "recordings" / f"{record}.yaml").replace({"engine.replay_speed": replay_speed})
    folder = root / record
    folder.mkdir(parents=True)
    before_s, before_cpu_s = waiting()
    cpu_began_s = cpu_s()
    run_s = timed(lambda: run_point(config, folder))
    listing.begin(root, record, folder, {})
    pages_s = timed(lambda: report.write_run(folder))
    took_cpu_s = cpu_s() - cpu_began_s
    after_s, after_cpu_s = waiting()
    slower = max(1.0, (before_s + after_s) / (before_cpu_s + after_cpu_s))
    engine_s = spent(folder, RunRecord.open(folder)).engine_s or 0.0
    run, diagnosis = cells(folder / RUN), cells(folder / DIAGNOSIS)
    run_cells, diagnosis_cells = math.fsum(run.values()), math.fsum(diagnosis.values())
    diagnosis_s = spent(folder, RunRecord.open(folder)).diagnosis_s or 0.0
    seconds = {
        "engine": engine_s,
        "run_kernel": run_s - run_cells,
        "run_imports": run["imports"],
        "run_cells": run_cells - run["imports"] - run["run"],
        "capture": run["run"] - engine_s,
        "diagnosis_kernel": diagnosis_s - diagnosis_cells,
        "diagnosis_imports": diagnosis["imports"],
        "diagnosis_cells": diagnosis_cells - diagnosis["imports"],
        "pages": pages_s - diagnosis_s,
    }
    return Split(name=f"{record}, {speed}", seconds=seconds, cpu_s=took_cpu_s, waiting=slower)


def once(records: Sequence[str], speeds: Sequence[str]) -> tuple[list[Split], float]:
    """Every configuration, and the seconds of the front page over all."""
    with tempfile.TemporaryDirectory(prefix="specbench-overhead-") as folder:
        splits: list[Split] = []
        front_s = math.inf
        for speed in speeds:
            root = Path(folder) / f"speed-{speed}"
            splits += [split(record, speed, root) for record in records]
            front_s = min(front_s, timed(lambda root=root: report.write_index(root)))  # type: ignore[misc]
        return splits, front_s


def command_s() -> float:
    """A command that only loads the campaign code: the interpreter, imports, the terminal."""
    code = "import specbench.cli.run, specbench.campaign.batch, specbench.cli.campaign_text"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return time.perf_counter() - began


def best(rounds: Sequence[Sequence[Split]]) -> list[Split]:
    """Of each configuration the round in which specbench took least."""
    return [min(same, key=lambda one: one.quiet_s) for same in zip(*rounds, strict=True)]


def play(given: argparse.Namespace) -> int:
    import nbconvert  # noqa: F401  a worker loads them once for all its configurations
    import papermill  # noqa: F401

    source(RUN)
    found = [once(given.records, given.speed) for _ in range(given.rounds)]
    splits, front_s = best([splits for splits, _ in found]), min(front_s for _, front_s in found)
    start_s = min(command_s() for _ in range(given.rounds))
    met = all(one.quiet_s <= TARGET_S for one in splits)
    if given.json:
        rows = [
            {
                "name": one.name,
                "seconds": one.seconds,
                "own_s": one.own_s,
                "waiting": one.waiting,
                "quiet_s": one.quiet_s,
                "cpu_s": one.cpu_s,
            }
            for one in splits
        ]
        print(json.dumps({"configurations": rows, "front_page_s": front_s, "command_s": start_s, "met": met}, indent=1))
        return 0 if met else 1
    wide = max(len(words) for _, words in PARTS)
    print("seconds".ljust(wide), *(f"{one.name:>20}" for one in splits))
    for part, words in PARTS:
        print(words.ljust(wide), *(f"{one.seconds[part]:>20.2f}" for one in splits))
    print("specbench, per configuration".ljust(wide), *(f"{one.own_s:>20.2f}" for one in splits))
    print("other work here: times longer".ljust(wide), *(f"{one.waiting:>20.2f}" for one in splits))
    print("specbench, without that".ljust(wide), *(f"{one.quiet_s:>20.2f}" for one in splits))
    print("CPU time, all processes".ljust(wide), *(f"{one.cpu_s:>20.2f}" for one in splits))
    print(f"target: {TARGET_S:g} s; once per campaign: command {start_s:.2f} s, front page {front_s:.2f} s")
    return 0 if met else 1


def of_campaign(folder: Path) -> int:
    """The share of specbench in the wall time of runs that were made."""
    rows: list[tuple[str, Spent]] = [
        (study.name, spent(study.folder, study.record)) for study in collect(folder).studies
    ]
    rows = [(name, one) for name, one in rows if one.own_s is not None]
    if not rows:
        raise SystemExit(f"{folder}: no run with a record and its run notebook")
    print(f"{'run':<32}{'engine s':>10}{'specbench s':>13}{'diagnosis s':>13}{'share':>8}")
    for name, one in rows:
        diagnosis = "not run" if one.diagnosis_s is None else f"{one.diagnosis_s:.1f}"
        print(f"{name:<32}{one.engine_s or 0:>10.1f}{one.own_s or 0:>13.1f}{diagnosis:>13}{one.own_share or 0:>8.1%}")
    own_s = math.fsum(one.own_s or 0.0 for _, one in rows)
    whole_s = math.fsum(one.run_s or 0.0 for _, one in rows)
    print(f"specbench: {own_s:.1f} of {whole_s:.1f} s while the engine's machine was held, {own_s / whole_s:.1%}")
    pages_s = covered_s([*folder.glob(f"*/{DIAGNOSIS}"), *folder.glob(report.ANALYSIS_NOTEBOOK)])
    share = (own_s + pages_s) / (whole_s + pages_s)
    print(f"with the diagnoses and the analysis, {pages_s:.1f} s: {share:.1%}; target: {TARGET_SHARE:.0%}")
    return 0 if share <= TARGET_SHARE else 1


def covered_s(notebooks: Sequence[Path]) -> float:
    """Wall seconds during which at least one of these notebooks was executed: several are at a time."""
    spans = sorted(_span(notebook) for notebook in notebooks)
    total_s, until_s = 0.0, -math.inf
    for begin_s, end_s in spans:
        total_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def _span(notebook: Path) -> tuple[float, float]:
    noted = json.loads(notebook.read_text("utf-8"))["metadata"]["papermill"]
    begin, end = (datetime.fromisoformat(noted[name]).timestamp() for name in ("start_time", "end_time"))
    return begin, end


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", nargs="+", default=list(RECORDS), help="names in params/recordings")
    options.add_argument("--speed", nargs="+", default=["instant", "20"], help="replay speeds")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--campaign", type=Path, help="a folder of runs that were made")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    return of_campaign(given.campaign) if given.campaign else play(given)


if __name__ == "__main__":
    raise SystemExit(main())
