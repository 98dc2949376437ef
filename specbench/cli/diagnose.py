"""`specbench diagnose`: what happened in a record or a bare log, why, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, StrictOption


def diagnose(
    source: Annotated[
        Path,
        typer.Argument(metavar="RECORD|LOG", help="A record's folder, a server log (.log, .gz), or - for a paste."),
    ],
    strict: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """Explain a run: what each pool got, what was asked, resolved and served, why, and what to change.

    Works on a bare server log: specbench diagnose server.log

    A server that failed is an answer too: exit code 0, unless --strict.
    """
    from ..diagnose.diagnosis import of_path

    found = of_path(source)
    if json_output:
        import json

        from ..diagnose.document import to_document

        typer.echo(json.dumps(to_document(found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from rich.console import Console

        from .diagnosis_text import render

        render(found, Console())
    if strict and any(finding.severity in ("fatal", "costly") for finding in found.findings):
        raise typer.Exit(1)
