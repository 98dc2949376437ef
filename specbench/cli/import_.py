"""`specbench import`: recordings of other tools, and runs from another machine -> records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, pairs
from .output import print_json

if TYPE_CHECKING:
    from ..importing.recording import Facts
    from ..records.record import RunRecord


def import_records(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A recording of another tool, a run of specbench, or a folder of them."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Records are written to DIR/<name>.")],
    facts: Annotated[
        Path | None,
        typer.Option("--facts", metavar="YAML", help="What the folders do not say: gpu, models, versions, machine."),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Runs of specbench: before the name of each.")
    ] = "",
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            help="Runs of specbench: replaces the name of a folder of their machine, in every file of a record.",
        ),
    ] = None,
    replays: Annotated[
        Path | None,
        typer.Option(
            "--replays",
            metavar="DIR",
            help="Runs of specbench: a params file DIR/<name>.yaml for each as well, which plays the record.",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Make records to keep: of another tool's recordings, or of runs that specbench itself made on another machine.

    Examples: specbench import recordings --facts tests/records/facts.yaml --out runs/imported;
    specbench import runs/h200 --out tests/records --prefix h200_ --rename /home/me=/srv --replays params/recordings
    """
    from ..importing.recording import load_facts
    from ..paths import resolve

    source = resolve(folder, kind="folder")
    known = None if facts is None else load_facts(resolve(facts, kind="facts file"))
    records = _kept(source, out, known, prefix, renames(rename or ()), replays)
    if json_output:
        rows = [
            {"name": r.name, "folder": str(r.folder), "status": r.status.status, "requests": len(r.requests())}
            for r in records
        ]
        print_json({"schema": 1, "records": rows})
    else:
        _print_table(records)


def _kept(
    source: Path, out: Path, facts: Facts | None, prefix: str, renamed: dict[str, str], replays: Path | None
) -> Sequence[RunRecord]:
    """Runs of specbench where the folder holds some, else recordings of another tool."""
    from ..errors import ConfigError
    from ..importing.adopting import adopt_all, kept_names, record_folders
    from ..importing.recording import import_all
    from ..importing.replaying import make_room, write_replays
    from ..records.record import RunRecord

    runs = record_folders(source)
    if runs:
        if replays is not None:
            make_room(kept_names(map(RunRecord.open, runs), prefix), replays)
        reworded, corrected = ({}, {}) if facts is None else (facts.reworded, facts.corrected)
        records = adopt_all(source, out, prefix=prefix, renamed=renamed, reworded=reworded, corrected=corrected)
        if replays is not None:
            write_replays(records, replays)
        return records
    if prefix or renamed or replays:
        raise ConfigError(
            f"{source}: no run of specbench in it.\n--prefix, --rename and --replays are for such; recordings of other "
            "tools keep their names and texts."
        )
    if facts is None:
        raise ConfigError(
            f"{source}: no run of specbench in it.\nA recording of another tool also needs --facts FACTS.yaml."
        )
    return import_all(source, out, facts)


def _print_table(records: Sequence[RunRecord]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("record", "status", "requests", "reason", title="imported records")
    for record in records:
        count = str(len(record.requests())) if record.requests() else "none (load only)"
        table.add_row(escape(record.name), record.status.status, count, escape(record.status.reason))
    Console().print(table)


def renames(given: Iterable[str]) -> dict[str, str]:
    """Old text -> new, of `--rename`. ConfigError for anything else."""
    return pairs(
        given,
        lambda text: f"--rename: got {text!r}.\nExpected OLD=NEW, the text that is replaced and what is put there.",
    )
