"""Coverage-guided fuzzing of everything that `specbench diagnose` does with a text: `make fuzz SECONDS=600`.

    python -m tests.fuzz.fuzz_log [libFuzzer options] [corpus folder]

Seeds are the shipped logs, copied to .fuzz/seeds. An error that is no refusal, a control character in what is printed,
or an input that takes more than -timeout seconds (by the clock, of instrumented code) stops it; the input is then in
crash-… or timeout-…, the beginning of a test.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["specbench"], enable_loader_override=False):
    from tests.fuzz.asking import SEEDS, answered, mutated


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the time by lines and figures, half of the time by bytes."""
    dice = random.Random(seed)
    if dice.random() < 0.5:
        return mutated(data, dice)[:max_size]
    return bytes(atheris.Mutate(data, max_size))


def main() -> None:
    # libFuzzer ends the process itself: a temporary folder would be left behind.
    folder = Path(".fuzz") / "seeds"
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (folder / f"{number}.log").write_bytes(seed.read_bytes())
    options = ["-max_len=65536", "-timeout=120", "-rss_limit_mb=2048", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], str(folder)], answered, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
