"""`specbench plan`: what to set so that a server does what is wished."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, SetOption
from .output import make_room, print_json, refuse_to_replace, write_text

if TYPE_CHECKING:
    from ..configuration.config import RunConfig
    from ..planning.types import Answer
    from ..planning.wishes import Wishes


def plan(
    params: Annotated[
        Path | None,
        typer.Argument(metavar="PARAMS", help="A params file of one run, or a record; left out: --model and --gpu."),
    ] = None,
    want: Annotated[
        list[str] | None,
        typer.Option(
            "--want",
            metavar="NAME=VALUE",
            help="A wish (repeatable): running_requests, context (tokens of each request), kv_tokens, algorithm, "
            "draft_tokens (the least), state_dtype, kv_dtype, prefix_cache, slack_gib. Without running_requests: as "
            "many as possible.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="KIND",
            help="A kind of change that is not made (repeatable): slots, ratio, fraction, state_dtype, kv_dtype, "
            "draft_tokens, strategy, radix, graphs.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="A shipped model (the organisation may be left out), or a folder with config.json."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="The card, a row of specbench/data/gpus.yaml: rtx-pro-6000, h200, 5090, …"),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="How many cards there are.")] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="The speculative algorithm: DFLASH, NEXTN, … (as --want).")
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft", help="The draft model of the algorithm, where it needs one that is not shipped for the model."
        ),
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="The SGLang version; without PARAMS: 0.5.23.")
    ] = None,
    overrides: SetOption = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the plan's params file (YAML), a new one.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --write: replace a file that is there.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PAGE", help="Write a page with the answer and its pictures (notebook 5_plan)."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 unless a plan surely reaches it (for scripts).")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """What to set: settings that reach the wishes on 1, 2, 4 and 8 GPUs, cheapest change first.

    Example: specbench plan --model Qwen/Qwen3.6-27B --gpu rtx-pro-6000 --gpus 2 --algorithm DFLASH
    --want running_requests=8 --want context=32768

    Of a configuration that you have: specbench plan params/story/tp1-8.yaml --want running_requests=8

    Each plan is predicted like 'specbench predict' does; "none" is an answer too, with the nearest: exit code 0,
    unless --strict.
    """
    from ..errors import ConfigError
    from ..planning.search import plan as search
    from ..planning.wishes import parse

    for option, file in (("--write", write), ("--html", html)):
        if file is not None:
            make_room(option, file)
    if write is not None and html is not None and write.resolve() == html.resolve():
        raise ConfigError(f"--write {write}: --html names the same file.\nGive each a file of its own.")
    if write is not None and not force:
        refuse_to_replace("--write", write)
    wishes = parse([*(want or ()), *([] if algorithm is None else [f"algorithm={algorithm}"])])
    if params is None:
        config, notes = _from_options(model, gpu, gpus, version, draft, wishes, overrides or [])
    else:
        config, notes = _from_file(params, model, gpu, version, overrides or []), ()
    answer = search(config, wishes, gpus=gpus, keep=keep or [], draft=draft, notes=notes)
    if write is not None:
        _write(answer, write)
    if html is not None:
        from ..campaign.plan_page import write_page

        write_page(html, config, wishes, gpus=gpus, keep=keep or [], draft=draft)
    if json_output:
        from ..planning.document import to_document

        print_json(to_document(answer))
    else:
        from rich.console import Console

        from .plan_text import render

        render(answer, Console())
        if write is not None and answer.best is not None:
            typer.echo(f"params file: {write}")
        if html is not None:
            typer.echo(f"page: {html}")
    if strict and (answer.best is None or answer.best.certainty != "sure"):
        raise typer.Exit(1)


def _from_file(params: Path, model: str | None, gpu: str | None, version: str | None, given: list[str]) -> RunConfig:
    """The run of a params file, or of a record's folder; options are laid over it."""
    from ..gpus import gpu_by_usual_name
    from ..params import build_run, load_run
    from ..paths import resolve
    from ..records.record import RunRecord
    from ..specs import by_usual_name

    model, gpu = (model and by_usual_name(model)), (gpu and gpu_by_usual_name(gpu))
    over = [("model", model), ("gpu.name", gpu), ("engine.version", version)]
    changes = [*(f'{key}="{value}"' for key, value in over if value is not None), *given]
    place = resolve(params, kind="params file or record")
    if not place.is_dir():
        return load_run(place, changes)
    return build_run(RunRecord.open(place).config.stated(), changes, place.name)


def _from_options(
    model: str | None,
    gpu: str | None,
    gpus: int | None,
    version: str | None,
    draft: str | None,
    wishes: Wishes,
    overrides: list[str],
) -> tuple[RunConfig, tuple[str, ...]]:
    from ..errors import ConfigError
    from ..planning.begin import NEWEST, from_scratch

    if model is None or gpu is None:
        missing = "--model" if model is None else "--gpu"
        raise ConfigError(
            f"plan: no params file, and no {missing}.\n"
            "Give PARAMS, or --model and --gpu, e.g. --model Qwen/Qwen3.6-27B --gpu rtx-pro-6000 --gpus 2."
        )
    return from_scratch(
        model=model,
        gpu=gpu,
        gpus=1 if gpus is None else gpus,
        version=version or NEWEST,
        algorithm=wishes.algorithm or "none",
        draft=draft,
        context=wishes.context,
        overrides=overrides,
    )


def _write(answer: Answer, file: Path) -> None:
    """The params file of the plan to take, of a real start. Nothing is written when there is none."""
    from ..params import dump_run

    best = answer.best
    if best is None:
        typer.echo(f"{file} is not written: there is no plan.", err=True)
        return
    name = best.config.name if best.config.name == "plan" else f"{best.config.name}-plan"
    # A record was made with other settings: played, it would not show what these do.
    config = best.config.replace({"name": name, "engine.replay": None, "engine.replay_speed": 1.0})
    write_text("--write", file, dump_run(config))
