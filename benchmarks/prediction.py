"""How many configurations `predict` sizes per second, beside loading the same configurations' params.

    python benchmarks/prediction.py [--configurations 400] [--json]

One process, one run: the ratio says what a planner that searches thousands of points has to pay per point. Target: at
most 150 times the validation of a point, which takes some 40 µs. Exit code 1 when it is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.params import load_run

STORY = Path(__file__).resolve().parent.parent / "params" / "story" / "tp1-8.yaml"

TARGET = 150


def points(base: RunConfig, count: int) -> list[dict[str, object]]:
    grid = itertools.product(range(1, 33), (0.5, 0.9, 1.5), (4, 8, 16), (False, True))
    return [
        {
            "memory.max_running_requests": requests,
            "memory.mamba_full_memory_ratio": ratio,
            "speculative.num_draft_tokens": drafts,
            "memory.disable_overlap_schedule": overlap,
        }
        for requests, ratio, drafts, overlap in itertools.islice(grid, count)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    base = load_run(STORY)
    changes = points(base, arguments.configurations)
    predict(base)  # the model's files are read once

    started = time.perf_counter()
    configurations = [base.replace(change) for change in changes]
    replaced = time.perf_counter()
    budgets = [predict(configuration) for configuration in configurations]
    done = time.perf_counter()

    validate_s, predict_s = replaced - started, done - replaced
    result = {
        "configurations": len(configurations),
        "verdicts": {v: sum(b.verdict == v for b in budgets) for v in ("serves", "capped", "refused")},
        "validated_per_s": len(configurations) / validate_s,
        "predicted_per_s": len(configurations) / predict_s,
        "predict_to_validate": predict_s / validate_s,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0 if result["predict_to_validate"] <= TARGET else 1
    print(f"{result['configurations']} configurations: {result['verdicts']}")
    print(f"validated {result['validated_per_s']:8.0f} per second")
    ratio = result["predict_to_validate"]
    print(f"predicted {result['predicted_per_s']:8.0f} per second ({ratio:.1f} × validating, target {TARGET})")
    return 0 if result["predict_to_validate"] <= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
