"""`specbench import`: recordings made by other tools -> records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption


def import_records(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="One foreign recording, or a folder that holds several.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Records are written to DIR/<name>.")],
    facts: Annotated[
        Path,
        typer.Option("--facts", metavar="YAML", help="What the folders do not say: gpu, models, versions, machine."),
    ],
    json_output: JsonOption = False,
) -> None:
    """Convert recordings of another tool into records that can be diagnosed, compared and replayed.

    Example: specbench import recordings --facts tests/records/facts.yaml --out runs/imported
    """
    from ..importing import import_all, load_facts
    from ..paths import resolve

    records = import_all(resolve(folder, kind="folder"), out, load_facts(resolve(facts, kind="facts file")))
    if json_output:
        import json

        rows = [
            {"name": r.name, "folder": str(r.folder), "status": r.status.status, "requests": len(r.requests())}
            for r in records
        ]
        typer.echo(json.dumps({"schema": 1, "records": rows}, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("record", "status", "requests", "reason", title="imported records")
    for record in records:
        count = str(len(record.requests())) if record.requests() else "none (load only)"
        table.add_row(escape(record.name), record.status.status, count, escape(record.status.reason))
    Console().print(table)
