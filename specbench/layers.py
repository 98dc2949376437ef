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


def split(count: int, tp: int, what: str) -> int:
    """`count` over `tp` ranks. SpecError when it does not divide."""
    if count % tp:
        raise SpecError(
            f"{what}: {count} cannot be split over {tp} tensor-parallel ranks.\n"
            f"Choose a size that divides {count}, e.g. {_divisor_below(count, tp)}."
        )
    return count // tp


def _divisor_below(count: int, tp: int) -> int:
    return max(size for size in range(1, tp) if count % size == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Softmax attention over all tokens: a key and a value per token and KV head (MHA, GQA)."""

    kv_heads: int
    head_dim: int
    v_head_dim: int

    def kv_heads_per_rank(self, tp: int) -> int:
        """At least one: KV heads are replicated when there are fewer than ranks. SpecError for an uneven split."""
        if self.kv_heads >= tp:
            return split(self.kv_heads, tp, "KV heads")
        split(tp, self.kv_heads, "tensor-parallel ranks over KV heads")
        return 1

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

    def conv_channels(self, tp: int) -> int:
        """Channels of the convolution on one rank; key heads below `tp` are replicated."""
        if self.k_heads >= tp:
            keys = split(self.k_heads, tp, "linear key heads")
        else:
            split(tp, self.k_heads, "tensor-parallel ranks over linear key heads")
            keys = 1
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
