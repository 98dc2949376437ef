"""What free memory that a server lacks costs it in KV tokens.

In: a case and bytes per rank. Out: tokens, predicted with the same solver on the free memory that would have been
there; where nothing can be predicted, by the log's own size of a token.
"""

from __future__ import annotations

import dataclasses

from ..budget.predict import predict
from ..budget_types import FreeMemory
from ..engines.contract import Line
from ..errors import SpecbenchError
from ..judging.judge import as_resolved, passed
from .case import Case
from .catalogue import Severity

#: From this share of the tokens on a lack is a cost.
_COSTS = 0.05


def tokens_of(case: Case, size: int) -> tuple[int, str] | None:
    """KV tokens that so much more free memory per rank would be, and what that rests on."""
    budget, config = case.budgets.get("measured"), case.config
    known = case.pools.kv_tokens
    if budget is not None and config is not None and known is not None:
        try:
            more = predict(
                as_resolved(config, case.pools),
                free=_shifted(budget.free, size),
                passed_fraction=passed(config, case.pools),
            )
        except SpecbenchError:
            return None
        now, then = budget.limits["kv_tokens"].value, more.limits["kv_tokens"].value
        if now is not None and then is not None and then.point > now.point:
            return then.point - now.point, "predicted on this log's memory"
    cell = _logged_cell(case)
    return None if cell is None else (int(size / cell), "at most, by the logged size of a token")


def _shifted(free: FreeMemory, size: int) -> FreeMemory:
    return dataclasses.replace(free, pre=free.pre.shifted(size), post=free.post.shifted(size))


def _logged_cell(case: Case) -> float | None:
    """Bytes of a KV token on a rank, the draft's share included; None: not logged."""
    rank = next((one.rank for one in case.pools.ranks if one.role == "target" and one.kv is not None), None)
    pools = [one for one in case.pools.ranks if one.rank == rank and one.kv is not None and one.kv_tokens]
    cells = [one.kv.bytes / one.kv_tokens for one in pools if one.kv is not None and one.kv_tokens]
    return sum(cells) if cells and sum(cells) > 0 else None


def as_tokens(tokens: tuple[int, str] | None) -> str:
    """A clause of what it costs; "": not known."""
    return "" if tokens is None else f", which costs about {tokens[0]:,} KV tokens ({tokens[1]})"


def share(case: Case, tokens: tuple[int, str] | None) -> float | None:
    """Of the tokens that there would be without the loss; None: not known."""
    known = case.pools.kv_tokens
    return None if tokens is None or not known else tokens[0] / (known + tokens[0])


def severity(share: float | None) -> Severity:
    """By the share of tokens that is lost."""
    return "costly" if share is not None and share >= _COSTS else "notice"


def begin_lines(case: Case, rank: str | None) -> tuple[Line, ...]:
    """The line with the free memory before loading, of that rank; the first one where it is not known."""
    lines = [number for number, text in case.log.evidence.items() if "Load weight begin" in text]
    own = [number for number in lines if rank and f"{rank}]" in case.log.evidence[number]]
    return tuple(line for number in (own or lines)[:1] for line in case.line(number))
