"""Rows of data/gpus.yaml from records of real starts: free memory before the weights load, and what communication took.

In: records. Out: proposed rows by card and number of GPUs as YAML, and for every record that gives none the reason. The
figures are those that the engine logs; what NVML saw of the same start is told beside them, in the source. The
non-obvious thing: ranks differ, and the solver takes the least, so a start counts with the rank that has least free.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ..engines.sglang.emulation import in_use
from ..engines.sglang.logs import read as read_log
from ..errors import RecordError
from ..gpus import load_gpu
from ..records.record import RunRecord
from ..units import GIB, Interval, counted, format_gib
from ..versions import version_key
from .communication import inits_by_nvml
from .freeread import MeasuredOffsets, read_free
from .pools import report
from .rank_gpus import Cards, cards
from .reasons import without_row

#: What is said of a figure that was printed with two decimals, GiB.
_ROUNDED = 0.01
_NVLS = "NCCL_NVLS_ENABLE"
_MULTICAST = f"NCCL's NVLink multicast was off ({_NVLS}=0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRows:
    rows: Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]  # card -> number of GPUs -> rows, the newest first
    without: tuple[tuple[str, str], ...]  # record, why it gives none


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    free: tuple[float, ...]  # GiB as logged, by rank
    taken: tuple[float, ...]  # GiB as logged, by rank; empty: a rank did not log it
    read: Interval | None  # bytes that the solver read, by NVML; None: not seen
    went: tuple[Interval, ...]  # bytes that the distributed init took, by NVML, of the ranks that it watched
    multicast: str | None  # the variable of NCCL, "" where it was not set; None: not recorded

    @property
    def least(self) -> int:
        """The rank with least free memory."""
        return self.free.index(min(self.free))


def gpu_rows(records: Iterable[RunRecord], damaged: Iterable[tuple[str, str]] = ()) -> GpuRows:
    """Proposed rows. `damaged`: what could not be opened, and why."""
    groups: dict[tuple[str, int, str], list[_Start]] = {}
    without = [without_row(name, why) for name, why in damaged]
    for record in records:
        try:
            found = _start(record)
        except RecordError as error:
            found = str(error)
        if isinstance(found, str):
            without.append(without_row(record.name, found))
            continue
        config = record.config
        key = (config.gpu.name, config.parallel.tp_size, config.engine.sizing or config.engine.version)
        groups.setdefault(key, []).append(found)
    rows: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for card, ranks, version in sorted(groups, key=lambda key: version_key(key[2]), reverse=True):
        rows.setdefault(card, {}).setdefault(ranks, []).append(_row(card, ranks, version, groups[card, ranks, version]))
    return GpuRows(
        rows={card: dict(sorted(by_ranks.items())) for card, by_ranks in sorted(rows.items())}, without=tuple(without)
    )


def as_yaml(found: GpuRows) -> str:
    """What goes into the rows of the cards; reasons as comments."""
    table = {card: {"free_gib": {n: list(rows) for n, rows in by.items()}} for card, by in found.rows.items()}
    text = yaml.safe_dump(table, sort_keys=False, allow_unicode=True, width=1000) if table else ""
    return text + "".join(f"# {name}: no row: {reason}\n" for name, reason in found.without)


def _start(record: RunRecord) -> _Start | str:
    config = record.config
    if config.engine.replay is not None:
        return "a replay"
    if load_gpu(config.gpu.name).is_host:
        return "it ran on the CPU, whose free memory is the host's, and no figure of a card"
    if config.parallel.pp_size > 1 or (config.parallel.dp_size > 1 and not config.parallel.enable_dp_attention):
        return "the table is by tensor-parallel ranks of one server, without pipeline stages"
    if any(note.startswith("ANOTHER CARD") for note in record.status.notes):
        return f"it ran on another card than {config.gpu.name}"
    log = read_log(record.log_path, name=record.log_path.name, version=config.engine.version)
    pools = report(log, record.server_info())
    ranks = [f"TP{rank}" for rank in range(config.parallel.tp_size)] if config.parallel.tp_size > 1 else [""]
    free = [pools.pre.get(rank) for rank in ranks]
    if any(figure is None for figure in free):
        return "the log does not print the free memory before loading of every rank"
    absurd = _absurd([figure.bytes for figure in free if figure is not None], config.gpu.name)
    if absurd is not None:
        return absurd
    sampled = cards(record, ranks)
    held = _held(record, sampled)
    if held:
        return f"others held {format_gib(held)} of its card before the start"
    taken = [pools.communication.get(rank) for rank in ranks]
    inits = inits_by_nvml(record, log, sampled)
    return _Start(
        free=tuple(round(figure.bytes / GIB, 2) for figure in free if figure is not None),
        taken=tuple(round(figure.bytes / GIB, 2) for figure in taken if figure is not None)
        if None not in taken
        else (),
        read=_read(read_free(record, log, pools)),
        went=tuple(init.taken for init in inits.values()),
        multicast=_variable(record),
    )


def _absurd(free: Sequence[int], card: str) -> str | None:
    """What a log may claim and no such card can have: the table would hand it to every prediction."""
    total = load_gpu(card).total_bytes
    wrong = next((size for size in free if not 0 < size <= total), None)
    if wrong is None:
        return None
    return f"its log has {format_gib(wrong)} free before loading, and {card} has {format_gib(total)}"


def _held(record: RunRecord, sampled: Cards) -> int:
    """Bytes of the fullest card that others held; 0: none, or nothing is known of the idle card (`_idle_words`)."""
    card = load_gpu(record.config.gpu.name)
    before = [sample.free_bytes for samples in sampled.samples.values() for sample in samples[:1]]
    return in_use(card, min(before)) if before else 0


def _read(measured: MeasuredOffsets | str) -> Interval | None:
    return None if isinstance(measured, str) else measured.pre


def _variable(record: RunRecord) -> str | None:
    told = record.config.engine.env.get(_NVLS)
    inherited = record.env.get("inherited_environment")
    if told is not None or not isinstance(inherited, Mapping):
        return told
    value = inherited.get(_NVLS, "")
    return value if isinstance(value, str) else None


def _row(card: str, ranks: int, version: str, starts: Sequence[_Start]) -> dict[str, Any]:
    least = [start.free[start.least] for start in starts]
    row: dict[str, Any] = (
        {"versions": [version]} | _interval(least, least) | {"source": _free_words(ranks, starts) + _idle_words(card)}
    )
    known = [start for start in starts if start.taken]
    if known:
        points = [start.taken[start.least] for start in known]
        every = [size for start in known for size in start.taken]
        row["communication_gib"] = _interval(points, every) | {"source": _taken_words(ranks, known)}
    return row


def _interval(points: Sequence[float], every: Sequence[float]) -> dict[str, float]:
    """The most frequent of `points`, and the range of all with what the log rounds."""
    return {
        "low": round(min(every) - _ROUNDED, 2),
        "point": statistics.mode(points),
        "high": round(max(every) + _ROUNDED, 2),
    }


def _free_words(ranks: int, starts: Sequence[_Start]) -> str:
    text = f"measured: {_logs(starts)} {_figures([start.free[start.least] for start in starts])}"
    largest = statistics.mode([max(start.free) for start in starts])
    if ranks > 1:
        even = all(len(set(start.free)) == 1 for start in starts)
        text += " on every rank" if even else f" on the smallest rank ({largest:.2f} on the largest)"
    seen = [start.read for start in starts if start.read is not None]
    if seen:
        text += f"; NVML shows {_range([size.point for size in seen])} when the solver read{_of(seen, starts)}"
    return text


def _idle_words(card: str) -> str:
    if load_gpu(card).idle_free_bytes is not None:
        return ""
    return "; what an idle card has free is not known (idle_free_mib): other programs may have held some of it"


def _taken_words(ranks: int, starts: Sequence[_Start]) -> str:
    usual = statistics.mode([start.taken for start in starts])
    text = f"measured: {_logs(starts)} "
    if len(set(usual)) == 1:
        text += _figures([start.taken[start.least] for start in starts]) + (" on every rank" if ranks > 1 else "")
    else:
        first, last = [f"{size:.2f}" for size in usual[:-1]], f"{usual[-1]:.2f}"
        text += f"{', '.join(first)} and {last} on ranks 0 to {ranks - 1}"
    seen = [start for start in starts if start.went]
    if seen:
        ends = [end for start in seen for init in start.went for end in (init.low, init.high)]
        text += f"; NVML saw {_range(ends)} go{_of(seen, starts)}"
    return text + (_multicast_words(starts) if ranks > 1 else "")


def _multicast_words(starts: Sequence[_Start]) -> str:
    told = Counter(start.multicast for start in starts)
    if told["0"] == len(starts):
        return f"; {_MULTICAST}"
    if told[None] == len(starts):
        return f"; the records do not say whether {_MULTICAST}"
    if told["0"]:
        return f"; in {told['0']} of {len(starts)} {_MULTICAST}"
    return f"; {_NVLS} was not 0, so that NCCL's NVLink multicast may be in it"


def _logs(starts: Sequence[_Start]) -> str:
    return f"{counted(len(starts), 'start')} {'logs' if len(starts) == 1 else 'log'}"


def _figures(sizes: Sequence[float]) -> str:
    """'139.13 (1 of them 139.11)'."""
    (usual, _), *others = Counter(sizes).most_common()
    rest = ", ".join(f"{count} of them {size:.2f}" for size, count in others)
    return f"{usual:.2f}" + (f" ({rest})" if rest else "")


def _range(sizes: Sequence[int]) -> str:
    low, high = (f"{end / GIB:.4f}" for end in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


def _of(some: Sequence[object], starts: Sequence[_Start]) -> str:
    return "" if len(some) == len(starts) else f" in {len(some)} of them"
