"""A diagnosis for the terminal: verdict, asked → resolved → served, pools, findings with evidence and remedies.

Log text is untrusted: it is printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..diagnose.types import Diagnosis, Finding, Remedy
from ..engines.contract import RankPools
from ..terms import LIMITS, Limit
from ..units import Quantity, format_count, format_gib

_STYLES = {"served": "bold green", "refused": "bold red", "crashed": "bold red", "timed_out": "bold red"}
_SEVERITY = {"fatal": "bold red", "costly": "yellow", "notice": "cyan"}
_ASKED_SHOWN: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "context_len", "max_input_tokens")


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Print the whole diagnosis."""
    console.print(_headline(diagnosis))
    console.print(_limits(diagnosis))
    if diagnosis.pools.ranks:
        console.print(_pools(diagnosis))
    if not diagnosis.findings:
        console.print(Text("No finding: nothing in it is known to be wrong.", style="green"))
    for finding in diagnosis.findings:
        console.print(_finding(finding))
    _footnotes(diagnosis, console)


def _headline(diagnosis: Diagnosis) -> Text:
    status = diagnosis.status or "unknown: the log ends before it tells"
    version = diagnosis.version or "–".join(bound or "?" for bound in diagnosis.version_range)
    text = Text()
    text.append(f"{status}", style=_STYLES.get(status, "bold yellow"))
    text.append(f"  {diagnosis.name}  ", style="bold")
    text.append(f"{diagnosis.engine} {version}, figures {diagnosis.origin}", style="dim")
    return text


def _limits(diagnosis: Diagnosis) -> Table:
    table = Table(title="asked → resolved → served", title_justify="left", title_style="bold")
    for header in ("", "asked", f"resolved ({diagnosis.origin})"):
        table.add_column(header, justify="left" if not header else "right")
    for basis in diagnosis.budgets:
        table.add_column(f"predicted ({_basis(basis)})", justify="right")
    table.add_column("served", justify="right")
    for limit in _ASKED_SHOWN:
        asked = diagnosis.requested.get(limit)
        row = [limit, format_count(asked if isinstance(asked, int) else None, unknown="not given")]
        row.append(format_count(diagnosis.resolved.get(limit)))
        for budget in diagnosis.budgets.values():
            predicted = budget.limits.get(limit)
            row.append(
                _interval(predicted.value.low, predicted.value.high)
                if predicted and predicted.value
                else "not predicted"
            )
        row.append(format_count(diagnosis.served, unknown="not logged") if limit == "running_requests" else "")
        table.add_row(*row)
    table.caption = "; ".join(f"{limit}: {LIMITS[limit]}" for limit in _ASKED_SHOWN[:3])
    table.caption_justify = "left"
    return table


def _basis(basis: str) -> str:
    return "from the configuration alone" if basis == "config" else "with the logged free memory"


def _interval(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} … {high:,}"


def _pools(diagnosis: Diagnosis) -> Table:
    table = Table(title=f"pools, per rank ({diagnosis.origin}, GiB = 2^30 B)", title_justify="left", title_style="bold")
    for header in ("rank", "role"):
        table.add_column(header)
    columns = ("weights", "slots", "conv", "ssm", "scratch ssm", "scratch conv", "tokens", "KV", "graphs", "free after")
    for header in columns:
        table.add_column(header, justify="right")
    for pools in diagnosis.pools.ranks:
        table.add_row(pools.rank or "–", pools.role, *_figures(pools))
    return table


def _figures(pools: RankPools) -> list[str]:
    return [
        _size(pools.weights),
        _count(pools.state_slots),
        _size(pools.state_conv),
        _size(pools.state_ssm),
        _size(pools.scratch_ssm),
        _size(pools.scratch_conv),
        _count(pools.kv_tokens),
        _size(pools.kv),
        _size(pools.graphs),
        _size(pools.available),
    ]


def _size(quantity: Quantity | None) -> str:
    return "·" if quantity is None else f"{quantity.bytes / 2**30:.2f}"


def _count(value: int | None) -> str:
    return format_count(value, unknown="·")


def _finding(finding: Finding) -> Panel:
    parts: list[RenderableType] = [Text(finding.cause)]
    for line in finding.evidence:
        where = f"line {line.line}" if line.line is not None else "request"
        parts.append(Text(f"  {where}: {line.text}", style="dim"))
    if finding.remedies:
        parts.append(_remedies(finding.remedies))
    style = _SEVERITY[finding.severity]
    title = Text(f"{finding.severity}: {finding.id}", style=style)
    return Panel(Group(*parts), title=title, title_align="left", border_style=style.rpartition(" ")[2])


def _remedies(remedies: tuple[Remedy, ...]) -> Table:
    table = Table(title="remedies (effect predicted)", title_justify="left", title_style="bold", expand=True)
    table.add_column("change", ratio=4, overflow="fold")
    for header in ("requests", "slots", "KV tokens"):
        table.add_column(header, justify="right")
    table.add_column("cost", ratio=3)
    for remedy in remedies:
        change = Text("\n".join(f"--set {key}={value}" for key, value in remedy.set.items()))
        if remedy.flags:
            change.append(f"\n{remedy.flags}", style="dim")
        note = Text(remedy.note)
        if remedy.changes_results:
            note.append("\nchanges results", style="yellow")
        table.add_row(
            change,
            format_count(remedy.predicted.get("running_requests"), unknown="not predicted"),
            format_count(remedy.predicted.get("state_slots"), unknown="not predicted"),
            format_count(remedy.predicted.get("kv_tokens"), unknown="not predicted"),
            note,
        )
    return table


def _footnotes(diagnosis: Diagnosis, console: Console) -> None:
    for basis in diagnosis.budgets:
        rows = [row for row in diagnosis.reconciliation.rows if row.basis == basis]
        match = sum(row.verdict == "match" for row in rows)
        off = [row for row in rows if row.verdict == "off"]
        console.print(Text(f"prediction {_basis(basis)}: {match} figures match, {len(off)} off", style="dim"))
        for row in off:
            delta = format_gib(row.delta) if row.unit == "bytes" else format_count(row.delta)
            console.print(Text(f"  {row.term} {row.rank}: off by {delta}; {row.attribution}", style="dim"))
    for assumption in diagnosis.assumptions:
        console.print(Text(f"assumed: {assumption}", style="dim"))
    for disagreement in diagnosis.pools.disagreements:
        console.print(Text(f"ranks disagree: {disagreement}", style="yellow"))
    if diagnosis.unread:
        console.print(
            Text(f"{len(diagnosis.unread)} lines look like pool lines but are not understood:", style="yellow")
        )
        for line in diagnosis.unread[:5]:
            console.print(Text(f"  line {line.line}: {line.text}", style="dim"))
