"""Memory that a model's weights take on one rank. In: the tensors in load order. Out: bytes that leave the free memory.

The non-obvious thing: free memory falls by what PyTorch's caching allocator reserves, not by the sum of the tensors.
Small tensors share segments, large ones are rounded up, and the intermediate tensors of the rotary table leave holes
that later weights only partly fill. With the allocator's rules replayed, SGLang's "Load weight end … mem usage" comes
out within 0.03 GiB where the plain sum is up to 2 % low.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from .units import MIB, Interval

# Rules of c10/cuda/CUDACachingAllocator.cpp (default settings), unchanged for years.
_ROUND = 512  # every block is a multiple of this
_SMALL_LIMIT = MIB  # up to here: small pool
_SMALL_SEGMENT = 2 * MIB
_MIDDLE_LIMIT = 10 * MIB  # below: a shared segment of 20 MiB
_MIDDLE_SEGMENT = 20 * MIB
_LARGE_ROUND = 2 * MIB

#: Measured on an H200 over 1, 2 and 4 ranks and two SGLang versions: at most 0.03 GiB, and what cuBLAS and friends take
#: at first use is part of some figures.
_UNKNOWN_BYTES = 32 * MIB
_UNKNOWN_SHARE = 0.002
#: Of quantized tensors: kernels chosen at start pad and keep their scales in several ways. Three servers' figures are
#: within 0.3 % (27B in FP8 and in mixed NVFP4, Qwen3-Coder-Next in FP8).
_UNKNOWN_SHARE_QUANTIZED = 0.01


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter or buffer on this rank. Equal by its bytes alone: the rest is for counting."""

    bytes: int
    parameters: int = field(default=0, compare=False)  # the model's own numbers in it; 0: scales and buffers
    module: str = field(default="", compare=False)  # model.layers.3.mlp.down_proj


@dataclass(frozen=True, slots=True)
class Repacked:
    """A parameter that is built anew once all weights are read; the former one lies until then."""

    before: int  # bytes
    bytes: int  # 0: it is dropped
    parameters: int = field(default=0, compare=False)
    module: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """cos and sin of every position in float32, built on the device. One per model and geometry: layers share it."""

    positions: int
    dim: int

    @property
    def bytes(self) -> int:
        return self.positions * self.dim * 4


@dataclass(frozen=True, slots=True)
class Doubt:
    """What some kernels keep of a module beside its tensors, and others do not: it raises the interval's high end."""

    size: int  # bytes
    module: str = ""
    without_fp4: bool = False  # only on cards that do not compute in FP4

    @property
    def bytes(self) -> int:
        """Nothing is counted of it."""
        return 0

    @property
    def parameters(self) -> int:
        return 0


Part = Tensor | Repacked | RotaryTable | Doubt


def reserved(parts: Iterable[Part], *, fp4: bool = False) -> Interval:
    """Bytes that loading takes from the free memory of one rank, with the margin seen on real servers.

    `fp4`: the card is known to compute in FP4.
    """
    memory = _Allocator()
    repacked: list[tuple[_Block, int]] = []
    quantized = doubt = 0
    for part in parts:
        if not isinstance(part, RotaryTable | Doubt) and part.bytes * 2 < part.parameters * 3:  # under 12 bits a number
            quantized += part.bytes
        if isinstance(part, RotaryTable):
            half = part.bytes // 2
            temporary = [memory.take(half) for _ in range(3)]  # angles, cos, sin
            memory.take(part.bytes)
            for block in temporary:
                memory.give_back(block)
        elif isinstance(part, Doubt):
            doubt += 0 if fp4 and part.without_fp4 else part.size
        elif isinstance(part, Repacked):
            repacked.append((memory.take(part.before), part.bytes))
        else:
            memory.take(part.bytes)
    for block, size in repacked:  # module by module, as process_weights_after_loading does
        if size:
            memory.take(size)
        memory.give_back(block)
    total = memory.in_use_after_trim()
    margin = _UNKNOWN_BYTES + round(total * _UNKNOWN_SHARE + quantized * _UNKNOWN_SHARE_QUANTIZED)
    return Interval(max(0, total - margin), total, total + margin + doubt)


@dataclass(slots=True)
class _Segment:
    size: int
    small: bool
    free: int  # bytes in free blocks


_Block = tuple[int, int, int]  # size, segment, offset


@dataclass(slots=True)
class _Allocator:
    """Best fit over free blocks of the small and the large pool, splitting and merging as PyTorch does."""

    segments: list[_Segment] = field(default_factory=list)
    free_small: list[_Block] = field(default_factory=list)
    free_large: list[_Block] = field(default_factory=list)

    def take(self, size: int) -> _Block:
        size = max(_ROUND, -(-size // _ROUND) * _ROUND)
        small = size <= _SMALL_LIMIT
        pool = self.free_small if small else self.free_large
        position = bisect_left(pool, (size, -1, -1))
        if position == len(pool):
            self._new_segment(size, small)
            position = bisect_left(pool, (size, -1, -1))
        found, segment, offset = pool.pop(position)
        rest = found - size
        keep_whole = rest < _ROUND if small else rest <= _SMALL_LIMIT
        if not keep_whole:
            insort(pool, (rest, segment, offset + size))
        used = found if keep_whole else size
        self.segments[segment].free -= used
        return used, segment, offset

    def give_back(self, block: _Block) -> None:
        size, number, offset = block
        segment = self.segments[number]
        segment.free += size
        pool = self.free_small if segment.small else self.free_large
        for other in [free for free in pool if free[1] == number]:
            if other[2] + other[0] == offset or offset + size == other[2]:
                pool.remove(other)
                offset, size = min(offset, other[2]), size + other[0]
        insort(pool, (size, number, offset))

    def in_use_after_trim(self) -> int:
        """Segments that hold anything; wholly free ones go back to the driver (torch.cuda.empty_cache)."""
        return sum(segment.size for segment in self.segments if segment.free < segment.size)

    def _new_segment(self, size: int, small: bool) -> None:
        if small:
            total = _SMALL_SEGMENT
        elif size < _MIDDLE_LIMIT:
            total = _MIDDLE_SEGMENT
        else:
            total = -(-size // _LARGE_ROUND) * _LARGE_ROUND
        self.segments.append(_Segment(total, small, total))
        insort(self.free_small if small else self.free_large, (total, len(self.segments) - 1, 0))
