"""How long a command takes to answer: `--help` and `predict`, beside a bare Python start on the same machine.

    python benchmarks/startup.py [--repeats 7] [--json]

Wall time of whole processes, best of several. Targets: `--help` under 0.3 s, `predict` under 1 s.
"""

from __future__ import annotations

import argparse
import json
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


def best_of(arguments: list[str], repeats: int) -> float:
    """Seconds of the fastest run. Raises when the command fails: a fast failure is no answer."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds = {name: best_of(command, arguments.repeats) for name, command in COMMANDS.items()}
    bare = seconds["python -c pass"]
    if arguments.json:
        print(json.dumps({name: {"seconds": s, "ratio_to_python": s / bare} for name, s in seconds.items()}, indent=2))
        return
    for name, value in seconds.items():
        print(f"{name:<26} {value:6.3f} s   {value / bare:5.1f} × a bare Python start")


if __name__ == "__main__":
    main()
