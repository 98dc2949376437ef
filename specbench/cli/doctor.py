"""`specbench doctor`: what this machine can do, and what the installed engine has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from .options import JsonOption, pairs
from .output import print_json


def doctor(
    python: Annotated[
        str | None,
        typer.Option("--engine", "--python", metavar="PYTHON", help="Interpreter that has the engine. Default: this."),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="A variable for the engine alone (repeatable), as engine.env."
        ),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Ask the engine's own --help as well, which imports it: up to a minute."),
    ] = False,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="Remove what killed runs left in the temporary folder and in shared memory."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Say what this machine can do: Python, packages, GPUs, the engine with its algorithms and flags, ports.

    Example: specbench doctor --engine /opt/sglang/bin/python --env PYTHONPATH=/opt/sglang/site
    """
    from ..lifecycle.examination import examine, to_document

    if clean:
        from ..lifecycle import temporary

        temporary.sweep()
    found = examine(python, _variables(variables or []), thorough=thorough)
    if json_output:
        print_json(to_document(found))
    else:
        from rich.console import Console

        from .doctor_text import render

        render(found, Console())


def _variables(given: Iterable[str]) -> dict[str, str]:
    return pairs(
        given, lambda text: f"--env: got {text[:80]!r}.\nExpected NAME=VALUE, e.g. --env PYTHONPATH=/opt/sglang/site."
    )
