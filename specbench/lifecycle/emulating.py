"""Before a server that emulates a smaller card: the fraction to pass, by what this machine's card has free now.

In: a RunConfig with `gpu.emulate`. Out: the emulation and notes for the record. The non-obvious thing: free memory by
NVML moves the GPU table's figure only while the card is idle; with another process on it the table is used and the note
says that the budget comes out smaller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..budget_types import Emulation
from ..configuration.config import RunConfig
from ..engines.sglang.emulation import in_use
from ..engines.sglang.resolve import settings
from ..gpus import load_gpu
from ..host import nvml
from ..host.gpu_use import Probe, only, read
from ..units import format_gib
from .headroom import gpus_of_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulating:
    """How a start emulates a smaller card."""

    emulation: Emulation
    notes: tuple[str, ...]


def emulating(config: RunConfig, probe: Probe | str | None = None) -> Emulating | None:
    """None without `gpu.emulate`. ConfigError when the card cannot be emulated. `probe`: NVML of this machine."""
    if config.gpu.emulate is None:
        return None
    free = _least_free(config, nvml.use_reader() if probe is None else probe)
    emulation = settings(config, free_now_bytes=free).emulation
    assert emulation is not None
    notes = [note(emulation)]
    held = 0 if free is None else in_use(load_gpu(config.gpu.name), free)
    if held:
        notes.append(
            f"other processes hold {format_gib(held)} of a GPU before the start: the budget is "
            f"{format_gib(round(emulation.passed * held))} smaller than that of {emulation.card} "
            f"({emulation.passed:.4f} of it)"
        )
    return Emulating(emulation=emulation, notes=tuple(notes))


def note(emulation: Emulation) -> str:
    """One sentence: both fractions and the arithmetic between them."""
    return (
        f"{emulation.banner.upper()}: mem_fraction_static {emulation.asked:g} ({emulation.asked_source}) of "
        f"{emulation.card} is passed as {emulation.passed:.8f} ({emulation.arithmetic}); not emulated: "
        f"{'; '.join(emulation.not_emulated)}"
    )


def _least_free(config: RunConfig, probe: Probe | str) -> int | None:
    """Bytes free on the fullest GPU that the server will use; None: cannot be told, or other cards are there."""
    seen = read(probe)
    if isinstance(seen, str):  # also of a lost GPU: the engine will tell more of it
        return None
    gpus, card = gpus_of_server(config, seen, {**os.environ, **config.engine.env}), load_gpu(config.gpu.name)
    used = only(seen, gpus)
    if gpus is None or not used or any(not card.is_total(use.total_bytes) for use in used):
        return None
    return min(use.free_bytes for use in used)
