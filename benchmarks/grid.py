"""How fast a table of configurations is predicted, beside `predict` one by one.

    python benchmarks/grid.py [--points 1000000] [--json]

Four tables: numbers alone (requests, ratio, fraction; one combination to resolve), the planner's (also versions,
algorithms, ranks, types, strategies: 192 combinations), the default fraction, which depends on the requests, and one of
unordered rows, each with a random number of everything.
`ratio` is the time of a point by `predict` over the time of a point in the grid, both CPU time of this run; the least
that is expected stands beside it. A sample of points is compared as well: a figure that differs is exit code 1, as is a
missed target.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specbench.budget.grid import predict_grid
from specbench.budget.grid_types import Grid
from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.errors import SpecbenchError
from specbench.terms import LIMITS

_SAMPLE = 200
#: table -> how many times faster than `predict` a point has to be at least. One by one a million takes half an hour.
TARGETS = {"numbers": 500.0, "planner": 500.0, "default fraction": 500.0, "rows": 300.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    table: str
    points: int
    seconds: float  # of the whole grid, CPU time
    grid_us: float  # of a point
    predict_us: float
    ratio: float
    target: float
    different: int  # points of the sample whose figures are not those of predict


def base(**memory: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "bench",
            "engine": {"version": "0.5.16"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "rtx-pro-6000", "count": 8},
            "speculative": {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"},
            "memory": {"mamba_radix_cache_strategy": "extra_buffer"} | memory,
        }
    )


def numbers(points: int) -> tuple[RunConfig, dict[Any, Any]]:
    return base(), {
        "memory.max_running_requests": range(1, 101),
        "memory.mamba_full_memory_ratio": np.geomspace(0.05, 8, 100),
        "memory.mem_fraction_static": np.linspace(0.4, 0.95, max(1, points // 10_000)),
    }


def planner(points: int) -> tuple[RunConfig, dict[Any, Any]]:
    dflash = ("DFLASH", "z-lab/Qwen3.6-27B-DFlash")
    return base(mem_fraction_static=0.8), {
        "engine.version": ["0.5.12", "0.5.14", "0.5.16", "0.5.23"],
        ("speculative.algorithm", "speculative.draft_model_path"): [("none", None), dflash, ("NEXTN", None)],
        "parallel.tp_size": [1, 2, 4, 8],
        "memory.mamba_ssm_dtype": ["float32", "bfloat16"],
        "memory.mamba_radix_cache_strategy": ["auto", "extra_buffer"],
        "memory.max_running_requests": range(1, 33),
        "memory.mamba_full_memory_ratio": np.geomspace(0.05, 8, max(1, points // 6_144)),
    }


def default_fraction(points: int) -> tuple[RunConfig, dict[Any, Any]]:
    config = base().replace({"engine.version": "0.5.22"})
    return config, {
        "memory.max_running_requests": range(1, 1_001),
        "memory.mamba_full_memory_ratio": np.geomspace(0.05, 8, max(1, points // 1_000)),
    }


def rows(points: int) -> tuple[RunConfig, dict[Any, Any]]:
    dice = random.Random(0)
    keys = {
        "memory.max_running_requests": lambda: dice.randint(1, 64),
        "memory.mamba_full_memory_ratio": lambda: dice.uniform(0.05, 5),
        "memory.mem_fraction_static": lambda: dice.uniform(0.4, 0.95),
        "engine.version": lambda: dice.choice(("0.5.12", "0.5.14", "0.5.16", "0.5.23")),
        "speculative.num_draft_tokens": lambda: dice.randint(1, 20),
    }
    return base(), {tuple(keys): [tuple(draw() for draw in keys.values()) for _ in range(points)]}


TABLES: dict[str, Callable[[int], tuple[RunConfig, dict[Any, Any]]]] = {
    "numbers": numbers,
    "planner": planner,
    "default fraction": default_fraction,
    "rows": rows,
}


def differs(grid: Grid, index: tuple[int, ...], config: RunConfig) -> bool:
    try:
        budget = predict(config)
    except SpecbenchError:
        return grid.verdict.at(index) is not None
    wanted = {name: budget.limits[name].value for name in LIMITS}
    found = {name: grid[name][index] for name in wanted}
    return grid.verdict.at(index) != budget.verdict or any(
        bool(np.ma.is_masked(found[name])) != (value is None) or (value is not None and int(found[name]) != value.point)
        for name, value in wanted.items()
    )


def speed(table: str, points: int) -> Speed:
    config, axes = TABLES[table](points)
    predict_grid(config, {key: list(values)[:2] for key, values in axes.items()})  # models read, numpy imported
    began = time.process_time()
    grid = predict_grid(config, axes)
    seconds = time.process_time() - began
    dice = random.Random(0)
    sample = [tuple(dice.randrange(size) for size in grid.shape) for _ in range(_SAMPLE)]
    configs = [grid.config_at(index) for index in sample]
    began = time.process_time()
    different = sum(differs(grid, index, one) for index, one in zip(sample, configs, strict=True))
    one_by_one = (time.process_time() - began) / _SAMPLE
    return Speed(
        table=table,
        points=grid.size,
        seconds=round(seconds, 2),
        grid_us=round(seconds / grid.size * 1e6, 2),
        predict_us=round(one_by_one * 1e6, 1),
        ratio=round(one_by_one / (seconds / grid.size), 1),
        target=TARGETS[table],
        different=different,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [speed(table, options.points) for table in TABLES]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        head = f"{'table':<18}{'points':>11}{'s':>7}{'grid µs':>9}{'predict µs':>12}{'ratio':>9}{'target':>8}"
        print(f"{head}{'differ':>8}")
        for row in rows:
            print(
                f"{row.table:<18}{row.points:>11,}{row.seconds:>7}{row.grid_us:>9}{row.predict_us:>12}"
                f"{row.ratio:>9,}{row.target:>8}{row.different:>8}"
            )
    return 0 if all(row.ratio >= row.target and not row.different for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
