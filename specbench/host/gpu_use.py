"""Who holds the memory of the GPUs, before a server starts and after it has ended. Pure values and their words.

In: readings (`nvml.use_reader` takes them). Out: what a record keeps (`GpuMemory`) and sentences for notes and screens.
The non-obvious thing: NVML's list of processes is not always whole (a container sees pids of its host, or none), so
what nobody is named for is said to be unattributed. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..rank_names import numbers_in_words
from ..units import MIB, format_gib

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process with memory on a GPU."""

    pid: int  # as NVML says it
    name: str | None = None  # None: there is no such process here (it has ended, or belongs to another container)
    used_bytes: int | None = None  # None: NVML does not tell
    ours: bool | None = None  # belongs to the server's tree; None: not asked yet, or cannot be told


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """One GPU at one moment."""

    gpu: int  # NVML index
    used_bytes: int  # all of it, the driver's own share too
    free_bytes: int
    total_bytes: int
    uuid: str | None = None
    holders: tuple[Holder, ...] | None = None  # None: NVML does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Before and after one server, on the GPUs that it could use."""

    before: tuple[InUse, ...]  # a moment before its process was started
    after: tuple[InUse, ...]  # when its processes had gone, and after the wait for the driver
    is_back: bool | None  # within `tolerance_bytes` of before, what others took aside; None: not checked
    tolerance_bytes: int
    waited_s: float | None = None  # for the memory, after the last process had gone
    reason: str | None = None  # why nothing was checked


#: All GPUs that count, now.
Probe = Callable[[], Sequence[InUse]]
_Reading = TypeVar("_Reading")
_Words = TypeVar("_Words", bound=Hashable)

#: How the note begins that says who held memory before a start.
IN_USE_BEFORE = "GPU memory in use before the start: "
_NEXT_GPU = re.compile(r"; (?=GPU \d{1,5}: )")
_ONE_GPU = re.compile(r"GPU (\d{1,5}): (.*)", re.DOTALL)


def read(probe: Callable[[], Sequence[_Reading]] | str, what: str = "the GPUs' memory") -> tuple[_Reading, ...] | str:
    """What `probe` reads; the reason in words where there is no probe, or where it fails: a lost GPU ends nothing."""
    if isinstance(probe, str):
        return probe
    try:
        return tuple(probe())
    except Exception as error:  # NVML's own errors, which are known where it is imported
        return f"{what} could not be read: {error}"


def above(before: Sequence[InUse], after: Sequence[InUse]) -> dict[int, int]:
    """GPU -> bytes more than before, less what processes that are not ours took in the meantime (as far as told)."""
    then = {use.gpu: use for use in before}
    return {
        use.gpu: use.used_bytes - then[use.gpu].used_bytes - _taken_by_others(then[use.gpu], use)
        for use in after
        if use.gpu in then
    }


def _taken_by_others(before: InUse, after: InUse) -> int:
    had = {holder.pid: holder.used_bytes or 0 for holder in before.holders or ()}
    now = [holder for holder in after.holders or () if holder.ours is False and holder.used_bytes is not None]
    return sum(max(0, (holder.used_bytes or 0) - had.get(holder.pid, 0)) for holder in now)


def marked(uses: Sequence[InUse], ours: Callable[[int], bool | None]) -> tuple[InUse, ...]:
    """The same readings, each holder with whether it is of our tree."""
    return tuple(
        use
        if use.holders is None
        else replace(use, holders=tuple(replace(one, ours=ours(one.pid)) for one in use.holders))
        for use in uses
    )


def only(uses: Sequence[InUse], gpus: Collection[int] | None) -> tuple[InUse, ...]:
    """The readings of `gpus`; None: of all."""
    return tuple(use for use in uses if gpus is None or use.gpu in gpus)


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(memory: GpuMemory) -> str:
    """One line for the record: back, not back and by whom, or why not checked."""
    if memory.is_back is None:
        return f"not checked: {memory.reason}"
    late = taken_meanwhile(memory)
    if memory.is_back:
        return f"back at baseline; {late}" if late else "back at baseline"
    more = {gpu: size for gpu, size in above(memory.before, memory.after).items() if size > memory.tolerance_bytes}
    sizes = [(gpu, f"{size / MIB:,.0f} MiB above baseline") for gpu, size in more.items()]
    figures = ", ".join(f"{size} on {gpus_in_words(gpus)}" for size, gpus in _alike(sizes))
    wait = "" if memory.waited_s is None else f" after {memory.waited_s:.0f} s"
    return f"still {figures}{wait} ({by_gpu((use.gpu, holders_words(use)) for use in memory.after if use.gpu in more)})"


