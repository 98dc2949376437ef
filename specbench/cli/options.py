"""Arguments and options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..paths import write_whole

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
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


def make_room(option: str, file: Path) -> None:
    """The folder of a file that will be written, before the work: its seconds are not spent for nothing.
    ConfigError: it cannot be there.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{option} {file}: its folder cannot be made: {error.strerror}.\n"
            "Give a file in a folder that can be written."
        ) from error
    if file.is_dir():
        raise ConfigError(f"{option} {file}: is a folder.\nGive a file in it, e.g. {file / option.strip('-')}.")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"{option} {file}: cannot be written.\nGive a file in a folder that can be written.")


def refuse_to_replace(option: str, file: Path) -> None:
    """ConfigError: there is such a file, which somebody may have written by hand. /dev/stdout is none."""
    if file.is_file() and file.parent != Path("/dev"):
        raise ConfigError(f"{option} {file}: is there already.\nGive another file, or --force to replace it.")


def write_text(option: str, file: Path, text: str) -> None:
    """A whole file, or ConfigError and what stood there before."""
    try:
        write_whole(file, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(
            f"{option} {file}: not written: {error.strerror}.\nMake room, or give a file in another folder."
        ) from None
