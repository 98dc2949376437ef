"""What one slot, one request and one token take by a log's own figures: also of a model that specbench does not know.

In: what a rank logged of its pools. Out: bytes with the interval that the rounding of the printed sizes leaves. A pool
has one row more than it has slots, requests or (a page more than) tokens, whatever the version: the padding
(srt/mem_cache/memory_pool.py; of the scratch of 0.5.6 one row per slot).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..engines.contract import PoolReport, RankPools, ServerLog
from ..terms import Role
from ..units import Interval, Quantity, format_gib

#: Up to this release every state slot has scratch of its own.
_SCRATCH_PER_SLOT = "0.5.6"
_LARGEST_PAGE = 256  # tokens, where the log does not tell the page


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFigure:
    """One figure of one rank and role."""

    name: str  # a state slot, scratch of a running request, a KV token, draft tokens
    rank: str
    role: Role
    unit: str  # bytes, count
    value: Interval
    numbers: str  # the arithmetic
    line: int | None

    @property
    def words(self) -> str:
        """'a KV token of the target: 20,479 B (20,475 to 20,482): 32.46 GiB / (1,701,906 + 1)'."""
        unit = " B" if self.unit == "bytes" else ""
        spread = "" if self.value.is_exact else f" ({self.value.low:,} to {self.value.high:,})"
        return f"{self.name} of the {self.role}: {self.value.point:,}{unit}{spread}: {self.numbers}"


def own_figures(log: ServerLog, pools: PoolReport) -> tuple[OwnFigure, ...]:
    """Of the rank with the least memory, else the first: every rank has the same pools. Empty: no pool is logged."""
    ranks = [one.rank for one in pools.ranks]
    rank = pools.deciding_rank if pools.deciding_rank in ranks else next(iter(ranks), None)
    mine = [one for one in pools.ranks if one.rank == rank]
    return tuple(figure for one in mine for figure in _of_rank(log, pools, one))


def _of_rank(log: ServerLog, pools: PoolReport, one: RankPools) -> Iterator[OwnFigure]:
    arguments = log.server_args or {}
    slot = None
    if one.state_slots is not None and one.state_slots >= 0 and one.state_ssm is not None:
        sizes = [size for size in (one.state_conv, one.state_ssm) if size is not None]
        slot = _each("a state slot", one, sizes, one.state_slots, 1, "state_ssm")
        yield slot
    requests = pools.running_requests
    if log.version_range[1] == _SCRATCH_PER_SLOT or (log.version or "").startswith(f"{_SCRATCH_PER_SLOT}."):
        requests = one.state_slots
    if one.scratch_ssm is not None and requests is not None and requests >= 0:
        sizes = [size for size in (one.scratch_ssm, one.scratch_conv) if size is not None]
        yield _each("scratch of a running request", one, sizes, requests, 1, "scratch_ssm")
        if slot is not None and one.state_ssm is not None and one.state_slots is not None and one.scratch_ssm.bytes:
            states = _each("", one, [one.state_ssm], one.state_slots, 1, "state_ssm").value
            rows = _each("", one, [one.scratch_ssm], requests, 1, "scratch_ssm").value
            yield from _draft_tokens(one, rows, states)
    if one.kv_tokens is not None and one.kv_tokens >= 0 and one.kv is not None and "SWA" not in (one.label or ""):
        page = arguments.get("page_size")
        padding, more = (page, 0) if isinstance(page, int) and page > 0 else (1, _LARGEST_PAGE)
        yield _each("a KV token", one, [one.kv], one.kv_tokens, padding, "kv", more)


def _each(
    name: str, one: RankPools, sizes: list[Quantity], count: int, padding: int, field: str, more_rows: int = 0
) -> OwnFigure:
    """sum of the sizes / (count + padding); the true sizes lie anywhere within their rounding, and so many more rows
    may be there. A size below zero is none."""
    total, rounding = max(0, sum(size.bytes for size in sizes)), sum(size.resolution_bytes for size in sizes)
    rows = count + padding
    low, high = max(0, total - rounding) // (rows + more_rows), -(-(total + rounding) // rows)
    summed = " + ".join(format_gib(size.bytes) for size in sizes)
    left = f"({summed})" if len(sizes) > 1 else summed
    return OwnFigure(
        name=name,
        rank=one.rank,
        role=one.role,
        unit="bytes",
        value=Interval(low, round(total / rows), high),
        numbers=f"{left} / ({count:,} + {padding})",
        line=one.lines.get(field),
    )


def _draft_tokens(one: RankPools, row: Interval, state: Interval) -> Iterator[OwnFigure]:
    """States in a request's row, where the rounding leaves one whole number."""
    if state.low <= 0:
        return
    least, most = -(-row.low // state.high), row.high // state.low
    if least == most >= 1:
        yield OwnFigure(
            name="draft tokens",
            rank=one.rank,
            role=one.role,
            unit="count",
            value=Interval.exact(most),
            numbers=f"{row.point:,} B of states in a request's row / {state.point:,} B a state",
            line=one.lines.get("scratch_ssm"),
        )
