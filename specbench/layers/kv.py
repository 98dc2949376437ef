"""Layers that keep something for every token. In: head counts and dimensions. Out: bytes per token, per rank.

Formulas as in SGLang's model_executor/pool_configurator.py. The non-obvious thing: latent attention (MLA) keeps one
vector for all heads, so tensor parallelism does not divide it at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .split import split_or_replicate

_INDEX_GROUP = 128  # elements of an indexer's key that share one float32 scale
_SCALE_BYTES = 4


class KvLayer(ABC):
    """A layer with a KV pool."""

    __slots__ = ()

    @abstractmethod
    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        """What one token takes on one of `tp` ranks, bytes. `itemsize`: of the KV type."""

    @abstractmethod
    def split_over(self, tp: int) -> None:
        """UnevenSplitError when the heads do not divide over the ranks."""

    @property
    def window(self) -> int | None:
        """Tokens that the layer looks back; None: all of them."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention(KvLayer):
    """Softmax attention over all tokens: a key and a value per token and KV head (MHA, GQA)."""

    kv_heads: int
    head_dim: int
    v_head_dim: int

    def kv_heads_per_rank(self, tp: int) -> int:
        """At least one: KV heads are replicated when there are fewer than ranks. UnevenSplitError if neither works."""
        return split_or_replicate(self.kv_heads, tp, "KV heads")

    def split_over(self, tp: int) -> None:
        self.kv_heads_per_rank(tp)

    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        """Key and value of one token on one rank, bytes."""
        return self.kv_heads_per_rank(tp) * (self.head_dim + self.v_head_dim) * itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(FullAttention):
    """Attention over the last tokens only. SGLang keeps such layers in a pool of their own."""

    window_tokens: int

    @property
    def window(self) -> int | None:
        return self.window_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(KvLayer):
    """MLA: one compressed vector and one rotary key per token, the same on every rank.

    `index_dim`: width of a sparse-attention indexer's key, kept in fp8 with a float32 scale per 128 elements;
    None: no indexer.
    """

    kv_lora_rank: int
    rope_dim: int
    index_dim: int | None = None

    def split_over(self, tp: int) -> None:
        """Nothing to split: every rank keeps the whole vector."""

    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        index = 0 if self.index_dim is None else self.index_dim + self.index_dim // _INDEX_GROUP * _SCALE_BYTES
        return (self.kv_lora_rank + self.rope_dim) * itemsize + index
