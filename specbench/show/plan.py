"""An answer of the planner: verdict, command, sizes, alternatives, failures. In: an answer. Out: `Shown`."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from ..planning.commands import difference, shell_line
from ..planning.types import LEVELS, Answer, Plan, Size
from ..planning.words import (
    CERTAIN,
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
    setting,
    tokens_each,
    why_plain_fails,
)
from ..units import format_gib
from .figures import interval_cell, plain_interval
from .shown import Cell, Shown, Value, joined, paragraph, table

_LEVELS = ("asked", "slots", "fraction")
_ONLY_ASKED = "only the asked number"


def plan_answer(answer: Answer) -> Shown:
    """What to set, what that reaches and costs, and the command to copy."""
    found, words = headline(answer)
    best = answer.best or answer.beyond
    kind = "refused" if best is None or not found else "served" if best.certainty == "sure" else "capped"
    lines = []
    if best is not None:
        lines += [f"{certainty(best)}.", f"Predicted: {reached(best.budget)}."]
        if (other := cheaper(answer)) is not None:
            lines.append(f"{other[:1].upper()}{other[1:]}.")
        lines += [f"Against the settings as they are: {'; '.join(best.costs)}."] if best.costs else []
    lines.append(f"Needed: {needs(answer)}.")
    given = answer.given
    basis = "the configuration alone" if best is None else rests_on(best)
    lines.append(f"Predicted from {basis}.")
    source = f"{given.engine.name} {given.engine.version} · {given.model}"
    html = (
        f'<div class="verdict {kind}"><p class="word">{"yes" if found else "no"}</p>'
        f'<p class="sentence">{escape(words)}</p>'
        + "".join(f'<p class="reason">{escape(line)}</p>' for line in lines)
        + f'<p class="provenance">{escape(source)}</p></div>'
    )
    parts = [Shown(html, "\n".join([words, *lines]))]
    if best is not None:
        parts.append(_command(answer, best))
        parts += [paragraph(f"Note: {text}", tone="warn") for text in cautions(best)]
    parts += [paragraph(f"Note: {note}", tone="muted") for note in answer.notes]
    return joined(parts)


def _command(answer: Answer, plan: Plan) -> Shown:
    gone, come = difference(answer.given, plan.config)
    changed = [f"- {text}" for text in gone] + [f"+ {text}" for text in come]
    lines = [*changed, *([""] if changed else []), shell_line(plan.config)]
    body = "\n".join(lines)
    return Shown(f'<pre class="log" aria-label="flags that change, and the command">{escape(body)}</pre>', body)


def plan_verdict(answer: Answer) -> Shown:
    """Whole numbers of the cheapest plan on each number of ranks: what a test compares."""
    rows: list[list[Value]] = []
    for size in answer.sizes:
        first = next(iter(size.plans), None)
        figures: list[Value] = []
        for name in ("state_slots", "running_requests", "kv_tokens"):
            value = None if first is None else first.budget.limits[name].value
            figures.append("" if value is None else plain_interval(value))
        rows.append(
            [
                f"TP{size.tp_size}",
                "none" if first is None else first.certainty,
                *figures,
                " / ".join(str(most.requests) for most in size.most if most.level in _LEVELS),
            ]
        )
    names = ["ranks", "plan", "state slots", "requests", "KV tokens", "most at once"]
    figures_of = table(names, rows, caption=f"predicted for {answer.wishes.words}")
    return joined([figures_of, _changes([size for size in answer.sizes if size.plans])])


def _changes(sizes: list[Size]) -> Shown:
    """What each cheapest plan changes, a line each: notebooks break long lines of text anywhere, within words too."""
    html, lines = [], []
    for size in sizes:
        name, changes = f"TP{size.tp_size}: ", size.plans[0].changes
        each = [setting([change]) for change in changes] or [setting(())]
        lines += [f"{name if number == 0 else ' ' * len(name)}{one}" for number, one in enumerate(each)]
        html.append(paragraph(f"{name}{setting(changes)}").html)
    return Shown("".join(html), "\n".join(lines))


def plan_sizes(answer: Answer) -> Shown:
    """What each number of ranks comes to."""
    rows: list[list[Value]] = []
    for size in answer.sizes:
        first = next(iter(size.plans), None)
        by_level = {most.level: at_most(most) for most in size.most}
        if size.impossible is not None:
            rows.append([f"TP{size.tp_size}", Cell(text=size.impossible, tone="muted", wide=True), "", *[""] * 4])
            continue
        tokens = None if first is None else first.budget.limits["kv_tokens"].value
        rows.append(
            [
                Cell(text=f"TP{size.tp_size}", below="" if size.gpus <= answer.gpus else "more cards than there are"),
                _none(answer, size) if first is None else Cell(text=_change(first), code=True, wide=True),
                "" if first is None else _certain(first),
                interval_cell(tokens, "count") if first is not None else "",
                *(by_level.get(level, "") for level in _LEVELS),
            ]
        )
    names = ["ranks", "cheapest that reaches it", "", "KV tokens", *(f"most, {level}" for level in _LEVELS)]
    levels = "; ".join(f"{name}: {LEVELS[name]}" for name in _LEVELS)
    notes = [f"Most: requests at once. {levels}", also_asked(answer), CERTAIN_OF, bases(answer)]
    return joined([table(names, rows), *(paragraph(f"{note}.", tone="muted") for note in notes if note)])


def plan_alternatives(answer: Answer) -> Shown:
    """Every plan on the cards that there are, with its flags and what it costs: of the ranks that were given first, and
    of each number of ranks the cheapest first."""
    rows: list[list[Value]] = []
    for size in answer.owned:
        for plan in size.plans:
            limits, slack = plan.budget.limits, plan.budget.terms["slack"].bytes
            rows.append(
                [
                    f"TP{size.tp_size}",
                    Cell(text=_change(plan), code=True, wide=True),
                    _certain(plan),
                    interval_cell(limits["running_requests"].value, "count"),
                    replace(interval_cell(limits["kv_tokens"].value, "count"), below=_each(plan)),
                    "not predicted" if slack is None else format_gib(slack.point),
                    Cell(text=prices(plan), wide=True),
                ]
            )
    names = ["ranks", "flags", "", "requests", "KV tokens", "outside the pools", "costs"]
    if not rows:
        return paragraph("No plan on these cards.")
    return table(names, rows)


def plan_failures(answer: Answer) -> Shown:
    """Why the plain changes do not do, on the cards that there are; and, where nothing does, the proof."""
    parts: list[Shown] = []
    for size in answer.sizes:
        if size.gpus > answer.gpus or not (size.failures or not size.plans):
            continue
        parts += [paragraph(f"TP{size.tp_size}: {text}") for text in of_size(answer, size)]
        if size.failures:
            rows: list[list[Value]] = [
                [Cell(text=tried, wide=True), Cell(text=why, wide=True)] for tried, why in why_plain_fails(size)
            ]
            parts.append(table([f"tried alone, TP{size.tp_size} on {cards(answer, size.gpus)}", "predicted"], rows))
    return joined(parts) if parts else paragraph("Nothing fails: the settings do as they are.")


def _none(answer: Answer, size: Size) -> Cell:
    return Cell(text="none", tone="bad", wide=True, below=" ".join(list(of_size(answer, size))[1:]))


def _change(plan: Plan) -> str:
    return flags(plan, whole=False) or _ONLY_ASKED


def _each(plan: Plan) -> str | None:
    each = tokens_each(plan.budget)
    return None if each is None else f"{each:,} each"


def _certain(plan: Plan) -> Cell:
    return Cell(text=plan.certainty, tone="good" if plan.certainty == "sure" else "warn", title=CERTAIN[plan.certainty])
