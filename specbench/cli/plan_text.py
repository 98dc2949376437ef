"""An answer for the terminal: what to do first, its command line, then the alternatives and why others fail."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..planning.commands import difference, shell_line
from ..planning.types import LEVELS, Answer, Plan, Size
from ..planning.words import (
    CERTAIN_OF,
    also_asked,
    at_most,
    bases,
    cards,
    cautions,
    certainty,
    cheaper,
    flags,
    headline,
    needs,
    of_size,
    prices,
    reached,
    rests_on,
    tokens_each,
    why_plain_fails,
)
from ..units import counted, format_gib

_WIDE = 76  # columns of a terminal
_LONGEST = len("--speculative-num-draft-tokens")  # flags and their values are words of the table: none is broken
_SHOWN_PLANS = 5
_LEVELS = ("asked", "slots", "fraction")
_ONLY_ASKED = "only the asked number"
_MARKS = {"sure": "[green]sure[/]", "likely": "[yellow]likely[/]"}


def render(answer: Answer, console: Console) -> None:
    """The whole answer."""
    found, words = headline(answer)
    given = answer.given
    console.print(f"[bold]{escape(given.name)}[/]  {escape(f'{given.engine.name} {given.engine.version}')}")
    console.print(Text(words, style="bold green" if found else "bold red"), highlight=False)
    best = answer.best or answer.beyond
    if best is not None:
        _best(answer, best, console)
    console.print()
    console.print(f"needed: {escape(needs(answer))}.", highlight=False)
    console.print(_sizes(answer, console.width))
    levels = "; ".join(f"[bold]{name}[/]: {LEVELS[name]}" for name in _LEVELS)
    more = " * more cards than there are." if any(size.gpus > answer.gpus for size in answer.sizes) else ""
    console.print(f"most: requests at once (in brackets: surely). {levels}.{more}", highlight=False)
    for text in filter(None, (also_asked(answer), CERTAIN_OF, bases(answer))):
        console.print(f"{escape(text)}.", highlight=False)
    for size in answer.sizes:
        _size(answer, size, console)
    for note in answer.notes:
        console.print(f"[yellow]note[/]: {escape(note)}", highlight=False)


def _best(answer: Answer, best: Plan, console: Console) -> None:
    style = "green" if best.certainty == "sure" else "yellow"
    console.print(Text(f"{certainty(best)}.", style=style), highlight=False)
    console.print(Text(f"predicted: {reached(best.budget)}.", style=style), highlight=False)
    console.print(f"predicted from {escape(rests_on(best))}.", highlight=False)
    if (other := cheaper(answer)) is not None:
        console.print(f"{escape(other)}.", highlight=False)
    if best.costs:
        console.print(f"against the settings as they are: {escape('; '.join(best.costs))}.", highlight=False)
    for warning in cautions(best):
        console.print(f"[yellow]note[/]: {escape(warning)}", highlight=False)
    gone, come = difference(answer.given, best.config)
    if gone or come:
        console.print("\n[bold]flags that change[/]")
        for text in gone:
            console.print(Text(f"  - {text}", style="red"), soft_wrap=True, highlight=False)
        for text in come:
            console.print(Text(f"  + {text}", style="green"), soft_wrap=True, highlight=False)
    console.print("\n[bold]command[/]")
    console.print(Text(shell_line(best.config)), soft_wrap=True, highlight=False)


def _sizes(answer: Answer, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("ranks", style="bold", no_wrap=True)
    table.add_column("cheapest that reaches it", overflow="fold", min_width=_LONGEST if width >= _WIDE else 9)
    table.add_column("", no_wrap=True)
    table.add_column(f"most: {' / '.join(_LEVELS)}", min_width=17 if width >= 56 else 9)  # wraps between figures
    for size in answer.sizes:
        owned = "" if size.gpus <= answer.gpus else " *"
        if size.impossible is not None:
            table.add_row(f"TP{size.tp_size}", f"[dim]{escape(size.impossible)}[/]", "", "")
            continue
        first = next(iter(size.plans), None)
        by_level = {most.level: at_most(most) for most in size.most}
        table.add_row(
            f"TP{size.tp_size}{owned}",
            "[red]none[/]" if first is None else escape(flags(first, whole=False) or _ONLY_ASKED),
            "" if first is None else _MARKS[first.certainty],
            " / ".join(by_level.get(level, "") for level in _LEVELS),
        )
    return table


def _size(answer: Answer, size: Size, console: Console) -> None:
    """Alternatives and failures of a number of ranks; nothing where the settings do as they are."""
    lines = list(of_size(answer, size))
    if size.impossible is not None or not (lines or size.failures or len(size.plans) > 1):
        return
    console.print(f"\n[bold]TP{size.tp_size}[/] on {escape(cards(answer, size.gpus))}", highlight=False)
    for sentence in lines:
        console.print(escape(sentence), highlight=False)
    if size.plans:
        for line in _plans(answer, size):
            console.print(line, highlight=False)
    if size.plans and size.tried:
        more = len(size.plans) - _SHOWN_PLANS
        told = f"; {more} more with --json" if more > 0 else ""
        rest = "the whole grid was gone through" if size.complete else "the search stopped with these"
        console.print(f"{size.tried:,} candidates predicted, {rest}{told}.", style="dim", highlight=False)
    if size.failures:
        console.print("why the plain alternatives fail:")
        for tried, why in why_plain_fails(size):
            console.print(f"  [bold]{escape(tried)}[/]: {escape(why)}", highlight=False)


def _plans(answer: Answer, size: Size) -> Iterator[Text]:
    """Alternatives, two lines each: the flags, and what they reach and cost."""
    most = answer.wishes.running_requests is None
    for plan in size.plans[:_SHOWN_PLANS]:
        line = Text.from_markup(f"  {_MARKS[plan.certainty]} ")
        line.append(flags(plan, whole=most) or ("as it is" if most else _ONLY_ASKED), style="bold")
        yield line
        yield Text(f"    {_figures(plan)}; costs: {prices(plan)}", style="dim")


def _figures(plan: Plan) -> str:
    limits, slack = plan.budget.limits, plan.budget.terms["slack"].bytes
    running, tokens = limits["running_requests"].value, limits["kv_tokens"].value
    each = tokens_each(plan.budget)
    parts = [
        "" if running is None else counted(running.point, "request"),
        "" if tokens is None else f"{tokens.point:,} KV tokens{'' if each is None else f' ({each:,} each)'}",
        "" if slack is None else f"{format_gib(slack.point)} outside the pools",
    ]
    return ", ".join(filter(None, parts))
