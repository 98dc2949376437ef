"""python -m specbench.replay RECORD --port N [--host H] [--speed X|instant]: plays a record until SIGTERM.

Any client may ask it. One that does not say under which load it measures is answered from the first recorded step of
the asked lengths; the header `X-Specbench-Concurrency: 8` chooses (SGLang's own benchmark client sends it with
`--header X-Specbench-Concurrency=8`).

What it plays, when it is ready and where it listens is said on standard error, except where the log goes to the same
place (a file, not a terminal): a played log stays byte for byte what was recorded.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TextIO

from ..errors import SpecbenchError


def speed(text: str) -> float | None:
    """'2' -> twice as fast as recorded; 'instant' -> None."""
    if text == "instant":
        return None
    factor = float(text)
    if not factor > 0:
        raise argparse.ArgumentTypeError("a factor above 0, or instant")
    return factor


def said_apart(log: TextIO, words: TextIO) -> bool:
    """Whether words can be said without a trace in the log."""
    if words.isatty():
        return True
    mine, theirs = os.fstat(words.fileno()), os.fstat(log.fileno())
    return (mine.st_dev, mine.st_ino) != (theirs.st_dev, theirs.st_ino)


def say(text: str) -> None:
    sys.stderr.write(f"specbench.replay: {text}\n")
    sys.stderr.flush()


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m specbench.replay", description=__doc__)
    options.add_argument("record", type=Path, help="a record, or a run folder that has one")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--speed", type=speed, default=1.0, help="how much faster than recorded, or 'instant'")
    given = options.parse_args()
    from .server import serve

    told = say if said_apart(sys.stdout, sys.stderr) else None
    try:
        return serve(given.record, host=given.host, port=given.port, speed=given.speed, say=told)
    except SpecbenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
