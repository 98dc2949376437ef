"""`specbench run`: one configuration or a campaign, from params file to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, MachineOption, ParamsArgument, SetOption, StrictOption


def run(
    params: ParamsArgument,
    overrides: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder of the campaign; default runs/<campaign> (SPECBENCH_RUNS names another folder than runs).",
        ),
    ] = None,
    machine: MachineOption = None,
    strict: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """Run every configuration of a params file, diagnose each, and write HTML pages.

    Example: specbench run params/demo.yaml

    A configuration that is refused or crashes is a result, not an error: exit code 0 when every configuration left a
    record (with --strict: when every one served what was asked) and every page was written, else 1.
    """
    import signal
    import sys

    from ..batch import run_campaign
    from ..machine_file import placed
    from ..params import load_campaign
    from .campaign_text import Screen, document, summary

    campaign = placed(load_campaign(params, overrides or ()), machine)

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    # A service manager ends with SIGTERM; the same clean way out as Ctrl-C.
    signal.signal(signal.SIGTERM, end)
    with Screen(campaign.name, quiet=json_output) as screen:
        result = run_campaign(campaign, out, screen.show)
    if json_output:
        import json

        typer.echo(json.dumps(document(result), indent=2, ensure_ascii=False))
    else:
        summary(result)
    if not result.complete or result.problems or (strict and not result.all_served):
        raise typer.Exit(1)
