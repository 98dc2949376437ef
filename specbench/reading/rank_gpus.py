"""Which GPU a rank has, and what NVML sampled on it.

In: a record, and the ranks that its log names ("" on one GPU, TP0, TP1, …, "DP0 TP3", "PP1 TP0", "TP7 EP7"). Out: a
GPU's number, as NVML counts, for each, or UnknownError with the reason. A record of a started engine names its GPUs in
the order of its ranks. In others tensor-parallel rank n has the n-th GPU that CUDA_VISIBLE_DEVICES leaves (SGLang
0.5.12 and 0.5.16: entrypoints/engine.py, where the schedulers are launched).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..engines.sglang.given import server_args
from ..errors import RecordError
from ..rank_names import in_words, numbers
from ..records.record import RunRecord
from ..records.types import GpuSample

#: What of a rank's name says its GPU; experts and their groups are spread over the same ones.
_PLACED = frozenset(("DP", "PP", "TP"))


class UnknownError(Exception):
    """Why nothing is said, in a sentence without its full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """Samples by rank; ranks whose GPU is not known or was not sampled are missing."""

    samples: Mapping[str, tuple[GpuSample, ...]]
    missing: str | None = None  # the reason for the first rank that is missing, and which others are


def cards(record: RunRecord, ranks: Sequence[str]) -> Cards:
    """A damaged table of samples costs NVML's side, not the diagnosis."""
    try:
        samples = record.gpu_samples()
    except RecordError as damaged:
        return Cards(samples={}, missing=damaged.clause)
    found: dict[str, tuple[GpuSample, ...]] = {}
    missing: dict[str, str] = {}
    for rank in ranks:
        try:
            gpu = gpu_of_rank(record, sorted({sample.gpu for sample in samples}), rank)
        except UnknownError as unknown:
            missing[rank] = str(unknown)
        else:
            found[rank] = tuple(sample for sample in samples if sample.gpu == gpu)
    first, *others = missing or [""]
    alike = f"; nor is one of {in_words(others)} known" if others else ""
    return Cards(samples=found, missing=f"{missing[first]}{alike}" if missing else None)


def in_use_before(sampled: Cards) -> dict[str, int]:
    """Rank -> bytes in use on its card before the start, the driver's own and others'; ranks that were sampled then."""
    found = {}
    for rank, samples in sampled.samples.items():
        before = next((sample for sample in samples if sample.phase == "before"), None)
        if before is not None:
            found[rank] = before.used_bytes
    return found


def gpu_of_rank(record: RunRecord, sampled: Sequence[int], rank: str) -> int:
    """`sampled`: the GPUs that NVML sampled, ascending."""
    told = record.env.get("gpu_telemetry") or "the record does not say how GPUs were sampled"
    if not sampled:
        raise UnknownError(f"no GPU was sampled: {told}")
    place, listed = _place(record, rank), _gpus(record, sampled)
    if place >= len(listed) or listed[place] not in sampled:
        raise UnknownError(f"the GPU of rank {rank or '0'} was not sampled ({told})")
    return listed[place]


def _place(record: RunRecord, rank: str) -> int:
    """Which of a server's GPUs a rank has: stage by stage, and replica by replica where attention is not what is
    parallel over data (entrypoints/engine.py, managers/data_parallel_controller.py: gpu_id)."""
    parallel, found = record.config.parallel, numbers(rank)
    if rank and not found.keys() & _PLACED:
        raise UnknownError(f"which GPU rank {rank} has is not known")
    if parallel.pp_size > 1 and "gpu_id_step" in server_args(record.config):
        raise UnknownError("pipeline stages with --gpu-id-step: which GPU a rank has is not known")
    replica = found.get("DP", 0) if parallel.replicas > 1 else 0
    return (replica * parallel.pp_size + found.get("PP", 0)) * parallel.tp_size + found.get("TP", 0)


def _gpus(record: RunRecord, sampled: Sequence[int]) -> Sequence[int]:
    """GPUs in the order of the ranks. Older records do not name them."""
    told = record.env.get("server_gpus")
    if isinstance(told, list) and told and all(isinstance(gpu, int) for gpu in told):
        return told
    if len(sampled) == 1:
        return sampled
    args, visible = server_args(record.config), record.config.engine.env.get("CUDA_VISIBLE_DEVICES", _inherited(record))
    if args.keys() & {"base_gpu_id", "gpu_id_step"}:
        raise UnknownError("--base-gpu-id: which GPU a rank has is not known")
    if visible is None:
        return sampled
    entries = [entry.strip() for entry in visible.split(",")]
    found = [int(entry) if entry.isdecimal() else _by_uuid(record, entry) for entry in entries]
    known = [gpu for gpu in found if gpu is not None]
    if len(known) < len(entries):
        raise UnknownError("CUDA_VISIBLE_DEVICES names GPUs in another way than by number")
    return known


def _by_uuid(record: RunRecord, entry: str) -> int | None:
    """Of a name like GPU-28d4707a, or its beginning, by what NVML said before the start."""
    memory = record.env.get("gpu_memory")
    before = memory.get("before") if isinstance(memory, Mapping) else None
    cards = [card for card in before if isinstance(card, Mapping)] if isinstance(before, list) else []
    found = [card.get("gpu") for card in cards if entry and str(card.get("uuid", "")).startswith(entry)]
    return found[0] if len(found) == 1 and isinstance(found[0], int) else None


def _inherited(record: RunRecord) -> str | None:
    variables = record.env.get("inherited_environment")
    value = variables.get("CUDA_VISIBLE_DEVICES") if isinstance(variables, Mapping) else None
    return value if isinstance(value, str) else None
