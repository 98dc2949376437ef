"""Layer kinds and the memory each needs. In: head counts and dimensions. Out: bytes per token or per slot, per rank.

The non-obvious thing is sharding. KV heads below the tensor-parallel size are replicated (one per rank), so going from
4 to 8 ranks saves nothing for a model with 4 KV heads. State heads are never replicated: an uneven split is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import SpecError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Softmax attention over all tokens: a key and a value per token and KV head (MHA, GQA)."""

    kv_heads: int
    head_dim: int
    v_head_dim: int

    def kv_heads_per_rank(self, tp: int) -> int:
        """At least one: KV heads are replicated when there are fewer than ranks. UnevenSplitError if neither works."""
        return split_or_replicate(self.kv_heads, tp, "KV heads")

    def split_over(self, tp: int) -> None:
        """UnevenSplitError when the heads do not divide over the ranks."""
        self.kv_heads_per_rank(tp)

    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        """Key and value of one token on one rank, bytes."""
        return self.kv_heads_per_rank(tp) * (self.head_dim + self.v_head_dim) * itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Linear attention with a fixed-size state per request: a matrix per value head, and a short convolution window.

    Shapes per rank as in SGLang's configs/mamba_utils.py: convolution (conv_dim / tp, kernel - 1) with
    conv_dim = v_heads * v_dim + 2 * k_heads * k_dim; recurrent (v_heads / tp, v_dim, k_dim).
    """

    v_heads: int
    k_heads: int
    v_dim: int
    k_dim: int
    kernel: int

    def split_over(self, tp: int) -> None:
        """UnevenSplitError when the heads do not divide over the ranks."""
        self.conv_channels(tp)

    def conv_channels(self, tp: int) -> int:
        """Channels of the convolution on one rank; key heads below `tp` are replicated."""
        keys = split_or_replicate(self.k_heads, tp, "linear key heads")
        return split(self.v_heads, tp, "linear value heads") * self.v_dim + 2 * keys * self.k_dim

    def conv_bytes(self, tp: int, itemsize: int) -> int:
        """Convolution window of one slot, bytes."""
        return self.conv_channels(tp) * (self.kernel - 1) * itemsize

    def conv_bytes_overlapping(self, tp: int, itemsize: int, windows: int) -> int:
        """`windows` successive windows that share their columns (each is one token further), bytes."""
        return self.conv_channels(tp) * (windows + self.kernel - 2) * itemsize

    def ssm_bytes(self, tp: int, itemsize: int) -> int:
        """Recurrent state of one slot, bytes."""
        return split(self.v_heads, tp, "linear value heads") * self.v_dim * self.k_dim * itemsize


Layer = FullAttention | GatedDeltaNet
