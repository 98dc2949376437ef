"""`specbench predict`: what a configuration will get, before a start, and what to change when it falls short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, RunArgument, SetOption, StrictOption
from .output import print_json

if TYPE_CHECKING:
    from ..budget_types import MemoryBudget
    from ..configuration.config import RunConfig
    from ..diagnose.finding import Remedy


def predict(
    params: RunArgument,
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

    A refused configuration is an answer too, and one that a known fault ends: exit code 0, unless --strict.
    """
    from ..budget.predict import predict as budget_of
    from ..engines.sglang.per_worker import wanted_of_worker
    from ..load.foreseen import of_workload
    from ..params import load_run
    from ..units import GIB, Interval

    def given(option: str, figure: float | None) -> Interval | None:
        if figure is not None and not 0 < figure < 1e6:
            raise typer.BadParameter(f"{figure:g} is no size of GPU memory in GiB.", param_hint=option)
        return None if figure is None else Interval.exact(round(figure * GIB))

    config = load_run(params, overrides or ())
    budget = budget_of(config, pre_bytes=given("--pre-gib", pre_gib), post_bytes=given("--post-gib", post_gib))
    wanted, remedies = wanted_of_worker(config), _remedies(config, budget)
    warnings = of_workload(config, budget)
    if json_output:
        from ..budget.to_json import to_document
        from ..diagnose.remedy_document import remedy_document

        document = to_document(budget)
        document |= {
            "remedies": [remedy_document(remedy) for remedy in remedies],
            "warnings": [*([] if budget.fault is None else [budget.fault]), *document["warnings"], *warnings],
        }
        print_json(document)
    else:
        from rich.console import Console
        from rich.text import Text

        from .budget_text import render

        console = Console()
        render(budget, remedies, wanted, console)
        for warning in warnings:
            console.print(Text(warning, style="yellow"), soft_wrap=True, highlight=False)
    if strict and (budget.verdict != "serves" or budget.fault is not None):
        raise typer.Exit(1)


def _remedies(config: RunConfig, budget: MemoryBudget) -> tuple[Remedy, ...]:
    if budget.verdict == "serves":
        return ()  # before the planner is imported, which takes a quarter of the command's time
    from ..diagnose.remedies import remedies
    from ..diagnose.trying import before_start

    return remedies(before_start(config, budget))
