"""Which GPU a rank has, and what NVML sampled on it.

In: a record, and the ranks that its log names ("" on one GPU, or TP0, TP1, …). Out: a GPU's number, as NVML counts, for
each, or UnknownError with the reason. A record of a started engine names its GPUs in the order of its ranks. In others
tensor-parallel rank n has the n-th GPU that CUDA_VISIBLE_DEVICES leaves (SGLang 0.5.12 and 0.5.16:
entrypoints/engine.py, where the schedulers are launched).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..engines.sglang.given import server_args
from ..errors import RecordError
from ..records.record import RunRecord
from ..records.types import GpuSample


class UnknownError(Exception):
    """Why nothing is said, in a sentence without its full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """Samples by rank; ranks whose GPU is not known or was not sampled are missing."""

    samples: Mapping[str, tuple[GpuSample, ...]]
    missing: str | None = None  # the reason for the first rank that is missing


def cards(record: RunRecord, ranks: Sequence[str]) -> Cards:
    """A damaged table of samples costs NVML's side, not the diagnosis."""
    try:
        samples = record.gpu_samples()
    except RecordError as damaged:
        return Cards(samples={}, missing=str(damaged).partition("\n")[0].removesuffix("."))
    found: dict[str, tuple[GpuSample, ...]] = {}
    missing = None
    for rank in ranks:
        try:
            gpu = gpu_of_rank(record, sorted({sample.gpu for sample in samples}), rank)
        except UnknownError as unknown:
            missing = missing or str(unknown)
        else:
            found[rank] = tuple(sample for sample in samples if sample.gpu == gpu)
    return Cards(samples=found, missing=missing)


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
    if record.config.parallel.pp_size > 1:
        raise UnknownError("pipeline stages: which GPU a rank has is not known")
    number = rank.removeprefix("TP") or "0"
    if not number.isdecimal():
        raise UnknownError(f"which GPU rank {rank} has is not known")
    listed = _gpus(record, sampled)
    if int(number) >= len(listed) or listed[int(number)] not in sampled:
        raise UnknownError(f"the GPU of rank {rank or '0'} was not sampled ({told})")
    return listed[int(number)]


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
    if not all(entry.isdecimal() for entry in entries):
        raise UnknownError("CUDA_VISIBLE_DEVICES names GPUs in another way than by number")
    return [int(entry) for entry in entries]


def _inherited(record: RunRecord) -> str | None:
    variables = record.env.get("inherited_environment")
    value = variables.get("CUDA_VISIBLE_DEVICES") if isinstance(variables, Mapping) else None
    return value if isinstance(value, str) else None
