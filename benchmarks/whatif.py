"""How long a moved control takes: the figures, and the picture after them, beside drawing the static cells once.

    python benchmarks/whatif.py [--moves 40] [--json]

One process, one run, CPU time: what a change costs is compared with the notebook's own waterfall and curves, which are
made anew. Targets: the figures in 5% of that, the picture in 20%, and in 60% where its axes get scales that they have
not had. Where the static cells take 0.4 s of CPU, that is 20, 80 and 240 ms. Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

from specbench import frames, plots
from specbench.studies.study import Study, study
from specbench.studies.waterfall import steps
from specbench.whatif.board import Board
from specbench.whatif.controls import changes, controls
from specbench.whatif.outlook import WhatIf
from specbench.whatif.panel import curve_of
from specbench.whatif.picture import Picture

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "0512_dflash_r8_exact"
TARGETS = {"figures": 0.05, "picture": 0.2, "rescaled": 0.6}
_VALUES = ({"requests": 4}, {"requests": 5}, {"tp_size": 2}, {"ratio": 0.9}, {"state_dtype": "bfloat16"})


def cpu_ms(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return 1e3 * (time.process_time() - before)


def static(subject: Study) -> None:
    """The cells of the notebook that draw the same."""
    curve, here = frames.requests_curve_of(subject), frames.runs([subject])
    _, ax = plt.subplots(figsize=(10.2, 5.4))
    plots.waterfall(frames.waterfall(subject), ax=ax)
    _, axes = plt.subplots(1, 2, figsize=(7.7, 4.4))
    plots.requests_curve(curve, "running_requests", run=here, ax=axes[0])
    plots.requests_curve(curve, "kv_tokens", run=here, ax=axes[1])
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    plots.theme()
    subject = study(RECORD)
    what = WhatIf.of(subject.diagnosis)
    shown, before = controls(what), what.with_({})
    board, picture = Board(what, subject, None), Picture(what, before, steps(subject.diagnosis))
    board._painter.want = lambda outlook: None  # type: ignore[method-assign]  # drawn and measured below

    def move(number: int) -> None:
        board._inputs["requests"][-1].value = 1 + number % 30

    def draw(number: int) -> None:
        after = what.with_(changes(what, shown, _VALUES[number % len(_VALUES)]))
        picture.update(after, curve_of(what, after))
        picture.png()

    def rescaled(number: int) -> None:
        picture._still.clear()
        draw(number)

    static(subject)
    draw(0)  # fonts are found once
    taken = {
        name: statistics.median(cpu_ms(lambda n=n, work=work: work(n)) for n in range(arguments.moves))
        for name, work in (("figures", move), ("picture", draw), ("rescaled", rescaled))
    }
    static_ms = min(cpu_ms(lambda: static(subject)) for _ in range(3))
    ratios = {name: ms / static_ms for name, ms in taken.items()}
    missed = any(ratios[name] > target for name, target in TARGETS.items())
    if arguments.json:
        print(json.dumps({"static_ms": static_ms, "ms": taken, "to_static": ratios}, indent=2))
        return int(missed)
    for name, target in TARGETS.items():
        print(f"{name:8} {taken[name]:6.1f} ms of CPU ({ratios[name]:.1%} of the static cells, target {target:.0%})")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
