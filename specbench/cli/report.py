"""`specbench report`: pages anew from records. The run itself is never repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption
from .output import print_json


def report(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs, e.g. runs/demo.")],
    json_output: JsonOption = False,
) -> None:
    """Diagnose the records of a folder again and rebuild its HTML pages (after an update of specbench, say).

    Example: specbench report runs/demo

    Exit code 1 when a page could not be made as it should.
    """
    from ..campaign.batch import report_folder
    from ..paths import resolve
    from .campaign_text import Screen, report_line

    root = resolve(runs, kind="runs")
    with Screen(root.name, quiet=json_output) as screen:
        index, problems = report_folder(root, screen.show)
    if json_output:
        written = str(index) if index.is_file() else None
        print_json({"schema": 1, "index": written, "problems": list(problems)})
    else:
        for problem in problems:
            typer.echo(f"problem: {problem}", err=True)
        typer.echo(report_line(index))
    if problems:
        raise typer.Exit(1)