def taken_meanwhile(memory: GpuMemory) -> str:
    """What others took while the server ran; empty: nothing that matters."""
    found = []
    for use in memory.after:
        before = next((one for one in memory.before if one.gpu == use.gpu), None)
        taken = 0 if before is None else _taken_by_others(before, use)
        if taken > memory.tolerance_bytes:
            found.append((use.gpu, (f"{taken / MIB:,.0f} MiB", holders_words(use))))
    return "; ".join(
        f"{size} on {gpus_in_words(gpus)} were taken by others meanwhile: {holders}"
        for (size, holders), gpus in _alike(found)
    )


def holders_words(use: InUse) -> str:
    """'held by pid 71 (python3) 3,000 MiB', or that nobody is named."""
    if use.holders is None:
        return f"{use.used_bytes / MIB:,.0f} MiB in use, NVML does not tell by whom"
    if not use.holders:
        return f"{use.used_bytes / MIB:,.0f} MiB in use, NVML names no process"
    largest = sorted(use.holders, key=lambda holder: -(holder.used_bytes or 0))
    shown = ", ".join(_holder_words(holder) for holder in largest[:_MOST_NAMED])
    rest = len(largest) - _MOST_NAMED
    return f"held by {shown}" + (f" and {rest} more" if rest > 0 else "")


def _holder_words(holder: Holder) -> str:
    name = holder.name or "no such process here"
    whose = {True: ", of this server", False: ", not of this server", None: ""}[holder.ours]
    size = "size not told" if holder.used_bytes is None else f"{holder.used_bytes / MIB:,.0f} MiB"
    return f"pid {holder.pid} ({name}{whose}) {size}"


def in_use_words(uses: Sequence[InUse]) -> str | None:
    """What is in use by named processes before a start, GPUs with the same figures and holders together; None: nobody
    is named."""
    return (
        by_gpu(
            (use.gpu, f"{format_gib(use.free_bytes)} free of {format_gib(use.total_bytes)}, {holders_words(use)}")
            for use in uses
            if use.holders
        )
        or None
    )


def by_gpu(said: Iterable[tuple[int, str]]) -> str:
    """'GPU 0 to 6: each 138.80 GiB free …; GPU 7: 139.52 GiB free …': what is said of several GPUs alike once."""
    return "; ".join(f"{_gpus(gpus)}: {'each ' if len(gpus) > 1 else ''}{words}" for words, gpus in _alike(list(said)))


def gpus_in_words(gpus: Sequence[int]) -> str:
    """'GPU 5', 'each of GPU 0 to 7'."""
    return f"each of {_gpus(gpus)}" if len(gpus) > 1 else _gpus(gpus)


def regrouped(note: str) -> str:
    """A note of `in_use_words` as records before this grouping keep it ('GPU 0: A; GPU 1: A'), said as now."""
    start, found, listed = note.partition(IN_USE_BEFORE)
    if start or not found:
        return note
    parts = [_ONE_GPU.fullmatch(part) for part in _NEXT_GPU.split(listed)]
    if not all(parts):
        return note  # grouped already, or that nothing could be read
    return IN_USE_BEFORE + by_gpu((int(part[1]), part[2]) for part in parts if part)


def _gpus(gpus: Sequence[int]) -> str:
    return f"GPU {numbers_in_words(gpus)}"


def _alike(said: Sequence[tuple[int, _Words]]) -> list[tuple[_Words, list[int]]]:
    """What is said, each once, and the GPUs that it is said of, in the order of the first of each."""
    gpus: dict[_Words, list[int]] = {}
    for gpu, words in said:
        gpus.setdefault(words, []).append(gpu)
    return list(gpus.items())
