"""Layers that keep something for every token. In: head counts and dimensions. Out: bytes per token, per rank.

Formulas as in SGLang's model_executor/pool_configurator.py. The non-obvious thing: latent attention (MLA) keeps one
vector for all heads, so tensor parallelism does not divide it at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .split import split, split_or_replicate

_INDEX_GROUP = 128  # fp8 elements that share one float32 scale
_SCALE_BYTES = 4
_ROTARY_ITEMSIZE = 2  # the rotary part stays in bf16 beside scaled fp8
_INDEX_ITEMSIZE = 2


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
class IndexedAttention(FullAttention):
    """Full attention that picks its tokens by a small index (QSA, Qwen3.8-Flash-Next).

    Beside key and value it keeps an index key in bf16 for every `compress_ratio` tokens, whole on every rank (SGLang:
    mem_cache/qsa_kv_pool.py, qsa_bytes_per_token).
    """

    index_heads: int
    index_dim: int
    compress_ratio: int

    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        plain = FullAttention.bytes_per_token(self, tp, itemsize)
        return plain + self.index_heads * self.index_dim * _INDEX_ITEMSIZE // self.compress_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentLayout:
    """How an engine version keeps the latent KV of sparse attention. The default is the newest version's, on a GPU."""

    scaled_fp8: bool = True  # fp8: float32 scales per 128 elements, the rotary part in bf16; False: bare fp8
    shares_index: bool = True  # a layer that reuses another's selection keeps no index keys
    pools_index: bool = True  # one index key for several tokens, where the model pools them


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(KvLayer):
    """MLA: one compressed vector and one rotary key per token, the same on every rank.

    `index_dim`: width of a sparse-attention indexer's key (DSA), kept in fp8 with a float32 scale per 128 elements;
    None: no indexer. `index_pool`: tokens that share an index key. `index_shared`: the layer reuses the selection of
    an earlier one. `heads`: of the queries, which the ranks do share; None: not to be checked.
    """

    kv_lora_rank: int
    rope_dim: int  # 0: the layers know no positions
    heads: int | None = None
    index_dim: int | None = None
    index_pool: int = 1
    index_shared: bool = False

    def split_over(self, tp: int) -> None:
        """Every rank keeps the whole vector; only the heads that read it divide."""
        if self.heads is not None:
            split(self.heads, tp, "attention heads")

    def bytes_per_token(self, tp: int, itemsize: int) -> int:
        """As the newest engine version keeps it."""
        return self.bytes_laid_out(LatentLayout(), itemsize)

    def bytes_laid_out(self, layout: LatentLayout, itemsize: int) -> int:
        """Vector, rotary key and index key of one token, bytes."""
        latent = (self.kv_lora_rank + self.rope_dim) * itemsize
        if self.index_dim is not None and layout.scaled_fp8 and itemsize == 1:
            latent = self.kv_lora_rank + self.kv_lora_rank // _INDEX_GROUP * _SCALE_BYTES
            latent += self.rope_dim * _ROTARY_ITEMSIZE
        return latent + self.index_bytes(layout)

    def index_bytes(self, layout: LatentLayout) -> int:
        """The index key of one token, bytes: its share of a pooled one, rounded up."""
        if self.index_dim is None or (self.index_shared and layout.shares_index):
            return 0
        key = self.index_dim + self.index_dim // _INDEX_GROUP * _SCALE_BYTES
        return -(-key // self.index_pool) if layout.pools_index else key
