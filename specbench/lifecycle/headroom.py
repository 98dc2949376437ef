"""Before a real start: who holds memory on the GPUs that the server will use, and can its predicted free memory be had?

In: a RunConfig and a reading of all GPUs. Out: the GPUs that count, and notes for the record and the screen. Nothing is
refused: the engine may still start, with other pools than predicted. The non-obvious thing: what is free now is
compared with what the engine sees free before loading, so its own CUDA context has to come off first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..configuration.config import RunConfig
from ..engines.sglang.given import server_args
from ..engines.sglang.sizing import rule_version
from ..errors import ConfigError
from ..gpus import load_gpu
from ..host import nvml
from ..host.gpu_use import IN_USE_BEFORE, InUse, Probe, gpus_in_words, holders_words, in_use_words, only, read
from ..units import GIB, format_gib
from .preflight import on_this_host

#: The least that an engine's CUDA context and libraries take before the weights load (an H200: 0.67 GiB).
_CONTEXT_LOW_BYTES = GIB // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What stands before a start."""

    gpus: tuple[int, ...] | None  # NVML indices that count; None: all of this machine; empty: no GPU is used
    notes: tuple[str, ...]  # for the record, what is impossible first
    warnings: tuple[str, ...]  # those of the notes that belong on the screen


def headroom(config: RunConfig, probe: Probe | str | None = None) -> Headroom:
    """Looks once, right before the start. `probe` reads all GPUs, or says why not; None: NVML of this machine."""
    not_started = config.engine.replay is not None or config.engine.attach is not None
    if not_started or server_args(config).get("device") not in (None, "cuda"):
        return Headroom(gpus=(), notes=(), warnings=())
    probe = nvml.use_reader() if probe is None else probe
    if isinstance(probe, str):
        return Headroom(gpus=None, notes=(), warnings=())  # the record says why when the server has ended
    seen = read(probe, "GPU memory in use before the start")
    if isinstance(seen, str):  # a lost GPU: the engine will tell more of it
        return Headroom(gpus=None, notes=(seen,), warnings=(seen,))
    gpus = gpus_of_server(config, seen, {**os.environ, **config.engine.env})
    uses = only(seen, gpus)
    alike: dict[InUse, list[int]] = {}
    for use in uses:
        alike.setdefault(replace(use, gpu=0, uuid=None), []).append(use.gpu)
    warnings = tuple(text for use, gpus in alike.items() if (text := why_impossible(config, use, gpus)) is not None)
    held = in_use_words(uses)
    notes = (*warnings, *([f"{IN_USE_BEFORE}{held}"] if held else ()))
    return Headroom(gpus=gpus, notes=notes, warnings=warnings or notes)


def gpus_of_server(config: RunConfig, seen: Sequence[InUse], environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """NVML indices of the GPUs that the engine will take, in the order of its ranks; None: not known, so all count.

    CUDA numbers what CUDA_VISIBLE_DEVICES leaves, by speed unless CUDA_DEVICE_ORDER says by bus, as NVML does.
    """
    same_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({use.total_bytes for use in seen}) <= 1
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    visible: list[int] = []
    if listed is None:
        visible = [use.gpu for use in seen]
    for entry in () if listed is None else (part.strip() for part in listed.split(",")):
        found = [use.gpu for use in seen if str(use.gpu) == entry or (entry and (use.uuid or "").startswith(entry))]
        if len(found) != 1:
            break  # CUDA stops at the first entry that is no device; instances of a GPU (MIG) are not told apart here
        visible += found
    names_uuids = listed is not None and listed.strip().startswith("GPU-")
    args = server_args(config)
    first, step = args.get("base_gpu_id", 0), args.get("gpu_id_step", 1)
    if not (same_order or names_uuids) or not isinstance(first, int) or not isinstance(step, int):
        return None
    places = [first + number * step for number in range(on_this_host(config, config.parallel.gpus))]
    if step < 1 or not all(0 <= place < len(visible) for place in places):
        return None
    return tuple(visible[place] for place in places)


def why_impossible(config: RunConfig, use: InUse, gpus: Sequence[int] | None = None) -> str | None:
    """Why this start cannot have its predicted free memory on a GPU, with the arithmetic; None: it can. `gpus`: those
    that are in use alike; None: that one."""
    try:
        card = load_gpu(config.gpu.name)
    except ConfigError:
        return None
    if not card.is_total(use.total_bytes):
        return None  # another card: its figures are not those of the table, which `preflight` says
    ranks = config.parallel.tp_size * config.parallel.pp_size
    predicted = card.free_before_load(ranks, rule_version(config.engine)).bytes
    missing = predicted.low - (use.free_bytes - _CONTEXT_LOW_BYTES)
    if missing <= 0:
        return None
    return (
        f"THIS START CANNOT HAVE ITS PREDICTED FREE MEMORY on {gpus_in_words(gpus or [use.gpu])}: "
        f"{format_gib(use.free_bytes)} are free now, of which the engine's own context takes at least "
        f"{format_gib(_CONTEXT_LOW_BYTES)}; predicted before loading: {format_gib(predicted.low)} or more, so "
        f"{format_gib(missing)} are missing; {holders_words(use)}"
    )
