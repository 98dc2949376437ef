"""A campaign that no machine has run yet: each of its starts, asked of SGLang's own sizing code.

Example: python -m oracle.compare.campaigns params/h200-tp4.yaml params/h200-tp8.yaml --store

In: params files. Out: a line for each start with what the engine resolves, and the differences. The free memory is what
specbench predicts from the configuration alone, of the card that is there: a server with the budget of a smaller card
is asked with the fraction that it would be passed. Exit code 1 on a difference, 2 where a release is not installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from specbench.configuration.config import RunConfig
from specbench.errors import SpecbenchError
from specbench.gpus import load_gpu
from specbench.params import load_campaign
from specbench.running.subject import predicted as budget_of

from .differing import explain
from .engines import HERE, Engine, EngineError
from .points import Point, engine_said, predicted
from .store import STORED, Answer, write

#: Answers of campaigns, a file each.
CAMPAIGNS = STORED / "campaigns"


def point_of(run: RunConfig) -> Point:
    """With the free memory that is predicted from the configuration alone."""
    budget = budget_of(run)
    if budget is None:
        raise SystemExit(f"oracle: {run.name}: not predicted.\nExpected a configuration of a known model and card.")
    pre, post, emulated = budget.free.pre.point, budget.free.post.point, budget.emulation
    if emulated is not None:
        run = run.replace({"gpu.emulate": None, "memory.mem_fraction_static": emulated.passed})
        pre, post = emulated.host_free_bytes, emulated.host_free_bytes - (pre - post)
    card_mib = load_gpu(run.gpu.name).total_mib
    return Point(sections=run.to_sections(), card_mib=card_mib, pre_bytes=pre, post_bytes=post)


def answers(runs: Iterable[RunConfig], venv: Path) -> Iterator[Answer]:
    """Each release is started once, as soon as a start asks for it."""
    engines: dict[str, Engine] = {}
    with ExitStack() as open_engines:
        for run in runs:
            version = run.engine.version
            if version not in engines:
                engines[version] = open_engines.enter_context(Engine(version, venv))
            point = point_of(run)
            yield point, engine_said(engines[version].ask(point.question))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m oracle.compare.campaigns", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("campaigns", nargs="+", type=Path, metavar="PARAMS")
    parser.add_argument("--venv", type=Path, default=HERE / ".venv", help="where `make oracle` installed the engines")
    parser.add_argument("--store", action="store_true", help="keep the answers for CI (tests/oracle/campaigns)")
    asked = parser.parse_args()
    differing = 0
    for file in asked.campaigns:
        campaign = load_campaign(file)
        found = list(answers(campaign.runs, asked.venv))
        for point, said in found:
            different = list(explain(predicted(point), said))
            differing += bool(different)
            figures = ", ".join(f"{name} {said.get(name)}" for name in ("slots", "requests", "tokens"))
            told = figures if said["refused"] is None else said["refused"]
            print(f"{campaign.name} {point.sections['name']} ({point.config.engine.version}): {told}", flush=True)
            print("".join(f"  {line}\n" for line in different), end="", flush=True)
        if asked.store:
            write(campaign.name, found, CAMPAIGNS)
    print(f"{differing} differences")
    return 1 if differing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (EngineError, SpecbenchError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
