"""A diagnosis for the terminal: verdict, asked → resolved → served, pools, findings with evidence and remedies.

Log text is untrusted: it is printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..diagnose.finding import Finding
from ..diagnose.types import Diagnosis, Serving
from ..engines.contract import RankPools
from ..reading.outcome import in_words
from ..terms import OUTCOMES, Basis, Limit
from ..units import GIB, Interval, Quantity, counted, format_count, format_gib
from .remedies_text import remedies_text

_STYLES = {"served": "bold green", "refused": "bold red", "crashed": "bold red", "timed_out": "bold red"}
_SEVERITY = {"fatal": "bold red", "costly": "yellow", "notice": "cyan"}
_ASKED_SHOWN: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "context_len", "max_input_tokens")
_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Print the whole diagnosis."""
    console.print(_headline(diagnosis))
    console.print(_limits(diagnosis))
    if diagnosis.pools.ranks:
        console.print(_pools(diagnosis))
        told = (diagnosis.pools.state_slots, diagnosis.pools.kv_tokens)
        said = next((text for budget in diagnosis.budgets.values() if (text := budget.not_multiplied(*told))), None)
        if said is not None:
            console.print(Text(f"{said}\n"))
    if diagnosis.served_source is not None:
        console.print(Text(f"served at once: {diagnosis.served}, by {diagnosis.served_source}"))
    if diagnosis.serving is not None:
        console.print(_serving(diagnosis.serving, diagnosis.origin))
    if not diagnosis.findings and diagnosis.judged:
        did = "started" if diagnosis.outcome == "started" else "served"
        console.print(Text(f"No finding: it {did}, and nothing in it is known to be wrong.", style="green"))
    elif not diagnosis.findings:
        console.print(Text("No finding, and too little was read to say that nothing is wrong.", style="yellow"))
    for finding in diagnosis.findings:
        console.print(_finding(finding, _basis(diagnosis, "measured") if "measured" in diagnosis.budgets else None))
    _footnotes(diagnosis, console)


def _headline(diagnosis: Diagnosis) -> Text:
    outcome = diagnosis.outcome
    # Of these the word alone tells too little.
    explained = f": {OUTCOMES[outcome]}" if outcome in ("started", "unanswered", "unknown") else ""
    text = Text()
    text.append(f"{in_words(outcome)}{explained}", style=_STYLES.get(outcome, "bold yellow"))
    text.append(f"  {diagnosis.name}  ", style="bold")
    text.append(f"{diagnosis.engine} {diagnosis.version_text}, figures {diagnosis.origin}", style="dim")
    for mark in diagnosis.marks:
        text.append(f"\n{mark}", style="bold magenta")
    return text


def _limits(diagnosis: Diagnosis) -> Table:
    """One predicted column, on the better founded basis; the other one is counted in the footnotes."""
    basis: Basis | None = next((b for b in ("measured", "config") if b in diagnosis.budgets), None)
    table = Table(title="\nasked → resolved → served", box=SIMPLE_HEAD, **_TITLE)
    # Where a terminal is narrow words wrap, figures do not: one that is cut reads as another figure.
    for header in ("", "asked", "predicted" if basis is None else f"predicted from\n{_short(diagnosis, basis)}"):
        figure = 9 if header.startswith("predicted") else None
        table.add_column(header, min_width=figure, no_wrap=not header, justify="right" if header else "left")
    for word in ("resolved", "served"):
        table.add_column(f"{word}\n({diagnosis.origin})", min_width=9 if word == "resolved" else None, justify="right")
    for limit in _ASKED_SHOWN:
        asked = diagnosis.requested.get(limit)
        predicted = diagnosis.budgets[basis].limits.get(limit) if basis else None
        table.add_row(
            limit,
            format_count(asked if isinstance(asked, int) else None, unknown="not given"),
            _interval(predicted.value) if predicted and predicted.value else "not predicted",
            format_count(diagnosis.resolved.get(limit)),
            _served(diagnosis) if limit == "running_requests" else "",
        )
    return table


def _served(diagnosis: Diagnosis) -> str:
    nothing_sent = diagnosis.served is None and diagnosis.sent == 0
    return format_count(diagnosis.served, unknown="nothing sent" if nothing_sent else "not logged")


def _short(diagnosis: Diagnosis, basis: Basis) -> str:
    if basis == "config":
        return "the config"
    return "NVML's memory" if diagnosis.budgets[basis].free.watched else "logged memory"


def _basis(diagnosis: Diagnosis, basis: Basis) -> str:
    return "from the configuration alone" if basis == "config" else f"with the {diagnosis.budgets[basis].free.words}"


def _interval(interval: Interval) -> str:
    return f"{interval.point:,}" if interval.is_exact else f"{interval.low:,} to {interval.high:,}"


def _pools(diagnosis: Diagnosis) -> Table:
    """Terms down, ranks across; ranks that log the same are one column."""
    title = f"\npools per rank, in GiB (2^30 B) or counts ({diagnosis.origin})"
    table = Table(title=title, box=SIMPLE_HEAD, **_TITLE)
    table.add_column("", no_wrap=True)
    columns = _grouped(diagnosis.pools.ranks)
    for ranks in columns:
        table.add_column(f"{ranks[0].role}{_ranks(ranks)}", justify="right", no_wrap=True)
    figures = [[*_figures(ranks[0]), ("free after its pools", _free(ranks))] for ranks in columns]
    for row, (name, _) in enumerate(figures[0]):
        table.add_row(name, *(column[row][1] for column in figures))
    cards = (
        ("communication", diagnosis.pools.communication),
        ("free before loading", diagnosis.pools.pre),
        ("free when sized", diagnosis.pools.post),
    )
    for name, sizes in cards:
        table.add_row(name, *(_least_and_most(sizes, ranks) for ranks in columns))
    return table


