"""Arguments and options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError

RunArgument = Annotated[
    Path, typer.Argument(metavar="PARAMS", help="A params file of one run, e.g. params/story/tp1-8.yaml.")
]
ParamsArgument = Annotated[
    Path, typer.Argument(metavar="PARAMS", help="A params file: a run or a campaign, e.g. params/story/tp1-8.yaml.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Override a key of the params file (repeatable), e.g. --set memory.max_running_requests=8.",
    ),
]
MachineOption = Annotated[
    Path | None,
    typer.Option(
        "--machine",
        metavar="FILE",
        help="What is where on this machine, so that params files need not tell (YAML: engines by version, with python "
        "and env; models by name, each a folder).",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs (docs/json.md) instead of text for people.")
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 unless everything that was asked is served (for scripts).")
]


def pairs(given: Iterable[str], problem: Callable[[str], str]) -> dict[str, str]:
    """`NAME=VALUE` of a repeatable option. ConfigError with the text of `problem` (two lines) for anything else."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigError(problem(text))
        found[name] = value
    return found
