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

#: The rest is of the target, or of the card.
_OF_A_DRAFT = frozenset({"weights", "KV tokens", "KV", "free after its pools"})
_TITLE: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}


def pools_text(diagnosis: Diagnosis) -> Table:
    """Terms down, ranks across; ranks that got the same slots and tokens are one column, with all their sizes. What no
    rank logged is named below; a cell of a draft is empty where it has none of its own.
    """
    title = f"\npools per rank, in GiB (2^30 B) or counts ({diagnosis.origin})"
    table = Table(title=title, box=SIMPLE_HEAD, **_TITLE)
    table.add_column("", no_wrap=True)
    columns = _grouped(diagnosis.pools.ranks)
    for ranks in columns:
        table.add_column(f"{ranks[0].role}{_ranks(ranks)}", justify="right", no_wrap=True)
    cards = (
        ("communication", diagnosis.pools.communication),
        ("free before loading", diagnosis.pools.pre),
        ("free when sized", diagnosis.pools.post),
    )
    every = [_figures(ranks) for ranks in columns]
    rows = [(name, [column[row][1] for column in every]) for row, (name, _) in enumerate(every[0])]
    rows += [(name, [_least_and_most(sizes, ranks) for ranks in columns]) for name, sizes in cards]
    silent = [name for name, cells in rows if not any(cells)]
    for name, cells in rows:
        if name not in silent:
            table.add_row(name, *(cell or _unknown(name, ranks) for cell, ranks in zip(cells, columns, strict=True)))
    if silent:
        table.caption, table.caption_justify = f"not logged: {', '.join(silent)}", "left"
    return table


def _unknown(name: str, ranks: list[RankPools]) -> str:
    return "" if ranks[0].role == "draft" and name not in _OF_A_DRAFT else "not logged"


def _least_and_most(free: Mapping[str, Quantity], ranks: list[RankPools]) -> str:
    """Of the target's ranks: '137.99 (TP1)', 'to 138.22 (TP3)' below it; '1.07 (TP0; TP1 not logged)'."""
    return "" if ranks[0].role == "draft" else _over_ranks({pools.rank: free.get(pools.rank) for pools in ranks})


def _over_ranks(sizes: Mapping[str, Quantity | None], *, named: bool = True) -> str:
    """The least and the most, with their ranks, each in a line; in one of its own that the others logged none; "": all
    of them."""
    known = {rank: size for rank, size in sizes.items() if size is not None}
    if not known:
        return ""
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
        ("state slots", format_count(ranks[0].state_slots, unknown="")),
        ("state conv", size(lambda pools: pools.state_conv)),
        ("state ssm", size(lambda pools: pools.state_ssm)),
        ("scratch ssm", size(lambda pools: pools.scratch_ssm)),
        ("scratch conv", size(lambda pools: pools.scratch_conv)),
        ("KV tokens", format_count(ranks[0].kv_tokens, unknown="")),
        ("KV", size(lambda pools: pools.kv)),
        ("graphs", size(lambda pools: pools.graphs)),
        ("free after its pools", size(lambda pools: pools.available)),
    ]


def _size(quantity: Quantity) -> str:
    return f"{quantity.bytes / GIB:z.2f}"
