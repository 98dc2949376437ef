"""The card of a bare log: told, named in the paste, or the one whose memory the log shows.

In: names beside the log, the capacity of an out-of-memory text, free memory before loading. Out: a row of the GPU
table, with the assumption in words. What contradicts the log's own memory is not used.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..engines.contract import PoolReport, ServerLog
from ..gpus import GpuSpec, known_gpus, load_gpu, plain
from ..units import format_gib
from .told import Told

#: Of what nvidia-smi shows, CUDA has up to so much less (PyTorch's "total capacity": 94.50 GiB of 95.59).
_LESS_CAPACITY = 0.03
#: An idle card has more than this share free before loading (an H200: 99%).
_IN_USE = 0.05
#: Two cards that differ by less cannot be told apart by free memory.
_SAME = 0.03


def card_of_log(log: ServerLog, pools: PoolReport, told: Told, assumed: list[str]) -> tuple[str | None, bool]:
    """A row of the GPU table, None: nothing tells; and whether it is known, not taken by its memory.

    Sentences go to `assumed`.
    """
    cards = tuple(map(load_gpu, known_gpus()))
    fitting = _by_memory(cards, log, pools)
    if told.gpu is not None:
        own = load_gpu(told.gpu)  # a share of a card is not guessed, but can be told
        if fitting is None or own.is_host or own in (_by_memory((*cards, own), log, pools) or ()):
            return told.gpu, True
        assumed.append(f"told GPU {told.gpu}, but {_memory(log, pools)}: the log counts")
    named = _named(cards, log.beside.cards)
    both = [card for card in named if fitting is None or card in fitting]
    if both:
        assumed.append(f"GPU {both[0].name}, as the log names it ({log.beside.cards[0]})")
        return both[0].name, len(both) == 1
    if fitting is None:
        assumed.append("free memory before loading is not in the log, so the card cannot be told")
        return None, False
    if not fitting:
        assumed.append("no card of the GPU table had that much memory free")
        return None, False
    gpu = min(fitting, key=lambda card: card.total_bytes)
    others = [card.name for card in fitting if card is not gpu and card.total_bytes <= gpu.total_bytes * (1 + _SAME)]
    capacity = _capacity(log) is not None
    why = "the smallest card of the table with that much memory free"
    if capacity:
        why = "its capacity is in an out-of-memory text"
    doubts = [f"{', '.join(others)} had as much"] if others else []
    free = max((quantity.bytes for quantity in pools.pre.values()), default=gpu.total_bytes)
    if free < (1 - _IN_USE) * gpu.total_bytes:
        doubts.append(
            f"{format_gib(free)} of its {format_gib(gpu.total_bytes)} were free: something else uses it, or it is "
            "another card"
        )
    also = f"; {'; '.join(doubts)}: --gpu NAME tells" if doubts else ""
    assumed.append(f"GPU assumed {gpu.name} ({why}{also})")
    return gpu.name, False


def _by_memory(cards: Iterable[GpuSpec], log: ServerLog, pools: PoolReport) -> list[GpuSpec] | None:
    """Cards that can have had the logged memory; None: none is logged."""
    capacity = _capacity(log)
    free = max((quantity.bytes for quantity in pools.pre.values()), default=None)
    if capacity is None and free is None:
        return None
    found = list(cards)
    if capacity is not None:
        found = [card for card in found if 1 - _LESS_CAPACITY <= capacity / card.total_bytes <= 1.005] or found
    return [card for card in found if free is None or card.total_bytes >= free]


def _capacity(log: ServerLog) -> int | None:
    """Of PyTorch's out-of-memory text."""
    known = (failure.values.get("total_bytes") for failure in log.failures)
    return next((total for total in known if isinstance(total, int) and total > 0), None)


def _memory(log: ServerLog, pools: PoolReport) -> str:
    capacity = _capacity(log)
    if capacity is not None:
        return f"the log's card has {format_gib(capacity)}"
    return f"{format_gib(max(quantity.bytes for quantity in pools.pre.values()))} were free before loading"


def _named(cards: Iterable[GpuSpec], names: Iterable[str]) -> list[GpuSpec]:
    """Cards that a name means: 'H100 80GB HBM3' is h100, 'A100-SXM4-80GB' may be two."""
    table = list(cards)
    for name in names:
        words = name.replace("-", " ").split()
        for length in range(len(words), 0, -1):
            part = plain(" ".join(words[:length])).removeprefix("geforce")
            found = [card for card in table if plain(card.name) == part]
            found = found or [card for card in table if len(part) > 2 and part in plain(card.title)]
            if found:
                return found
    return []
