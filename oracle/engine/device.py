"""A CUDA card that is not there: what torch and SGLang ask a device for, answered from the question's figures.

In: a card's total and what is free on it, bytes. Out: SGLang believes in eight such cards. Only queries are answered
(name, capability, memory, streams); nothing is ever computed on the card.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

_MIB = 1 << 20


@dataclass(slots=True)
class Card:
    """All cards are alike. Free memory is set by the question, and again when "the weights are loaded"."""

    total_bytes: int = 80 << 30
    free_bytes: int = 80 << 30
    capability: tuple[int, int] = (9, 0)
    count: int = 64

    @property
    def total_mib(self) -> int:
        """As nvidia-smi shows it."""
        return self.total_bytes // _MIB


CARD = Card()


class _Quiet:
    """A stream, an event, a context: whatever is done with it does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def install() -> None:
    """Before SGLang is imported: it asks at import whether this is a CUDA machine."""
    torch.version.cuda = "13.0"
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: False
    cuda.device_count = lambda: CARD.count
    cuda.current_device = lambda: 0
    cuda.set_device = lambda *_: None
    cuda.synchronize = lambda *_: None
    cuda.empty_cache = lambda: None
    cuda.get_device_name = lambda *_: "NVIDIA stand-in"
    cuda.get_device_capability = lambda *_: CARD.capability
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        name="NVIDIA stand-in",
        major=CARD.capability[0],
        minor=CARD.capability[1],
        total_memory=CARD.total_bytes,
        multi_processor_count=132,
        is_integrated=False,
    )
    cuda.mem_get_info = lambda *_: (CARD.free_bytes, CARD.total_bytes)
    cuda.Stream = cuda.Event = _Quiet
    cuda.stream = _no_context
    cuda.current_stream = lambda *_: _Quiet()


@contextlib.contextmanager
def _no_context(*_: Any) -> Iterator[None]:
    yield


def patch_totals() -> None:
    """After SGLang's utilities are imported: nvidia-smi is not there either."""
    import sglang.srt.utils.common as common

    common.get_nvgpu_memory_capacity = lambda: float(CARD.total_mib)