def _least_and_most(free: Mapping[str, Quantity], ranks: list[RankPools]) -> str:
    """Of the target's ranks: '137.99 (TP1) to 138.22 (TP3)', '1.07 (TP0; TP1 not logged)'."""
    return "·" if ranks[0].role == "draft" else _over_ranks({pools.rank: free.get(pools.rank) for pools in ranks})


def _over_ranks(sizes: Mapping[str, Quantity | None], *, named: bool = True) -> str:
    """The least and the most, with their ranks; in a line of its own that the others logged none."""
    known = {rank: size for rank, size in sizes.items() if size is not None}
    if not known:
        return "·"
    low, high = min(known, key=lambda rank: known[rank].bytes), max(known, key=lambda rank: known[rank].bytes)
    silent = _named([rank for rank in sizes if rank not in known])
    if known[low] == known[high]:
        return f"{_size(known[low])} ({_named(known)}; {silent} not logged)" if silent else _size(known[low])
    least, most = (f"{_size(known[rank])}{f' ({rank})' if named else ''}" for rank in (low, high))
    return f"{least} to {most}\n{silent} not logged" if silent else f"{least} to {most}"


def _named(ranks: Collection[str]) -> str:
    return ", ".join(ranks) if len(ranks) < 4 else f"{len(ranks)} ranks"


def _free(ranks: list[RankPools]) -> str:
    return _over_ranks({pools.rank: pools.available for pools in ranks}, named=False)


def _grouped(ranks: tuple[RankPools, ...]) -> list[list[RankPools]]:
    """Ranks of one role that log the same pools, together. Free memory may differ: that is no disagreement."""
    groups: list[list[RankPools]] = []
    for pools in ranks:
        same = next((g for g in groups if g[0].role == pools.role and _figures(g[0]) == _figures(pools)), None)
        if same is not None:
            same.append(pools)
        else:
            groups.append([pools])
    return groups


def _ranks(ranks: list[RankPools]) -> str:
    named = [pools.rank for pools in ranks if pools.rank]
    if not named:
        return ""
    return f"\n{named[0]}" if len(named) == 1 else f"\n{named[0]} … {named[-1]} ({len(named)} ranks)"


def _figures(pools: RankPools) -> list[tuple[str, str]]:
    return [
        ("weights", _size(pools.weights)),
        ("state slots", format_count(pools.state_slots, unknown="·")),
        ("state conv", _size(pools.state_conv)),
        ("state ssm", _size(pools.state_ssm)),
        ("scratch ssm", _size(pools.scratch_ssm)),
        ("scratch conv", _size(pools.scratch_conv)),
        ("KV tokens", format_count(pools.kv_tokens, unknown="·")),
        ("KV", _size(pools.kv)),
        ("graphs", _size(pools.graphs)),
    ]


def _size(quantity: Quantity | None) -> str:
    return "·" if quantity is None else f"{quantity.bytes / GIB:z.2f}"


def _serving(serving: Serving, origin: str) -> Text:
    parts = [f"{serving.decode_lines:,} decode lines ({origin})"]
    if serving.accept_length_mean is not None:
        parts.append(f"acceptance length {serving.accept_length_mean:.2f} tokens per verify round (mean over lines)")
    if serving.throughput_max is not None:
        parts.append(f"at most {serving.throughput_max:,.0f} tokens/s")
    if serving.queued_max is not None:
        parts.append(f"at most {counted(serving.queued_max, 'request')} queued")
    if serving.token_usage_max is not None:
        parts.append(f"KV pool at most {serving.token_usage_max:.0%} full")
    return Text("; ".join(parts) + ".\n")


def _finding(finding: Finding, measured: str | None) -> Panel:
    parts: list[RenderableType] = [Text(finding.cause)]
    for line in finding.evidence:
        parts.append(Text(f"  {line.where}: {line.text}", style="dim"))
    if finding.remedies:
        parts.append(remedies_text(finding.remedies, measured=measured or "with the logged free memory"))
    style = _SEVERITY[finding.severity]
    title = Text(f"{finding.severity}: {finding.id}", style=style)
    return Panel(Group(*parts), title=title, title_align="left", border_style=style.rpartition(" ")[2])


def _footnotes(diagnosis: Diagnosis, console: Console) -> None:
    for basis in diagnosis.budgets:
        rows = [row for row in diagnosis.reconciliation.rows if row.basis == basis]
        match = sum(row.verdict == "match" for row in rows)
        off = [row for row in rows if row.verdict == "off"]
        console.print(
            Text(f"prediction {_basis(diagnosis, basis)}: {match} figures match, {len(off)} off", style="dim")
        )
        for row in off:
            delta = format_gib(row.delta) if row.unit == "bytes" else format_count(row.delta)
            console.print(Text(f"  {row.term} {row.rank}: off by {delta}; {row.attribution}", style="dim"))
    for assumption in diagnosis.assumptions:
        console.print(Text(f"note: {assumption}", style="dim"))
    for disagreement in diagnosis.pools.disagreements:
        console.print(Text(f"the engine contradicts itself: {disagreement}", style="yellow"))
    if diagnosis.unread:
        console.print(
            Text(f"{len(diagnosis.unread)} lines look like pool lines but are not understood:", style="yellow")
        )
        for line in diagnosis.unread[:5]:
            console.print(Text(f"  {line.where}: {line.text}", style="dim"))
