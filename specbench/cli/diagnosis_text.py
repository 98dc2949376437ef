"""A diagnosis for the terminal: what happened, the gravest cause with its proof and fix, then all the rest.

In this order: the verdict in a sentence; the first cause; asked → resolved → served; where the memory went; further
causes by what they cost; other fixes; what is not certain. What a newcomer needs stands in the first screen. Log text
is untrusted: it is printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..budget_types import LOGGED_FREE
from ..diagnose.absent_ranks import absent_ranks
from ..diagnose.finding import Remedy
from ..diagnose.maintainer import not_asked, report
from ..diagnose.outgoing import without_secrets
from ..diagnose.types import Diagnosis, Serving
from ..reading.outcome import in_words
from ..terms import OUTCOMES, Basis, Limit
from ..units import counted, format_count, format_range
from .findings_text import Flags, finding_text, further_remedies, listed_remedies
from .ledger_text import beside, ledger_text, other_ranks
from .pools_text import pools_text
from .prediction_text import prediction_lines

_STYLES = {"served": "bold green", "refused": "bold red", "crashed": "bold red", "timed_out": "bold red"}
_ASKED_SHOWN: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "context_len", "max_input_tokens")
_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
_FIXES_SHOWN = 8
#: Words of an assumption -> the option that tells better.
_TELL = {
    "assumed to be ": "--model NAME|FOLDER",
    "GPU assumed ": "--gpu NAME",
    "engine version assumed ": "--engine-version V",
}
_ALL_COLUMNS = 56
_WIDE = 76  # columns of a terminal in which no header is longer than its figures


def render(diagnosis: Diagnosis, console: Console, *, everything: bool = False) -> None:
    """Print the diagnosis. `everything`: whole lines of evidence, every remedy in full, the pools of every rank."""
    diagnosis = without_secrets(diagnosis)
    measured = f"the {diagnosis.budgets['measured'].free.words if 'measured' in diagnosis.budgets else LOGGED_FREE}"
    console.print(_headline(diagnosis))
    console.print(Text(f"{verdict(diagnosis)}\n"))
    _findings(diagnosis, console, measured, first=True, everything=everything)
    console.print(_limits(diagnosis, console.width))
    if diagnosis.served_source is not None:
        console.print(Text(f"served at once: {diagnosis.served}, by {diagnosis.served_source}"))
    if diagnosis.serving is not None:
        console.print(_serving(diagnosis.serving, diagnosis.origin))
    _memory(diagnosis, console, everything=everything)
    _findings(diagnosis, console, measured, first=False, everything=everything)
    first = diagnosis.findings[0] if diagnosis.findings else None
    if first is not None and len(first.remedies) > 1 and not everything:
        _further_remedies(first.remedies[1 : _FIXES_SHOWN + 1], console, measured)
        console.print(Text("What each costs, and the same for params files: --all", style="dim"))
    _footnotes(diagnosis, console, everything=everything)
    _to_report(diagnosis, console)


def verdict(diagnosis: Diagnosis) -> str:
    """What happened, in one sentence with its figures."""
    asked, resolved = diagnosis.requested.get("running_requests"), diagnosis.pools.running_requests
    of_asked = f" of the {asked:,} requests" if isinstance(asked, int) else " requests"
    match diagnosis.outcome:
        case "refused":
            return "The server did not start."
        case "crashed":
            served = "" if diagnosis.served is None else f" It had served {diagnosis.served:,}{of_asked} at once."
            return f"The server died.{served}"
        case "capped":
            return f"The server runs {format_count(resolved)}{of_asked} at once that were asked for; no error says so."
        case "served":
            room = "" if resolved is None else f", with room for {counted(resolved, 'request')} at once"
            ran = "" if diagnosis.served is None else f"; at most {diagnosis.served:,} ran at once"
            return f"The server works{room}{_as_asked(asked, resolved)}{ran}."
        case "started" if diagnosis.served:
            return f"As asked; {counted(diagnosis.served, 'request')} began, and none is seen to be answered."
        case outcome:
            sentence = OUTCOMES[outcome]
            return f"{sentence[0].upper()}{sentence[1:]}."


def _as_asked(asked: object, resolved: int | None) -> str:
    return " as asked" if isinstance(asked, int) and resolved is not None and resolved >= asked else ""


def _headline(diagnosis: Diagnosis) -> Text:
    text = Text()
    text.append(in_words(diagnosis.outcome), style=_STYLES.get(diagnosis.outcome, "bold yellow"))
    text.append(f"  {diagnosis.name}  ", style="bold")
    text.append(f"{diagnosis.engine} {diagnosis.version_text}, figures {diagnosis.origin}", style="dim")
    absent = None if diagnosis.config is None else absent_ranks(diagnosis.config, diagnosis.pools)
    if absent is not None:
        text.append(f", {absent}", style="bold magenta")
    for mark in diagnosis.marks:
        text.append(f"\n{mark}", style="bold magenta")
    return text


def _findings(diagnosis: Diagnosis, console: Console, measured: str, *, first: bool, everything: bool) -> None:
    """The first, or all others, numbered in the order of what they cost."""
    if first and not diagnosis.findings:
        if diagnosis.judged:
            did = "started" if diagnosis.outcome == "started" else "served"
            console.print(Text(f"No finding: it {did}, and nothing in it is known to be wrong.", style="green"))
        else:
            console.print(Text("No finding, and too little was read to say that nothing is wrong.", style="yellow"))
    numbered = list(enumerate(diagnosis.findings, start=1))
    shown = numbered[:1] if first else numbered[1:]
    if shown and not first:
        console.print(Text("\nfurther findings", style="bold"))
    above = () if first else tuple(line for finding in diagnosis.findings[:1] for line in finding.evidence)
    for number, finding in shown:
        for part in finding_text(
            finding, number, measured, everything=everything, above=above, before=diagnosis.config
        ):
            console.print(part, soft_wrap=isinstance(part, Flags))


def _further_remedies(remedies: Sequence[Remedy], console: Console, measured: str) -> None:
    parts = further_remedies if console.width >= _WIDE else listed_remedies
    for part in parts(remedies, measured):
        console.print(part, soft_wrap=isinstance(part, Flags))


def _memory(diagnosis: Diagnosis, console: Console, *, everything: bool) -> None:
    ledgers = diagnosis.shown_ledgers
    if ledgers:
        console.print(ledger_text(ledgers[0], diagnosis.log, diagnosis.origin, console.width))
        if diagnosis.why_shown:
            console.print(Text(diagnosis.why_shown, style="dim"))
        # A ledger per rank would hide what matters: in what one of them differs.
        for sentence in (*other_ranks(ledgers), *beside(ledgers[0])):
            console.print(Text(sentence))
    elif diagnosis.status is not None or diagnosis.pools.ranks:
        console.print(Text("\nwhere the memory went: not logged"))
    if everything and diagnosis.pools.ranks:
        console.print(pools_text(diagnosis))
    if diagnosis.pools.ranks:
        told = (diagnosis.pools.state_slots, diagnosis.pools.kv_tokens)
        said = next((text for budget in diagnosis.budgets.values() if (text := budget.not_multiplied(*told))), None)
        if said is not None:
            console.print(Text(said))


def _limits(diagnosis: Diagnosis, width: int) -> Table:
    """One predicted column, on the better founded basis; the other one is counted in the footnotes. A figure that is
    cut reads as another figure: a narrow terminal gets shorter headers, a very narrow one fewer columns.
    """
    basis = _better(diagnosis)
    wide, all_columns = width >= _WIDE, width >= _ALL_COLUMNS
    told = "" if wide else f" ({diagnosis.origin})"
    table = Table(title=f"\nasked → resolved → served{told}", box=SIMPLE_HEAD, **_TITLE)
    if not wide:
        table.padding, table.show_edge = (0, 0), False
    origin = f"\n({diagnosis.origin})" if wide else ""
    predicted_from = f"predicted from\n{_short(diagnosis, basis)}" if basis is not None and wide else "predicted"
    table.add_column("", no_wrap=True)
    table.add_column("asked", min_width=9, justify="right")
    if all_columns:
        table.add_column(predicted_from, min_width=9, justify="right")
    table.add_column(f"resolved{origin}", min_width=9, justify="right")
    if all_columns:
        table.add_column(f"served{origin}", justify="right")
    for limit in _ASKED_SHOWN:
        asked = diagnosis.requested.get(limit)
        predicted = diagnosis.budgets[basis].limits.get(limit) if basis else None
        cells = [
            format_count(asked if isinstance(asked, int) else None, unknown=not_asked(diagnosis)),
            format_range(predicted.value) if predicted and predicted.value else "not predicted",
            format_count(diagnosis.resolved.get(limit)),
            _served(diagnosis) if limit == "running_requests" else "",
        ]
        table.add_row(limit, *(cells if all_columns else cells[::2]))
    return table


def _served(diagnosis: Diagnosis) -> str:
    nothing_sent = diagnosis.served is None and diagnosis.sent == 0
    return format_count(diagnosis.served, unknown="nothing sent" if nothing_sent else "not logged")


def _better(diagnosis: Diagnosis) -> Basis | None:
    """The better founded basis of a prediction; None: nothing was predicted."""
    return next((basis for basis in ("measured", "config") if basis in diagnosis.budgets), None)


def _short(diagnosis: Diagnosis, basis: Basis) -> str:
    if basis == "config":
        return "the config"
    return "NVML's memory" if diagnosis.budgets[basis].free.watched else "logged memory"


def _basis(diagnosis: Diagnosis, basis: Basis) -> str:
    budget = diagnosis.budgets[basis]
    return f"from {budget.basis_words}" if basis == "config" else f"with the {budget.free.words}"


def _serving(serving: Serving, origin: str) -> Text:
    parts = [f"{counted(serving.decode_lines, 'decode line')} ({origin})"]
    if serving.accept_length_mean is not None:
        parts.append(f"acceptance length {serving.accept_length_mean:.2f} tokens per verify round (mean over lines)")
    if serving.throughput_max is not None:
        parts.append(f"at most {serving.throughput_max:,.0f} tokens/s")
    if serving.queued_max is not None:
        queued = f"at most {counted(serving.queued_max, 'request')}" if serving.queued_max else "no request"
        parts.append(f"{queued} queued")
    if serving.token_usage_max is not None:
        # The log prints hundredths: its 0.00 is less than one, not none.
        parts.append(f"KV pool at most {max(serving.token_usage_max, 0.01):.0%} full")
    return Text("; ".join(parts) + ".\n")


def _to_report(diagnosis: Diagnosis, console: Console) -> None:
    """Whether a maintainer is to hear of it, and how."""
    told = report(diagnosis)
    console.print(Text("\nto report", style="bold"))
    console.print(Text(f"{told.why}{f' For {told.project}.' if told.project else ''}"))
    if told.concerns != "nobody":
        console.print(Text("A text for it, with the traceback and without secrets: --report FILE.md"))


def _footnotes(diagnosis: Diagnosis, console: Console, *, everything: bool) -> None:
    console.print()
    for basis in diagnosis.budgets:
        better = basis == _better(diagnosis)
        for said in prediction_lines(diagnosis, basis, _basis(diagnosis, basis), better=better, everything=everything):
            console.print(Text(said, style="dim"))
    if diagnosis.own_figures and not diagnosis.budgets:
        console.print(
            Text("nothing is predicted from a configuration; this log's own figures (its rounding in brackets):")
        )
        for figure in diagnosis.own_figures:
            console.print(Text(f"  {figure.words}"))
    for assumption in diagnosis.assumptions:
        console.print(Text(f"note: {assumption}", style="dim"))
    options = [option for words, option in _TELL.items() if any(words in one for one in diagnosis.assumptions)]
    if options:
        console.print(Text(f"note: what is assumed wrongly can be told: {', '.join(options)}", style="dim"))
    for question in diagnosis.questions:
        asked = f"not known: {question.missing}: {question.why}. Tell it: {question.answer}"
        console.print(Text(asked, style="yellow"))
    for disagreement in diagnosis.pools.disagreements:
        console.print(Text(f"the engine contradicts itself: {disagreement}", style="yellow"))
    if diagnosis.unread:
        lines = counted(len(diagnosis.unread), "line")
        console.print(Text(f"not understood, or not wholly, of what looks like pool lines: {lines}", style="yellow"))
        for line in diagnosis.unread[:5]:
            console.print(Text(f"  {line.where}: {line.text}", style="dim"))
