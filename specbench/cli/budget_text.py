"""A budget for the terminal: verdict, notes, limits, terms, remedies; then the formulas. Out: rich on a console."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..budget.limits import NO_STATE
from ..budget_types import FreeMemory, MemoryBudget
from ..diagnose.finding import Remedy
from ..units import GIB, Interval, format_gib
from .remedies_text import remedies_text

_COLOURS = {"serves": "green", "capped": "yellow", "refused": "red"}
_UNKNOWN = "not predicted"
_LEFT = "left for pools"
_WIDE = 76  # columns


def render(budget: MemoryBudget, remedies: Sequence[Remedy], wanted: int, console: Console) -> None:
    """Everything that is predicted, per rank. `wanted`: running requests that the remedies reach."""
    _head(budget, console)
    console.print()
    console.print(_limits(budget, console.width))
    if budget.predicted_not_multiplied is not None:
        console.print(budget.predicted_not_multiplied)
    console.print(_terms(budget, console.width))
    if budget.verdict != "serves":
        if remedies:
            console.print(remedies_text(remedies, measured="the free memory given"))
        else:
            console.print(f"[bold]no remedy[/]: none of the changes tried serves {wanted:,} requests at once.")
        console.print()
    _formulas(budget, console)


def _head(budget: MemoryBudget, console: Console) -> None:
    colour = _COLOURS[budget.verdict]
    console.print(f"[bold]{escape(budget.name)}[/]  {escape(f'{budget.engine} {budget.version}')}")
    console.print(f"predicted: [bold {colour}]{budget.verdict}[/]  {escape(budget.reason)}")
    if budget.fault is not None:
        console.print(f"[bold red]warning[/]: {escape(budget.fault)}")
    others = [verdict for verdict in budget.verdicts if verdict != budget.verdict]
    if others:
        console.print(f"within the interval of free memory also: {', '.join(others)}")
    if budget.emulation is not None:
        console.print(
            f"[bold yellow]{escape(budget.emulation.banner.upper())}[/]: {escape(budget.emulation.arithmetic)}"
        )
        console.print(f"[yellow]not emulated[/]: {escape('; '.join(budget.emulation.not_emulated))}.")
    if budget.engine_error is not None:
        console.print(f"the engine would raise: [red]{escape(budget.engine_error)}[/]")
    for warning in budget.warnings:
        console.print(f"[yellow]note[/]: {escape(warning)}")
    console.print(
        f"basis: {escape(budget.basis_words)}. Free before loading {_size(budget.free.pre)}, free when sizing "
        f"{_size(budget.free.post)}, as the solver reads them; {escape(budget.free.source)}."
    )
    if budget.basis == "config":
        console.print(f"communication: {escape(_communication(budget.free))}")
    console.print(f"sized by {escape(budget.rule_words)}.")
    if budget.resolved:
        console.print(f"resolved: {escape('; '.join(argument.words for argument in budget.resolved))}.")


def _limits(budget: MemoryBudget, width: int) -> Table:
    table = _table("limit", "predicted, count", width)
    for limit, predicted in budget.limits.items():
        value = predicted.value
        spread = "" if value is None or value.is_exact else f"{value.low:,} to {value.high:,}"
        unknown = "none, no state" if predicted.formula == NO_STATE else _UNKNOWN
        table.add_row(limit, unknown if value is None else f"{value.point:,}", spread)
    return table


def _terms(budget: MemoryBudget, width: int) -> Table:
    """What loading takes, what it leaves for pools, and what becomes of that."""
    table = _table("term", "predicted, GiB per rank", width)
    for term, predicted in budget.terms.items():
        if term == "state_conv" and budget.left is not None:
            table.add_row(_LEFT, *_cells(budget.left.bytes), style="bold")
        value, spread = _cells(predicted.bytes)
        table.add_row(term, value, f"{spread} (estimated)" if predicted.estimated else spread)
    return table


def _cells(value: Interval | None) -> tuple[str, str]:
    if value is None:
        return _UNKNOWN, ""
    low, high = f"{value.low / GIB:z,.2f}", f"{value.high / GIB:z,.2f}"
    return f"{value.point / GIB:z,.2f}", "" if low == high else f"{low} to {high}"


def _table(name: str, value: str, width: int) -> Table:
    """A figure that is cut reads as another one: on a narrow terminal headers are broken, and bounds between words."""
    wide = width >= _WIDE
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column(name, style="bold", no_wrap=True)
    table.add_column(value if wide else value.replace(", ", ",\n"), justify="right", no_wrap=True)
    table.add_column("can be", no_wrap=wide, min_width=len("(estimated)"))
    return table


def _formulas(budget: MemoryBudget, console: Console) -> None:
    """How each figure comes about, in words and in figures."""
    console.print("[bold]how each figure comes about[/]")
    lines: list[tuple[str, str, str]] = []
    if budget.left is not None:
        lines.append((_LEFT, budget.left.formula, budget.left.numbers))
    lines += [(name, limit.formula, limit.numbers) for name, limit in budget.limits.items()]
    lines += [(name, term.formula, term.numbers) for name, term in budget.terms.items()]
    for name, formula, numbers in lines:
        figures = f": {numbers}" if numbers else ""
        console.print(f"  [bold]{name}[/]  {escape(formula)}[dim]{escape(figures)}[/]")


def _communication(free: FreeMemory) -> str:
    """What is gone from the free memory before loading already."""
    found = free.communication
    if found is None:
        return f"what the distributed init takes before that was {free.communication_elsewhere}."
    return (
        f"{_size(found.bytes)} per rank are taken before that, by the distributed init once the CUDA context stands, "
        f"and are not in the free memory; GPU table: {found.source}."
    )


def _size(value: Interval) -> str:
    low, high = f"{value.low / GIB:z.2f}", f"{value.high / GIB:z.2f}"
    return format_gib(value.point) if low == high else f"{format_gib(value.point)} ({low} to {high})"
