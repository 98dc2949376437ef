"""Who held the GPUs' memory before the server and after it. In: a record. Out: `Shown`, empty where none was read."""

from __future__ import annotations

from ..host.gpu_use import GpuMemory, InUse, above, holders_words, verdict
from ..rank_names import numbers_in_words
from ..records.record import RunRecord
from ..units import MIB
from .shown import Cell, Shown, Value, banner, joined, paragraph, table

_NOTHING = Shown("", "")


def gpu_use(record: RunRecord) -> Shown:
    """A row per GPU that the server could use, of those alike one, and whether its memory is back."""
    memory = record.gpu_memory
    if memory is None or record.replayed:
        return _NOTHING
    said = paragraph(f"GPU memory after the end: {verdict(memory)}.")
    if not memory.before:
        return said
    more = above(memory.before, memory.after)
    after = {use.gpu: use for use in memory.after}
    alike: dict[tuple[Cell, ...], list[int]] = {}  # eight idle cards tell no more than one
    for use in memory.before:
        cells = (
            _mib(use.used_bytes),
            _names(use),
            _mib(after[use.gpu].used_bytes) if use.gpu in after else Cell(text="not read", tone="muted"),
            _names(after[use.gpu]) if use.gpu in after else Cell(text=""),
            _above(more.get(use.gpu), memory),
        )
        alike.setdefault(cells, []).append(use.gpu)
    rows: list[list[Value]] = [[Cell(text=numbers_in_words(gpus), number=True), *row] for row, gpus in alike.items()]
    headers = ["GPU", "used before MiB", "by whom", "used after MiB", "by whom", "above before MiB"]
    when = "before the server's process was started, and when its processes had ended"
    caption = f"GPU memory by NVML ({record.origin}): {when}"
    return joined([table(headers, rows, caption=caption), said])


def still_held(record: RunRecord | None) -> Shown:
    """A banner when the memory was not back; else nothing."""
    memory = None if record is None else record.gpu_memory
    if memory is None or memory.is_back is not False:
        return _NOTHING
    return banner(f"GPU memory was not back after this server had ended: {verdict(memory)}.")


def _mib(size_bytes: int) -> Cell:
    return Cell(text=f"{size_bytes / MIB:z,.0f}", number=True)


def _names(use: InUse) -> Cell:
    return Cell(text=holders_words(use).removeprefix("held by "), wide=True, tone="plain" if use.holders else "muted")


def _above(size_bytes: int | None, memory: GpuMemory) -> Cell:
    if size_bytes is None:
        return Cell(text="not read", tone="muted")
    return Cell(
        text=f"{size_bytes / MIB:z,.0f}", number=True, tone="bad" if size_bytes > memory.tolerance_bytes else "plain"
    )
