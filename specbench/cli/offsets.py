"""`specbench offsets`: records of real starts -> rows of specbench/data/offsets.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption


def offsets(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD…", help="Run folders, records, or folders that hold some, e.g. runs/h200."),
    ],
    json_output: JsonOption = False,
) -> None:
    """What a log prints of free memory is not what the solver read. Starts that NVML watched tell the difference.

    Prints rows for specbench/data/offsets.yaml, by which later predictions from such logs become exact. Exit code 1:
    none of the records tells it.

    Example: specbench offsets runs/h200
    """
    from ..errors import RecordError
    from ..paths import resolve
    from ..reading.offset_rows import as_yaml, offset_rows
    from ..records.listing import every_folder
    from ..records.record import RunRecord, has_record

    found: list[RunRecord] = []
    damaged: list[tuple[str, str]] = []
    for path in records:
        folder = resolve(path, kind="record")
        # Runs that a later one replaced are starts too, and their memory was measured.
        whole = has_record(folder)
        several = folder.is_dir() and not whole
        inside = tuple(run for run in every_folder(folder) if has_record(run)) if several else ()
        for place in inside or (folder,):
            try:
                found.append(RunRecord.open(place))
            except RecordError as error:
                if not whole and not inside:
                    raise
                damaged.append((_run_name(place), str(error)))
    told = offset_rows(found, damaged)
    if json_output:
        import json

        rows = [proposal.row for proposal in told.proposals]
        without = [{"record": name, "reason": reason} for name, reason in told.without]
        typer.echo(json.dumps({"schema": 1, "rows": rows, "without": without}, indent=2))
    else:
        typer.echo(as_yaml(told), nl=False)
    if not told.proposals:
        raise typer.Exit(1)


def _run_name(place: Path) -> str:
    """Of a record that cannot be opened: it cannot tell its own."""
    from ..records.record import RECORD

    return place.parent.name if place.name == RECORD else place.name
