"""`make oracle`: SGLang's own sizing code and `specbench predict`, asked the same random questions.

Example: python -m oracle.compare 0.5.12 0.5.23 --examples 2000 --seed 1

Exit code 1 on a difference: the smallest configuration that still differs is written as a params file. 2: a release is
not installed, or its driver failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings

from .differing import explain
from .draws import points
from .engines import HERE, RELEASES, Engine, EngineError
from .points import NOT_COMPARED, Point, differences, engine_said, predicted
from .store import kept, write

_STORED = 220  # answers of a release that CI compares with
_DRAWN = 4  # at most so many draws for each configuration that is compared


class _Enough(KeyboardInterrupt):
    """The configurations asked for are compared. (Hypothesis lets an interrupt through at once.)"""


def main() -> int:
    asked = _arguments()
    differing = 0
    for version in asked.versions:
        started, number = time.monotonic(), asked.seed
        with Engine(version, asked.venv) as engine:
            found = _compared(engine, asked.examples, number, store=asked.store)
        took = time.monotonic() - started
        outcomes, untold, point = found
        told = ", ".join(f"{count:,} {kind}" for kind, count in outcomes.most_common())
        print(f"{version}: {outcomes.total():,} configurations ({told}; {untold:,} more not compared), ", end="")
        print(f"{'0 differences' if point is None else 'a difference'}, seed {number}, {took:.0f} s", flush=True)
        if point is not None:
            differing += 1
            _report(version, point, asked.venv)
    return 1 if differing else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("versions", nargs="*", default=list(RELEASES), choices=[*RELEASES, []], metavar="VERSION")
    parser.add_argument("--examples", type=int, default=2000, help="configurations per release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--venv", type=Path, default=HERE / ".venv", help="where `make oracle` installed the engines")
    parser.add_argument(
        "--store", action="store_true", help=f"keep {_STORED} answers per release for CI (tests/oracle)"
    )
    return parser.parse_args()


def _compared(engine: Engine, examples: int, number: int, *, store: bool) -> tuple[Counter[str], int, Point | None]:
    """Outcomes by kind; how many of which one side cannot tell; the smallest point that differs (None: none does).

    `examples` different configurations are compared: those that repeat (hypothesis varies what it has drawn), and those
    of which one side cannot tell, are drawn beside them and do not count.
    """
    outcomes: Counter[str] = Counter()
    untold = 0
    differing: list[Point] = []
    answers: list[tuple[Point, dict[str, object]]] = []
    drawn: set[str] = set()

    @seed(number)
    @settings(
        max_examples=_DRAWN * examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(points(engine.version, engine.served))
    def compare(point: Point) -> None:
        nonlocal untold
        if not differing and outcomes.total() >= examples:
            raise _Enough
        if not differing and point.key in drawn:
            return
        drawn.add(point.key)
        ours = predicted(point)
        said = None if ours["refused"] in NOT_COMPARED else engine_said(engine.ask(point.question))
        if said is None or said["refused"] in NOT_COMPARED:
            untold += 1 if not differing else 0
            return
        if not differing:
            outcomes["served" if said["refused"] is None else f"refused ({said['refused']})"] += 1
        if differences(ours, said):
            differing.append(point)
            raise AssertionError("differs")
        answers.append((point, said))

    try:
        compare()
    except _Enough:
        pass
    except AssertionError:
        return outcomes, untold, differing[-1]
    if store:
        write(engine.version, kept(answers, _STORED))
    return outcomes, untold, None


def _report(version: str, point: Point, venv: Path) -> None:
    with Engine(version, venv) as engine:
        said = engine_said(engine.ask(point.question))
    ours = predicted(point)
    for line in explain(ours, said):
        print("  " + line)
    file = Path(f"oracle-difference-{version}.yaml")
    file.write_text(yaml.safe_dump(dict(point.sections), sort_keys=False), encoding="utf-8")
    print(
        f"  card {point.card_mib:,} MiB; free before loading {point.pre_bytes:,} B, when sizing {point.post_bytes:,} B"
    )
    free = f"--pre-gib {point.pre_bytes / 2**30!r} --post-gib {point.post_bytes / 2**30!r}"
    if ours.get("fraction") is not None and "mem_fraction_static" not in point.sections["memory"]:
        free += f" --set memory.mem_fraction_static={ours['fraction']}"  # the file's GPU has another size
    print(f"  specbench predict {file} {free}")
    sys.stdout.flush()


try:
    sys.exit(main())
except EngineError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
