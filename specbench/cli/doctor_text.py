"""What this machine can do, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..host.gpu_use import InUse, holders_words
from ..host.machine import GpuState
from ..lifecycle import leftovers, temporary
from ..lifecycle.examination import DEFAULT_PORT, Engine, Examination
from ..rank_names import numbers_in_words
from ..units import format_gib


def render(found: Examination, console: Console) -> None:
    """A row per thing, then what it all is good for."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("Python", found.python)
    for name, version in found.packages.items():
        table.add_row(name, version or "[yellow]not installed[/] (pip install -e '.\\[notebook,test]')")
    for numbers, words in _cards(found.gpus, () if isinstance(found.in_use, str) else found.in_use):
        table.add_row(f"GPU {numbers}", escape(words))
    if found.gpus.reason:
        table.add_row("GPU", f"[yellow]none[/]: {escape(found.gpus.reason)}")
    if found.gpus.driver:
        table.add_row("driver", found.gpus.driver)
    for name, words in _engine(found.engine):
        table.add_row(name, words)
    table.add_row(f"port {DEFAULT_PORT}", "free" if found.port_free else "taken (specbench picks a free one)")
    if found.left_over:
        table.add_row("processes", f"[red]{escape(leftovers.in_words(found.left_over))}[/]")
    if found.left_over_folders:
        table.add_row("left behind", escape(temporary.in_words(found.left_over_folders)))
    console.print(table)
    console.print()
    for ability, possible in found.can.items():
        console.print(f"{'[green]yes[/]' if possible else '[red]no [/]'}  {ability}")


def _cards(state: GpuState, in_use: Sequence[InUse]) -> Iterator[tuple[str, str]]:
    """(numbers, what they are and who holds their memory); cards alike together: eight are not read one by one."""
    held = {use.gpu: holders_words(use) for use in in_use}
    alike: dict[str, list[int]] = {}
    for gpu in state.gpus:
        memory = f"{format_gib(gpu.free_bytes)} free of {format_gib(gpu.total_bytes)} (measured now)"
        words = f"{gpu.name}, {memory}" + (f"\n{held[gpu.index]}" if gpu.index in held else "")
        alike.setdefault(words, []).append(gpu.index)
    for words, gpus in alike.items():
        yield numbers_in_words(gpus), words


def _engine(found: Engine) -> Iterator[tuple[str, str]]:
    """(what, markup of it)."""
    if found.folder is None:
        yield "sglang", f"[yellow]none[/]: {escape(found.reason or 'unknown')}"
        return
    version = escape(found.version or "") or "[yellow]version unknown[/] (set engine.version to the release that it is)"
    yield "sglang", f"{version}, torch {escape(found.torch or 'not installed')}, in {escape(found.folder)}"
    if found.sizing is not None:
        yield "sizing", f"[yellow]{escape(found.sizing)}[/]"
    unread = "[yellow]could not be read[/] from its source; --thorough asks the engine itself"
    yield "algorithms", ", ".join(map(escape, found.algorithms)) if found.algorithms else unread
    yield "flags", f"{found.flags:,}" if found.flags else unread
    if found.lacks is not None:
        lacks = ", ".join(f"{key} ({flag})" for key, flag in found.lacks.items())
        yield "keys without flag", escape(lacks) or "none: every key of a params file has its flag there"
    if found.plugins:
        yield "plug-ins", f"{escape(', '.join(found.plugins))}: may add algorithms, flags and choices"
    if found.help is not None:
        yield "its --help", escape(found.help.reason or f"{found.help.flags or 'no'} flags")
