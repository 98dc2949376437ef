"""How long a command takes to answer: `--help` and `predict`, beside a bare Python start on the same machine.

    python benchmarks/startup.py [--repeats 7] [--json]

Wall time of whole processes, best of several, in turns: load that comes and goes hits all of them. The first round is
not counted: it writes the bytecode, which whoever uses the package has on disk. Targets, as multiples of a bare start
(some 25 ms on a machine of today): `--help` 10 (a quarter of a second), `predict` 40 (a second). Exit code 1 when one
is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "specbench --help": ["-m", "specbench", "--help"],
    "specbench predict": ["-m", "specbench", "predict", "params/story/tp1-8.yaml"],
    "specbench predict --json": ["-m", "specbench", "predict", "params/story/tp1-8.yaml", "--json"],
}
TARGETS = {"specbench --help": 10, "specbench predict": 40, "specbench predict --json": 40}


def best_of(repeats: int) -> dict[str, float]:
    """Seconds of the fastest run of each. Raises when a command fails: a fast failure is no answer."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats + 1):
        for name, arguments in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    return {name: min(measured[1:]) for name, measured in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds = best_of(arguments.repeats)
    bare = seconds["python -c pass"]
    if arguments.json:
        print(json.dumps({name: {"seconds": s, "ratio_to_python": s / bare} for name, s in seconds.items()}, indent=2))
    else:
        for name, value in seconds.items():
            target = f", target {TARGETS[name]}" if name in TARGETS else ""
            print(f"{name:<26} {value:6.3f} s   {value / bare:5.1f} × a bare Python start{target}")
    return 0 if all(seconds[name] / bare <= target for name, target in TARGETS.items()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
