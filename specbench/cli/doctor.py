"""`specbench doctor`: what this machine can do."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonOption

#: SGLang's default port; specbench itself takes a free one.
_DEFAULT_PORT = 30000


def doctor(
    python: Annotated[
        str | None, typer.Option("--python", help="Interpreter that has the engine. Default: this one.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Say what this machine can do: Python, packages, GPUs, the engine and its algorithms, free memory, ports.

    Example: specbench doctor --python /opt/sglang/bin/python
    """
    from .. import machine

    gpu_state, in_use = machine.gpus(), machine.gpu_use()
    engine = machine.engine(python)
    packages = machine.packages()
    port_free = machine.port_is_free(_DEFAULT_PORT)
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
            "engine": {"name": "sglang", **asdict(engine)},
            "default_port": {"port": _DEFAULT_PORT, "free": port_free},
            "can": can,
        }
        typer.echo(json.dumps(document, indent=2))
        return

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..gpu_use import holders_words
    from ..units import format_gib

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Python", machine.python_version())
    for name, version in packages.items():
        table.add_row(name, version or "[yellow]not installed[/] (pip install -e '.\\[notebook,test]')")
    for gpu in gpu_state.gpus:
        memory = f"{format_gib(gpu.free_bytes)} free of {format_gib(gpu.total_bytes)} (measured now)"
        table.add_row(f"GPU {gpu.index}", f"{escape(gpu.name)}, {memory}")
    for use in () if isinstance(in_use, str) else in_use:
        table.add_row("", escape(holders_words(use)))
    if gpu_state.reason:
        table.add_row("GPU", f"[yellow]none[/]: {escape(gpu_state.reason)}")
    if gpu_state.driver:
        table.add_row("driver", gpu_state.driver)
    if engine.version:
        known = ", ".join(engine.algorithms) if engine.algorithms else "could not be read from its source"
        table.add_row("sglang", f"{engine.version}, torch {engine.torch or 'not installed'}")
        table.add_row("algorithms", known)
    else:
        table.add_row("sglang", f"[yellow]none[/]: {escape(engine.reason or 'unknown')}")
    table.add_row(f"port {_DEFAULT_PORT}", "free" if port_free else "taken (specbench picks a free one)")
    console = Console()
    console.print(table)
    console.print()
    for ability, possible in can.items():
        console.print(f"{'[green]yes[/]' if possible else '[red]no [/]'}  {ability}")
