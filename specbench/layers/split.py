"""What divides over tensor-parallel ranks, and sizes of element types.

KV heads below the tensor-parallel size are replicated (one per rank), so going from 4 to 8 ranks saves nothing for a
model with 4 KV heads. State heads are never replicated: an uneven split is refused.
"""

from __future__ import annotations

from ..errors import SpecError

#: Bytes per element. fp8 KV has several spellings, all one byte.
DTYPE_BYTES: dict[str, int] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "bf16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


def dtype_bytes(name: str, where: str) -> int:
    """Bytes of one element. SpecError naming `where` when the size of the type is not known."""
    if name not in DTYPE_BYTES:
        raise SpecError(
            f"{where}: no size known for elements of type {name!r}.\nKnown: {', '.join(sorted(DTYPE_BYTES))}."
        )
    return DTYPE_BYTES[name]


class UnevenSplitError(SpecError):
    """Something of a model that cannot be divided over the ranks. `what` says what, without its number."""

    def __init__(self, what: str, count: int, tp: int) -> None:
        super().__init__(
            f"{what}: {count} cannot be split over {tp} tensor-parallel ranks.\n"
            f"Choose a size that divides {count}, e.g. {_divisor_below(count, tp)}."
        )
        self.what = what
        self.count = count


def split(count: int, tp: int, what: str) -> int:
    """`count` over `tp` ranks. UnevenSplitError (a SpecError) when it does not divide."""
    if count % tp:
        raise UnevenSplitError(what, count, tp)
    return count // tp


def split_or_replicate(count: int, tp: int, what: str) -> int:
    """`count` heads over `tp` ranks: at least one each. Fewer heads than ranks are copied to several of them."""
    if count >= tp:
        return split(count, tp, what)
    if tp % count:
        raise UnevenSplitError(what, count, tp)
    return 1


def _divisor_below(count: int, tp: int) -> int:
    """A size that divides is at most `count`, however many ranks are asked for."""
    return next((size for size in range(min(tp - 1, count), 0, -1) if count % size == 0), 1)
