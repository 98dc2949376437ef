"""Whole cards beside the terms: what the distributed init took, what is in use when ready, what nobody explains.

In: NVML's samples of a rank's card, and the rows of what is known of it. Out: rows of `TOTALS`. The non-obvious thing:
NVML knows no terms, only what a card has in use; what it shows above the baseline, above what the distributed init took
and above all logged terms is the engine's CUDA context, its workspaces, and what nobody explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..engines.contract import ServerLog
from ..engines.sglang.server_info import ServerInfo
from ..gpus import Communication
from ..reading.freeread_rank import Init
from ..reading.pools import distributed_inits
from ..records.types import GpuSample
from ..units import GIB, Quantity, format_gib
from .ledger import Ledger
from .side import SERVER_INFO, Side, Told, by_line, line_words, row

_STOPPED = frozenset({"stop", "steady_end", "killed", "after"})


def taken_by_init(
    log: ServerLog,
    rank: str,
    expected: Communication | None,
    expected_from: str,
    card: Sequence[GpuSample] | None,
    init: Init | None,
) -> Iterator[Side]:
    """What a rank's distributed init took of its card, in bytes. `expected`: of the GPU table, for this card."""
    notice = distributed_inits(log).get(rank)
    if notice is None:
        return
    used: Quantity = notice.values["used"]
    nvml = None
    if init is not None and card:
        taken, after = init.taken, init.after
        low = "" if after.is_exact else f"{after.low / GIB:.4f} to "
        nvml = Told(
            value=taken.point,
            tolerance=max(taken.high - taken.point, taken.point - taken.low),
            source=f"NVML, GPU {card[0].gpu}: {format_gib(init.before_bytes, digits=4)} free before the distributed "
            f"init, {low}{format_gib(after.high, digits=4)} after it",
            place=f"GPU {card[0].gpu}",
        )
    yield row(
        "communication",
        rank,
        predicted=None if expected is None else expected.bytes,
        log=by_line(used.bytes, used.resolution_bytes, notice.line),
        nvml=nvml,
        predicted_from=None if expected is None else expected_from,
    )


def totals(
    log: ServerLog,
    taken: Sequence[Side],
    card: Sequence[GpuSample] | None,
    told: ServerInfo | None,
    rank: str,
    ledger: Ledger | None,
) -> Iterator[Side]:
    """What a card has in use. `taken`: rows of what is known, communication where it is logged, and the terms."""
    before = next((sample for sample in card or () if sample.phase == "before"), None)
    if card is None or before is None:
        return
    base = before.used_bytes
    yield row("before_start", rank, nvml=_nvml(before, base, "before the start"))
    serving = _serving(card)
    if not serving:
        return
    ready = serving[0].used_bytes - base
    yield row(
        "at_ready",
        rank,
        log=_used_by_summary(log, rank, before),
        server_info=_used_by_server_info(told, before),
        nvml=_nvml(before, ready, "first sample when ready"),
        alike=False,
    )
    most = max(sample.used_bytes for sample in serving) - base
    yield row("peak", rank, nvml=_nvml(before, most, f"{len(serving)} samples until the stop"))
    known = [one.log for one in taken if one.log is not None]
    if len(known) == len(taken):
        back = _given_back(ledger)
        if back is not None:
            yield row("given_back", rank, log=back)
        with_init = any(one.name == "communication" for one in taken)
        rest = _unexplained(before, ready, known, back, with_communication=with_init)
        yield row("context_and_unexplained", rank, nvml=rest)


def _nvml(sample: GpuSample, value: int, words: str, tolerance: int = 0) -> Told:
    """What NVML shows of the sample's card, in bytes."""
    place = f"GPU {sample.gpu}"
    return Told(value=value, tolerance=tolerance, source=f"NVML, {place}, {words}", place=place)


def _used_by_summary(log: ServerLog, rank: str, before: GpuSample) -> Told | None:
    """In use above the baseline, by what a rank's summary says is free."""
    for summary in log.resolved:
        if summary.rank == rank and summary.available is not None:
            free, line = summary.available, line_words(summary.line)
            return Told(
                value=before.total_bytes - free.bytes - before.used_bytes,
                tolerance=free.resolution_bytes,
                source=f"{line}: {format_gib(free.bytes)} free, of the total by NVML, less the baseline",
                place=line,
            )
    return None


def _used_by_server_info(told: ServerInfo | None, before: GpuSample) -> Told | None:
    """In use above the baseline, by what /server_info says was free after the start."""
    if told is None or told.free_after_start is None:
        return None
    return Told(
        value=before.total_bytes - told.free_after_start.bytes - before.used_bytes,
        tolerance=told.free_after_start.resolution_bytes,
        source=f"{SERVER_INFO} memory_usage.startup_available, of the total by NVML, less the baseline",
    )


def _unexplained(
    before: GpuSample, ready: int, known: Sequence[Told], back: Told | None, *, with_communication: bool
) -> Told:
    """In use when ready (bytes above the baseline), less what the log names: `known`, without what was given `back`."""
    named = sum(one.value for one in known) - (0 if back is None else back.value)
    rounding = sum(one.tolerance for one in known) + (0 if back is None else back.tolerance)
    less = "" if back is None else ", without what was given back"
    terms, beside = (len(known) - 1, "communication and ") if with_communication else (len(known), "")
    words = f"when ready, less {beside}the {terms} terms of the log ({format_gib(named)}{less})"
    if ready + rounding < named:
        words += "; below 0: what a term counts was given back later, or is shared"
    return _nvml(before, ready - named, words, rounding)


def _given_back(ledger: Ledger | None) -> Told | None:
    """What is free again after the last pool, as the rank's ledger has it. SGLang's multi-token heads load an embedding
    and a head of their own, which the log counts as theirs, and free them for the target's (set_embed_and_head)."""
    entry = None if ledger is None else next((one for one in ledger.entries if one.term == "given_back"), None)
    if entry is None or entry.size is None:
        return None
    return Told(
        value=-entry.size.bytes,
        tolerance=entry.size.resolution_bytes,
        source=entry.source,
        place=line_words(entry.line),
    )


def _serving(card: Sequence[GpuSample]) -> list[GpuSample]:
    """The samples from ready to the stop; none when the server was never ready."""
    first = next((place for place, sample in enumerate(card) if sample.phase == "ready"), None)
    if first is None:
        return []
    last = next((place for place in range(first, len(card)) if card[place].phase in _STOPPED), len(card))
    return list(card[first:last])
