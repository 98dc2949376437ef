"""`specbench doctor`: what this machine can do, and what the installed engine has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption, pairs

if TYPE_CHECKING:
    from rich.table import Table

    from ..host.gpu_use import InUse
    from ..host.machine import EngineState, GpuState

#: SGLang's default port; specbench itself takes a free one.
_DEFAULT_PORT = 30000


def doctor(
    python: Annotated[
        str | None,
        typer.Option("--engine", "--python", metavar="PYTHON", help="Interpreter that has the engine. Default: this."),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="A variable for the engine alone (repeatable), as engine.env."
        ),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Ask the engine's own --help as well, which imports it: up to a minute."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Say what this machine can do: Python, packages, GPUs, the engine with its algorithms and flags, ports.

    Example: specbench doctor --engine /opt/sglang/bin/python --env PYTHONPATH=/opt/sglang/site
    """
    from ..host import machine, processes
    from ..lifecycle import leftovers, temporary

    env = _variables(variables or [])
    gpu_state, in_use = machine.gpus(), machine.gpu_use()
    engine = machine.engine(python, env=env)
    found = _engine(engine, machine.engine_help(python, env=env) if thorough and engine.has else None)
    packages = machine.packages()
    port_free = processes.why_not_bindable("127.0.0.1", _DEFAULT_PORT) is None
    left, folders = leftovers.left_over(), temporary.left_over()
    can = {
        "predict, diagnose, replay": True,
        "notebooks and reports": all(packages[name] for name in ("papermill", "pandas", "matplotlib", "seaborn")),
        "start real servers": engine.version is not None and bool(gpu_state.gpus),
    }
    if json_output:
        import json
        from dataclasses import asdict

        document = {
            "schema": 1,
            "python": machine.python_version(),
            "packages": packages,
            "gpus": [asdict(gpu) for gpu in gpu_state.gpus],
            "gpu_memory_in_use": None if isinstance(in_use, str) else [asdict(use) for use in in_use],
            "driver": gpu_state.driver,
            "gpu_reason": gpu_state.reason,
            "engine": found,
            "left_over": [{"pid": pid, "name": name} for pid, name in left.items()],
            "left_over_folders": [str(folder) for folder in folders],
            "default_port": {"port": _DEFAULT_PORT, "free": port_free},
            "can": can,
        }
        typer.echo(json.dumps(document, indent=2))
        return

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Python", machine.python_version())
    for name, version in packages.items():
        table.add_row(name, version or "[yellow]not installed[/] (pip install -e '.\\[notebook,test]')")
    for numbers, words in _cards(gpu_state, () if isinstance(in_use, str) else in_use):
        table.add_row(f"GPU {numbers}", escape(words))
    if gpu_state.reason:
        table.add_row("GPU", f"[yellow]none[/]: {escape(gpu_state.reason)}")
    if gpu_state.driver:
        table.add_row("driver", gpu_state.driver)
    _add_engine(table, found)
    table.add_row(f"port {_DEFAULT_PORT}", "free" if port_free else "taken (specbench picks a free one)")
    if left:
        table.add_row("processes", f"[red]{escape(leftovers.in_words(left))}[/]")
    if folders:
        table.add_row("left behind", escape(temporary.in_words(folders)))
    console = Console()
    console.print(table)
    console.print()
    for ability, possible in can.items():
        console.print(f"{'[green]yes[/]' if possible else '[red]no [/]'}  {ability}")


def _cards(state: GpuState, in_use: Sequence[InUse]) -> Iterator[tuple[str, str]]:
    """(numbers, what they are and who holds their memory); cards alike together: eight are not read one by one."""
    from ..host.gpu_use import holders_words
    from ..rank_names import numbers_in_words
    from ..units import format_gib

    held = {use.gpu: holders_words(use) for use in in_use}
    alike: dict[str, list[int]] = {}
    for gpu in state.gpus:
        memory = f"{format_gib(gpu.free_bytes)} free of {format_gib(gpu.total_bytes)} (measured now)"
        words = f"{gpu.name}, {memory}" + (f"\n{held[gpu.index]}" if gpu.index in held else "")
        alike.setdefault(words, []).append(gpu.index)
    for words, gpus in alike.items():
        yield numbers_in_words(gpus), words


def _variables(given: Iterable[str]) -> dict[str, str]:
    return pairs(
        given, lambda text: f"--env: got {text[:80]!r}.\nExpected NAME=VALUE, e.g. --env PYTHONPATH=/opt/sglang/site."
    )


def _engine(state: EngineState, told: Any) -> dict[str, Any]:
    """The engine as the JSON document has it. Unknown is None."""
    from ..engines.sglang.fits import lacking

    has = state.has
    flags = has.flags if has else None
    algorithms = has.algorithms if has else None
    source = has.source if has else None
    asked: dict[str, Any] | None = None
    if isinstance(told, str):
        asked = {"algorithms": None, "flags": None, "reason": told}
    elif told is not None:
        count = None if told.flags is None else len(told.flags)
        asked = {"algorithms": told.algorithms, "flags": count, "reason": None}
        if flags is None and told.flags is not None:
            flags, source = told.flags, told.source
        algorithms = algorithms or told.algorithms
    return {
        "name": "sglang",
        "python": state.python,
        "version": state.version,
        "torch": state.torch,
        "reason": state.reason,
        "is_missing": state.is_missing,
        "folder": state.folder,
        "plugins": list(state.plugins),
        "algorithms": None if algorithms is None else list(algorithms),
        "flags": None if flags is None else len(flags),
        "known_from": source,
        "lacks": None if flags is None else lacking(flags),
        "help": asked,
    }


def _add_engine(table: Table, found: Mapping[str, Any]) -> None:
    from rich.markup import escape

    if found["folder"] is None:
        table.add_row("sglang", f"[yellow]none[/]: {escape(found['reason'] or 'unknown')}")
        return
    version = found["version"] or "[yellow]version unknown[/] (set engine.version to the release that it is)"
    table.add_row("sglang", f"{version}, torch {found['torch'] or 'not installed'}, in {escape(found['folder'])}")
    unread = "[yellow]could not be read[/] from its source; --thorough asks the engine itself"
    table.add_row("algorithms", ", ".join(map(escape, found["algorithms"])) if found["algorithms"] else unread)
    table.add_row("flags", f"{found['flags']:,}" if found["flags"] else unread)
    if found["lacks"] is not None:
        lacks = ", ".join(f"{key} ({flag})" for key, flag in found["lacks"].items())
        table.add_row("keys without flag", escape(lacks) or "none: every key of a params file has its flag there")
    if found["plugins"]:
        table.add_row("plug-ins", f"{escape(', '.join(found['plugins']))}: may add algorithms, flags and choices")
    if found["help"] is not None:
        asked = found["help"]
        table.add_row("its --help", escape(asked["reason"] or f"{asked['flags'] or 'no'} flags"))
