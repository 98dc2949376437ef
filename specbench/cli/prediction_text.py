"""How a prediction compares with the log, for the terminal: how many figures are off, which lead, and why.

In: a diagnosis and a basis. Out: lines of plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..diagnose.types import Diagnosis
from ..judging.reconcile import Row
from ..terms import Basis
from ..units import counted, format_count, format_gib

_FOLLOWS = "follows from"


def prediction_lines(
    diagnosis: Diagnosis, basis: Basis, words: str, *, better: bool, everything: bool
) -> Iterator[str]:
    """`words`: the basis in words. `better`: the better one of this diagnosis: each figure that leads is told. Of the
    other one the likely cause suffices: the better basis has all that it has to tell. `everything`: every figure.
    """
    rows = [row for row in diagnosis.reconciliation.rows if row.basis == basis]
    match, off = sum(row.verdict == "match" for row in rows), [row for row in rows if row.verdict == "off"]
    yield f"prediction {words}: {counted(match, 'figure')} as logged, {len(off)} off"
    leading = [row for row in off if not (row.attribution or "").startswith(_FOLLOWS)]
    if everything or better:
        for row in off if everything else leading:
            delta = format_gib(row.delta) if row.unit == "bytes" else format_count(row.delta)
            yield f"  {_name(row)}: off by {delta}; {row.attribution}"
        return
    yield from _causes(leading, len(off) - len(leading))


def _causes(leading: Sequence[Row], following: int) -> Iterator[str]:
    """'  state_slots, kv_tokens, slack: free memory: -4.51 GiB against …; the 6 others follow from these'."""
    causes: dict[str, list[Row]] = {}
    for row in leading:
        causes.setdefault(row.attribution or "not known why", []).append(row)
    for number, (cause, rows) in enumerate(causes.items(), start=1):
        terms = ", ".join(dict.fromkeys(row.term for row in rows))
        others = "the other one follows" if following == 1 else f"the {following} others follow"
        last = f"; {others} from these" if following and number == len(causes) else ""
        yield f"  {terms}: {cause}{last} (each figure: --all)" if number == len(causes) else f"  {terms}: {cause}"


def _name(row: Row) -> str:
    return f"{row.term} {row.rank}".rstrip()
