"""`specbench notebooks`: store the verdicts that nbval compares, or check that they are what they should be."""

from __future__ import annotations

from typing import Annotated

import typer


def notebooks(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when something would change.")] = False,
) -> None:
    """Execute the notebooks with their default parameters and store the outputs that are compared; strip the rest.

    Example: specbench notebooks --check
    """
    from ..workbook.hygiene import problems
    from ..workbook.notebooks import NAMES, refresh, source
    from ..workbook.quick import only_notebooks

    only_notebooks()
    found: list[str] = []
    for name in NAMES:
        path = source(name)
        fresh = refresh(path)
        if fresh != path.read_bytes():
            if check:
                found.append(f"{name}: its stored outputs are not what it prints now (run 'specbench notebooks')")
            else:
                path.write_bytes(fresh)
                typer.echo(f"{name}: refreshed")
        found += problems(path)
    for problem in found:
        typer.echo(problem, err=True)
    if found:
        raise typer.Exit(1)
    typer.echo(f"{len(NAMES)} notebooks: clean")
