"""For which batch sizes decoding graphs are captured. In: flags and the pool of requests. Out: batch sizes, ascending.

SGLang 0.5.6 to 0.5.23, server_args.py (later arg_groups/cuda_graph_hook.py), the list by the largest size; and
get_batch_sizes_to_capture (model_executor), which cuts it at the requests that run at once and adds that number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_GIVEN = ("cuda_graph_bs", "cuda_graph_bs_decode")
_LARGEST = ("cuda_graph_max_bs", "cuda_graph_max_bs_decode")


def decode_sizes(args: Mapping[str, Any], *, largest: int, requests: int, speculates: bool) -> tuple[int, ...]:
    """`args`: the engine's other flags by underscored name. `largest`: --cuda-graph-max-bs or the card's default.
    `requests`: that run at once on one attention rank. Empty: none run."""
    if requests < 1:
        return ()
    named = next((args[name] for name in _LARGEST if isinstance(args.get(name), int)), largest)
    sizes = _given(args) or _generated(named, speculates, padded=not args.get("disable_cuda_graph_padding"))
    more = [requests] if sizes and max(sizes) > requests else []
    return tuple(sorted({size for size in (*sizes, *more) if 0 < size <= requests}))


def _given(args: Mapping[str, Any]) -> list[int] | None:
    for name in _GIVEN:
        found = args.get(name)
        if isinstance(found, int) and not isinstance(found, bool):
            return [found]
        texts = found.split() if isinstance(found, str) else found
        if isinstance(texts, Sequence) and texts and all(str(one).isdecimal() for one in texts):
            return [int(one) for one in texts]
    return None


def _generated(largest: int, speculates: bool, *, padded: bool) -> list[int]:
    if not padded:
        return list(range(1, largest + 1))
    if speculates:  # finer: padding costs draft tokens
        listed = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, largest + 1, 16),
        ]
    else:
        listed = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    return [*(size for size in listed if size < largest), largest]
