"""State of fixed size beside the recurrent one. In: dimensions. Out: bytes per state slot, per rank.

It lives and dies with the slot, is in no pool's line of the log, and no release up to 0.5.23 charges it: the field
that the solver would add (extra_mamba_cache_bytes_per_req, from 0.5.22) is never set.
"""

from __future__ import annotations

from dataclasses import dataclass

_TOKEN_BYTES = 8  # int64


@dataclass(frozen=True, slots=True, kw_only=True)
class SideState:
    """Windows of per-layer embeddings (Qwen3.8-Flash-Next): a dilated convolution's inputs and the last tokens.

    Whole on every rank. Source: SGLang 0.5.20, mem_cache/ple_state_pool.py.
    """

    layers: int
    channels: int
    columns: int  # (kernel - 1) × dilation
    context: int  # tokens before the current one that a hash reads

    def bytes(self, conv_itemsize: int) -> int:
        """Of one slot. The same again for every token of a verification, in rows of the speculative scratch."""
        return self.layers * self.channels * self.columns * conv_itemsize + self.context * _TOKEN_BYTES
