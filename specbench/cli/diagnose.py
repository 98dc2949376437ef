"""`specbench diagnose`: what happened in a record or a bare log, why, and what to change."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, StrictOption
from .output import make_room, print_json, write_text

if TYPE_CHECKING:
    from ..diagnose.types import Diagnosis


def diagnose(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORD|LOG...",
            help="A record's folder; or a server log (plain, .gz, .zst), - for a paste; or several logs, of the ranks "
            "or nodes of one server.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME|FOLDER", help="Of a log that does not tell: a shipped model, or its config.json."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Of a log that does not tell: the card, e.g. h200.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", metavar="V", help="Of a log that does not tell: e.g. 0.5.16.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            metavar="COMMAND",
            help="Of a log without server_args: how the server was started, e.g. 'sglang serve --model-path … --tp 2'.",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="NAME",
            help="Of a log that several servers wrote: which is meant.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Every remedy in full, whole lines of evidence, the pools of every rank."),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RECORD|LOG", help="The same server without speculation: says whether its acceptance pays."
        ),
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.md",
            help="Write what to send to a maintainer (Markdown, without secrets and home folders); - prints it alone.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="PAGE", help="Write a page with all of it and its pictures (notebook 3_diagnose)."),
    ] = None,
    strict: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """Explain a run: what each pool got, what was asked, resolved and served, why, and what to change.

    \b
    specbench diagnose server.log               a bare log, also server.log.gz or server.log.zst
    specbench diagnose rank0.log rank1.log      the ranks, or the nodes, of one server
    docker logs sglang 2>&1 | specbench diagnose -
    kubectl logs --prefix -l app=sglang | specbench diagnose -
    docker compose logs | specbench diagnose - --server sglang-2
    journalctl -u sglang -o json | specbench diagnose -
    specbench diagnose runs/story/tp1-8         a record

    What containers, journald, Ray and terminals put around a line is taken off by itself. Where it names several
    servers, one is diagnosed: that of --server, else the gravest.

    What a log does not tell is asked for by name: --model, --gpu, --engine-version, --launch. What it says counts.

    A server that failed is an answer too: exit code 0, unless --strict.
    """
    from ..diagnose.diagnosis import of_paths
    from ..diagnose.told import told_by
    from .diagnosis_page import kept
    from .reading_bar import pasted, reading_bar, wanted

    if pasted(sources):
        typer.echo("Paste the log, then press Ctrl-D (on Windows: Ctrl-Z and Enter).", err=True)
    report_alone = str(report_file) == "-"
    if report_file is not None and not report_alone:
        make_room("--report", report_file)
    told = told_by(model=model, gpu=gpu, version=engine_version, launch=launch, server=server)
    with kept(sources, until_written=html) as files:
        with reading_bar(files) if wanted(files, json_output=json_output) else nullcontext():
            found = of_paths(files, told=told)
        if against is not None:
            from ..diagnose.against import with_other

            found = with_other(found, against)
        if report_file is not None:
            _report(found, None if report_alone else report_file)
        if not report_alone:
            _answer(found, json_output=json_output, everything=everything)
        if html is not None:
            from ..campaign.diagnosis_page import write_page
            from ..workbook.quick import only_notebooks

            only_notebooks()
            write_page(html, found.name, files, told=told, against=against)
    if not json_output and not report_alone:
        if report_file is not None:
            typer.echo(f"Written to {report_file}: read it before you send it.")
        if html is not None:
            typer.echo(f"page: {html}")
    if strict and any(finding.severity in ("fatal", "costly") for finding in found.findings):
        raise typer.Exit(1)


def _report(found: Diagnosis, file: Path | None) -> None:
    """The text for the engine's maintainers; None: to standard output."""
    from ..diagnose.maintainer import report

    text = report(found).text
    if file is None:
        typer.echo(text, nl=False)
    else:
        write_text("--report", file, text)


def _answer(found: Diagnosis, *, json_output: bool, everything: bool) -> None:
    if json_output:
        from ..diagnose.document import to_document

        print_json(to_document(found))
    else:
        from rich.console import Console

        from .diagnosis_text import render

        render(found, Console(), everything=everything)
