"""A budget for the terminal: limits, then terms, each with its formula. In: a budget. Out: rich tables on a console."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..budget_types import MemoryBudget
from ..units import GIB, Interval, format_gib

_COLOURS = {"serves": "green", "capped": "yellow", "refused": "red"}
_UNKNOWN = "not predicted"


def render(budget: MemoryBudget, console: Console) -> None:
    """Everything that is predicted, per rank."""
    colour = _COLOURS[budget.verdict]
    console.print(f"[bold]{escape(budget.name)}[/]  {escape(f'{budget.engine} {budget.version}')}, {budget.rule}")
    console.print(f"predicted: [bold {colour}]{budget.verdict}[/]  {escape(budget.reason)}")
    others = [verdict for verdict in budget.verdicts if verdict != budget.verdict]
    if others:
        console.print(f"within the interval of free memory also: {', '.join(others)}")
    if budget.engine_error is not None:
        console.print(f"the engine would raise: [red]{escape(budget.engine_error)}[/]")
    console.print()
    console.print(_limits(budget))
    console.print(_terms(budget))
    _formulas(budget, console)
    console.print(
        f"basis: {_basis(budget)}. Free before loading {_size(budget.free.pre)}, free when sizing "
        f"{_size(budget.free.post)}; {escape(budget.free.source)}."
    )
    for warning in budget.warnings:
        console.print(f"[yellow]note[/]: {escape(warning)}")


def _limits(budget: MemoryBudget) -> Table:
    table = _table("limit", "predicted, count")
    for limit, predicted in budget.limits.items():
        value = predicted.value
        spread = "" if value is None or value.is_exact else f"{value.low:,} to {value.high:,}"
        table.add_row(limit, _UNKNOWN if value is None else f"{value.point:,}", spread)
    return table


def _terms(budget: MemoryBudget) -> Table:
    table = _table("term", "predicted, GiB per rank")
    for term, predicted in budget.terms.items():
        value = predicted.bytes
        spread = "" if value is None or value.is_exact else f"{value.low / GIB:,.2f} to {value.high / GIB:,.2f}"
        table.add_row(term, _UNKNOWN if value is None else f"{value.point / GIB:,.2f}", spread)
    return table


def _table(name: str, value: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column(name, style="bold", no_wrap=True)
    table.add_column(value, justify="right", no_wrap=True)
    table.add_column("can be", no_wrap=True)
    return table


def _formulas(budget: MemoryBudget, console: Console) -> None:
    """How each figure comes about, in words and in figures."""
    console.print("[bold]how each figure comes about[/]")
    lines: list[tuple[str, str, str]] = [(name, limit.formula, limit.numbers) for name, limit in budget.limits.items()]
    lines += [(name, term.formula, term.numbers) for name, term in budget.terms.items()]
    for name, formula, numbers in lines:
        figures = f": {numbers}" if numbers else ""
        console.print(f"  [bold]{name}[/]  {escape(formula)}[dim]{escape(figures)}[/]")
    console.print()


def _basis(budget: MemoryBudget) -> str:
    return "the configuration alone, nothing measured" if budget.basis == "config" else "measured free memory"


def _size(value: Interval) -> str:
    if value.is_exact:
        return format_gib(value.point)
    return f"{format_gib(value.point)} ({value.low / GIB:.2f} to {value.high / GIB:.2f})"
