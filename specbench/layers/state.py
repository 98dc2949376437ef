"""Layers that keep a state of fixed size per request. In: head counts and dimensions. Out: bytes per slot, per rank.

All kinds have the two parts of SGLang's configs/mamba_utils.py: a convolution window of shape (channels / tp,
kernel - 1) and a recurrent state (heads / tp, head_dim, state_size); a kind may lack one of them. Heads must divide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .split import split, split_or_replicate


class StateLayer(ABC):
    """A layer with a state pool."""

    __slots__ = ()

    @property
    @abstractmethod
    def window_columns(self) -> int:
        """Columns of the convolution window (kernel - 1); 0: no convolution."""

    @property
    def windows_overlap(self) -> bool:
        """Whether successive convolution windows can share columns: the layout has the columns last."""
        return True

    @abstractmethod
    def conv_channels(self, tp: int) -> int:
        """Channels of the convolution on one rank; 0: no convolution."""

    @abstractmethod
    def ssm_elements(self, tp: int) -> int:
        """Elements of the recurrent state on one rank; 0: none."""

    def split_over(self, tp: int) -> None:
        """UnevenSplitError when the heads do not divide over the ranks."""
        self.conv_channels(tp)
        self.ssm_elements(tp)

    def conv_bytes(self, tp: int, itemsize: int) -> int:
        """Convolution window of one slot, bytes."""
        return self.conv_channels(tp) * self.window_columns * itemsize

    def conv_bytes_overlapping(self, tp: int, itemsize: int, windows: int) -> int:
        """`windows` successive windows that share their columns (each is one token further), bytes."""
        if not self.window_columns:
            return 0
        return self.conv_channels(tp) * (windows + self.window_columns - 1) * itemsize

    def ssm_bytes(self, tp: int, itemsize: int) -> int:
        """Recurrent state of one slot, bytes."""
        return self.ssm_elements(tp) * itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet(StateLayer):
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): conv_dim = v_heads * v_dim + 2 * k_heads * k_dim, a matrix per value head.

    Per rank as in SGLang: convolution (conv_dim / tp, kernel - 1), recurrent (v_heads / tp, v_dim, k_dim). Key heads
    below the ranks are replicated.
    """

    v_heads: int
    k_heads: int
    v_dim: int
    k_dim: int
    kernel: int

    @property
    def window_columns(self) -> int:
        return self.kernel - 1

    def conv_channels(self, tp: int) -> int:
        keys = split_or_replicate(self.k_heads, tp, "linear key heads")
        return split(self.v_heads, tp, "linear value heads") * self.v_dim + 2 * keys * self.k_dim

    def ssm_elements(self, tp: int) -> int:
        return split(self.v_heads, tp, "linear value heads") * self.v_dim * self.k_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(StateLayer):
    """Mamba2 (Nemotron-H, Falcon-H1, Granite-4-H): conv_dim = heads * head_dim + 2 * groups * state_size.

    A single group is copied to every rank. (SGLang's extra_groups_for_head_shards would extend several to one per rank
    too, but the mixer, layers/attention/mamba/mamba.py, asserts that the ranks divide them.)
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    kernel: int

    @property
    def window_columns(self) -> int:
        return self.kernel - 1

    def groups_per_rank(self, tp: int) -> int:
        return 1 if self.groups == 1 else split(self.groups, tp, "Mamba2 groups")

    def conv_channels(self, tp: int) -> int:
        inner = split(self.heads, tp, "Mamba2 heads") * self.head_dim
        return inner + 2 * self.groups_per_rank(tp) * self.state_size

    def ssm_elements(self, tp: int) -> int:
        return split(self.heads, tp, "Mamba2 heads") * self.head_dim * self.state_size


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta(StateLayer):
    """Kimi Delta Attention (KDA): windows of q, k and v together, a square matrix per head.

    The window's columns come first in memory, so successive windows cannot share them. (Up to 0.5.8 SGLang keeps q, k
    and v apart, in as many bytes.)
    """

    heads: int
    head_dim: int
    kernel: int

    @property
    def window_columns(self) -> int:
        return self.kernel - 1

    @property
    def windows_overlap(self) -> bool:
        return False

    def conv_channels(self, tp: int) -> int:
        return 3 * split(self.heads, tp, "KDA heads") * self.head_dim

    def conv_bytes_overlapping(self, tp: int, itemsize: int, windows: int) -> int:
        """What SGLang 0.5.14 and 0.5.15 allocate for `windows` of them, bytes: they take the channels for the columns.

        Every other version keeps whole windows.
        """
        return self.window_columns * (windows + self.conv_channels(tp) - 1) * itemsize

    def ssm_elements(self, tp: int) -> int:
        return split(self.heads, tp, "KDA heads") * self.head_dim * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention(StateLayer):
    """Lightning and simple linear attention (Ling 2.5, MiniCPM-SALA): a square matrix per head, no window.

    `norm_groups`: groups of the output norm, which a rank must hold whole (Ling: group_norm_size); None: no such rule.
    """

    heads: int
    head_dim: int
    norm_groups: int | None = None

    def split_over(self, tp: int) -> None:
        self.ssm_elements(tp)
        if self.norm_groups is not None:
            split(self.norm_groups, tp, "norm groups of linear attention")

    @property
    def window_columns(self) -> int:
        return 0

    def conv_channels(self, tp: int) -> int:
        return 0

    def ssm_elements(self, tp: int) -> int:
        return split(self.heads, tp, "linear heads") * self.head_dim * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution(StateLayer):
    """Short convolution (LFM2): a window of the hidden state, nothing recurrent."""

    channels: int
    kernel: int

    @property
    def window_columns(self) -> int:
        return self.kernel - 1

    def conv_channels(self, tp: int) -> int:
        return split(self.channels, tp, "convolution channels")

    def ssm_elements(self, tp: int) -> int:
        return 0
