"""What every rank logged of its pools, for the terminal: terms down, ranks across."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..diagnose.types import Diagnosis
from ..engines.contract import RankPools
from ..rank_names import in_words
from ..units import GIB, Quantity, format_count

_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}


def pools_text(diagnosis: Diagnosis) -> Table:
    """Terms down, ranks across; ranks that got the same slots and tokens are one column, with all their sizes."""
    title = f"\npools per rank, in GiB (2^30 B) or counts ({diagnosis.origin})"
    table = Table(title=title, box=SIMPLE_HEAD, **_TITLE)
    table.add_column("", no_wrap=True)
    columns = _grouped(diagnosis.pools.ranks)
    for ranks in columns:
        table.add_column(f"{ranks[0].role}{_ranks(ranks)}", justify="right", no_wrap=True)
    figures = [_figures(ranks) for ranks in columns]
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
    """Of the target's ranks: '137.99 (TP1)', 'to 138.22 (TP3)' below it; '1.07 (TP0; TP1 not logged)'."""
    return "·" if ranks[0].role == "draft" else _over_ranks({pools.rank: free.get(pools.rank) for pools in ranks})


def _over_ranks(sizes: Mapping[str, Quantity | None], *, named: bool = True) -> str:
    """The least and the most, with their ranks, each in a line; in one of its own that the others logged none."""
    known = {rank: size for rank, size in sizes.items() if size is not None}
    if not known:
        return "·"
    low, high = min(known.values(), key=lambda size: size.bytes), max(known.values(), key=lambda size: size.bytes)
    silent = in_words(rank for rank in sizes if rank not in known)
    if _size(low) == _size(high):
        return f"{_size(low)} ({in_words(known)}; {silent} not logged)" if silent else _size(low)
    ranks = [in_words(rank for rank, size in known.items() if size == end) for end in (low, high)]
    least, most = (
        f"{_size(end)}{f' ({whose})' if named else ''}" for end, whose in zip((low, high), ranks, strict=True)
    )
    words = f"{least}\nto {most}" if named else f"{least} to {most}"
    return f"{words}\n{silent} not logged" if silent else words


def _grouped(ranks: tuple[RankPools, ...]) -> list[list[RankPools]]:
    """Ranks of one role that log the same counts, together. Sizes may differ, as free memory does: weights are told by
    what was free before and after, so that what else ran meanwhile is in them."""
    groups: list[list[RankPools]] = []
    for pools in ranks:
        same = next((g for g in groups if _counts(g[0]) == _counts(pools)), None)
        if same is not None:
            same.append(pools)
        else:
            groups.append([pools])
    return groups


def _counts(pools: RankPools) -> tuple[object, ...]:
    return pools.role, pools.state_slots, pools.kv_tokens


def _ranks(ranks: list[RankPools]) -> str:
    words = in_words(pools.rank for pools in ranks if pools.rank)
    return f"\n{words}" if words else ""


def _figures(ranks: list[RankPools]) -> list[tuple[str, str]]:
    def size(of: Callable[[RankPools], Quantity | None]) -> str:
        return _over_ranks({pools.rank: of(pools) for pools in ranks}, named=False)

    return [
        ("weights", size(lambda pools: pools.weights)),
        ("state slots", format_count(ranks[0].state_slots, unknown="·")),
        ("state conv", size(lambda pools: pools.state_conv)),
        ("state ssm", size(lambda pools: pools.state_ssm)),
        ("scratch ssm", size(lambda pools: pools.scratch_ssm)),
        ("scratch conv", size(lambda pools: pools.scratch_conv)),
        ("KV tokens", format_count(ranks[0].kv_tokens, unknown="·")),
        ("KV", size(lambda pools: pools.kv)),
        ("graphs", size(lambda pools: pools.graphs)),
        ("free after its pools", size(lambda pools: pools.available)),
    ]


def _size(quantity: Quantity | None) -> str:
    return "·" if quantity is None else f"{quantity.bytes / GIB:z.2f}"
