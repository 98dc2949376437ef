"""`specbench offsets`: records of real starts -> rows of the tables in specbench/data that such starts fill."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .output import print_json

if TYPE_CHECKING:
    from ..records.record import RunRecord


class Table(enum.StrEnum):
    """A file of specbench/data."""

    offsets = "offsets"
    gpus = "gpus"
    durations = "durations"


def offsets(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD…", help="Run folders, records, or folders that hold some, e.g. runs/h200."),
    ],
    table: Annotated[
        Table,
        typer.Option(
            "--table",
            help="gpus: what is free before loading and what communication takes, by card and number of GPUs; "
            "durations: how long starts take.",
        ),
    ] = Table.offsets,
    json_output: JsonOption = False,
) -> None:
    """What a log prints of free memory is not what the solver read. Starts that NVML watched tell the difference.

    Prints rows for specbench/data/offsets.yaml, by which later predictions from such logs become exact; with --table
    those that the same starts give another table there. Exit code 1: none of the records tells it.

    Example: specbench offsets runs/h200
    """
    found, damaged = _opened(records)
    proposed, text, without = _rows(table, found, damaged)
    if json_output:
        reasons = [{"record": name, "reason": reason} for name, reason in without]
        print_json({"schema": 1, "rows": proposed, "without": reasons})
    else:
        typer.echo(text, nl=False)
    if not proposed:
        raise typer.Exit(1)


def _opened(paths: list[Path]) -> tuple[list[RunRecord], list[tuple[str, str]]]:
    """The records, and those of folders that cannot be read, by name and why. What is named itself has to be one."""
    from ..errors import ConfigError, RecordError
    from ..gpus import load_gpu
    from ..paths import resolve
    from ..records.folders import has_record
    from ..records.listing import every_folder
    from ..records.record import RunRecord

    found: list[RunRecord] = []
    damaged: list[tuple[str, str]] = []
    for path in paths:
        folder = resolve(path, kind="record")
        # Runs that a later one replaced are starts too, and their memory was measured.
        whole = has_record(folder)
        several = folder.is_dir() and not whole
        inside = tuple(run for run in every_folder(folder) if has_record(run)) if several else ()
        for place in inside or (folder,):
            try:
                record = RunRecord.open(place)
                load_gpu(record.config.gpu.name)  # of a card that is not in the table nothing is read
                found.append(record)
            except (RecordError, ConfigError) as error:
                if not whole and not inside:
                    raise
                damaged.append((_run_name(place), str(error)))
    return found, damaged


def _rows(
    table: Table, found: list[RunRecord], damaged: list[tuple[str, str]]
) -> tuple[object, str, tuple[tuple[str, str], ...]]:
    """Rows as data and as text, and which records give none."""
    match table:
        case Table.offsets:
            from ..reading import offset_rows

            measured = offset_rows.offset_rows(found, damaged)
            rows = [proposal.row for proposal in measured.proposals]
            return rows, offset_rows.as_yaml(measured), measured.without
        case Table.gpus:
            from ..reading import gpu_rows

            seen = gpu_rows.gpu_rows(found, damaged)
            return seen.rows, gpu_rows.as_yaml(seen), seen.without
        case Table.durations:
            from ..reading import duration_rows

            timed = duration_rows.duration_rows(found, damaged)
            return list(timed.rows), duration_rows.as_yaml(timed), timed.without


def _run_name(place: Path) -> str:
    """Of a record that cannot be opened: it cannot tell its own."""
    from ..records.folders import RECORD

    return place.parent.name if place.name == RECORD else place.name
