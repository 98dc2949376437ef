"""What commands write beside the terminal's text: JSON for programs, files whose place is checked before the work."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from ..errors import ConfigError
from ..paths import write_whole


def print_json(document: object) -> None:
    """For programs, so valid JSON: a figure that is no number is a bug of ours (ValueError)."""
    import json

    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


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
