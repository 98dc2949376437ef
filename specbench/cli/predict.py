"""`specbench predict`: what a configuration will get, before anything is started."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonOption, ParamsArgument, SetOption, StrictOption


def predict(
    params: ParamsArgument,
    overrides: SetOption = None,
    pre_gib: Annotated[
        float | None,
        typer.Option("--pre-gib", metavar="GIB", help="Free before the weights load, as measured (smallest rank)."),
    ] = None,
    post_gib: Annotated[
        float | None,
        typer.Option("--post-gib", metavar="GIB", help="Free when the pools are sized, as measured (smallest rank)."),
    ] = None,
    strict: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """Predict pools and limits of a configuration: no GPU, no engine, no measurement needed.

    Example: specbench predict params/story/tp1-8.yaml --set memory.max_running_requests=4

    A refused configuration is an answer too: exit code 0, unless --strict.
    """
    from ..budget import predict as budget_of
    from ..params import load_run
    from ..units import GIB, Interval

    def given(figure: float | None) -> Interval | None:
        return None if figure is None else Interval.exact(round(figure * GIB))

    config = load_run(params, overrides or ())
    budget = budget_of(config, pre_bytes=given(pre_gib), post_bytes=given(post_gib))
    if json_output:
        import json

        from ..budget_json import to_document

        typer.echo(json.dumps(to_document(budget), indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        from .budget_text import render

        render(budget, Console())
    if strict and budget.verdict != "serves":
        raise typer.Exit(1)
