"""GPUs as values. In: a name. Out: `GpuSpec`, a row of `data/gpus.yaml`.

The row `cpu` is whatever host a server runs on, whose total nobody knows beforehand.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .configuration import yamltext
from .errors import ConfigError
from .gpu_table import check_table
from .paths import DATA
from .units import GIB, MIB, Interval
from .versions import version_key

#: What is gone before the weights load, GiB below the total that nvidia-smi shows: low, likely, high. Used for cards
#: that were not measured; every public figure that was found lies within (tests/free_memory.yaml, with its source). On
#: one GPU: from 0.67 (a 16 GB card) over 0.84 to 1.33 (80 GB) and 1.27 (H200, measured) to 1.49 (B200). A display, or
#: whatever else holds memory, comes on top.
_GONE_ONE_GPU = (0.6, 1.2, 1.9)
#: Of several: 1.07 (two cards of 24 GB), 2.2 and 2.4 (two and four H200, measured), 3.1 (eight), 3.7 (four B200): links
#: of larger cards have larger buffers, so likely and high are those of one GPU and so many GiB per GiB of total.
_GONE_SEVERAL_GPUS_LOW = 0.9
_GONE_SEVERAL_GPUS_PER_GIB = (0.007, 0.012)
_BLACKWELL = 10.0  # compute capability
LEAST_PART = 3  # letters and digits of a part that tells which model or card is meant
#: How far a card's total may be from the table's and still be that card.
_SAME_TOTAL = 0.03


#: What a free memory rests on, the first word of its source (any other is inferred). measured: in starts on that card
#: with that number of GPUs; logged: there, by others; inferred: from other cards, numbers or versions; derived: from
#: the card's total alone; assumed: of a host.
FreeBasis = Literal["measured", "logged", "inferred", "derived", "assumed"]
_BASES: Mapping[FreeBasis, str] = {
    "measured": "measured on {}",
    "logged": "logged by others on {}, not measured",
    "inferred": "inferred, not measured on {}",
    "derived": "derived from the card's total, not measured on {}",
    "assumed": "assumed, not measured on {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOn:
    """What a free memory of the table rests on, in a word and in a clause."""

    basis: FreeBasis
    words: str  # 'inferred, not measured on 4 × RTX PRO 6000'


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What the distributed init takes of a card, per rank, once the CUDA context stands: buffers, most of them for the
    communication between ranks. It is taken before the free memory is read, so that memory is without it."""

    bytes: Interval  # over all ranks; the point is of the rank with least free memory
    source: str
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBeforeLoad:
    """Free memory before the weights load, on the rank with least, as the engine logs it."""

    bytes: Interval
    source: str
    measured: bool
    versions: frozenset[str] = frozenset()  # of the engine; none: all of them
    communication: Communication | None = None  # None: not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """A row of the GPU table (data/gpus.yaml)."""

    name: str
    title: str
    card_bytes: int | None  # as nvidia-smi shows; None: no card, the memory of whatever host it is
    listed: Mapping[int, tuple[FreeBeforeLoad, ...]]  # tensor-parallel size -> what is known, the newest version first
    share_of: str | None = None  # the card of which it is a share that a process is shown as the whole; None: a card
    idle_free_bytes: int | None = None  # as NVML shows it with no process on the card; None: not recorded
    compute_capability: float | None = None  # major.minor; None: not known

    @property
    def is_host(self) -> bool:
        """The server runs on the CPU, in the host's memory."""
        return self.card_bytes is None

    @property
    def is_blackwell(self) -> bool:
        """Whether the card computes in FP4, and takes what SGLang chooses for capabilities of 10 and more."""
        return self.compute_capability is not None and self.compute_capability >= _BLACKWELL

    @property
    def total_bytes(self) -> int:
        """Of a card. ConfigError for a host: its total is unknown, and differs from one to the next."""
        if self.card_bytes is None:
            raise ConfigError(f"gpu.name: {self.name} is no card, so it has no total.\nName a card of the GPU table.")
        return self.card_bytes

    @property
    def total_mib(self) -> int:
        return self.total_bytes // MIB

    def is_total(self, total_bytes: int) -> bool:
        """Whether a card of that total can be this one: drivers show a little more or less."""
        return not self.is_host and abs(total_bytes / self.total_bytes - 1) <= _SAME_TOTAL

    @property
    def words(self) -> str:
        """The name in a sentence: rtx-pro-6000 is RTX PRO 6000."""
        return self.name.replace("-", " ").upper()

    def free_before_load(self, ranks: int, version: str) -> FreeBeforeLoad:
        """For `ranks` GPUs of one server; derived from the total when the table has no row for that number.

        Each rank of a server on the CPU is told what the host has free, divided by its NUMA nodes and not by the ranks
        (SGLang 0.5.23, utils/common.py: get_available_gpu_memory): one row for any number.

        Versions differ by what they set up before they load (communication buffers). One without a row of its own
        gets the point of the newest, and an interval over all.
        """
        rows = self.listed.get(1 if self.is_host else ranks)
        if rows is None:
            return self._derived(ranks)
        own = next(
            (row for row in rows if not row.versions or version_key(version) in map(version_key, row.versions)), None
        )
        if own is not None:
            return own
        return FreeBeforeLoad(
            bytes=_over_all([row.bytes for row in rows]),
            source=f"{rows[0].source}; not measured with {version}",
            measured=False,
            communication=_communication_over_all([row.communication for row in rows], version),
        )

    def rests_on(self, ranks: int, version: str) -> RestsOn:
        """What `free_before_load` of the same arguments rests on."""
        known = self.free_before_load(ranks, version)
        first = known.source.partition(":")[0]
        found: FreeBasis = next((basis for basis in _BASES if basis == first), "inferred")
        on = "this host" if self.is_host else f"{ranks} × {self.words}"
        if found == "measured" and not known.measured:
            return RestsOn(
                basis="inferred", words=f"inferred, measured on {on} with other versions, not with {version}"
            )
        return RestsOn(basis=found, words=_BASES[found].format(on))

    def taken_before_load(self, ranks: int, version: str) -> tuple[int, int] | None:
        """What the engine's processes take of an idle card before they load, as NVML counts: bytes of the rank with
        least free memory, and the number of GPUs that it was measured with, `ranks` or the next smaller one. None: not
        measured on this card."""
        measured = [
            number for number, rows in self.listed.items() if number <= ranks and any(row.measured for row in rows)
        ]
        if self.idle_free_bytes is None or not measured:
            return None
        number = max(measured)
        return self.idle_free_bytes - self.free_before_load(number, version).bytes.point, number

    def measured_communication(self, ranks: int, version: str) -> tuple[int, FreeBeforeLoad, Communication] | None:
        """What communication takes with `ranks` GPUs or the next smaller number that was measured: that number, the row
        of this version or else the newest, and the figure. None: not measured on this card."""
        for number in sorted((number for number in self.listed if number <= ranks), reverse=True):
            rows = [row for row in self.listed[number] if row.communication is not None and row.communication.measured]
            own = [row for row in rows if version_key(version) in map(version_key, row.versions)]
            for row in (*own, *rows):
                if row.communication is not None:
                    return number, row, row.communication
        return None

    def _derived(self, ranks: int) -> FreeBeforeLoad:
        total = self.total_bytes
        low, likely, high = _gone(total / GIB, ranks)
        return FreeBeforeLoad(
            bytes=Interval(total - round(high * GIB), total - round(likely * GIB), total - round(low * GIB)),
            source=f"derived: total of {total / GIB:.2f} GiB less {low:.1f} to {high:.1f} GiB; "
            "not measured on this card",
            measured=False,
        )


def _gone(total_gib: float, ranks: int) -> tuple[float, float, float]:
    """GiB: low, likely, high."""
    low, likely, high = _GONE_ONE_GPU
    if ranks == 1:
        return low, likely, high
    more_likely, more = (each * total_gib for each in _GONE_SEVERAL_GPUS_PER_GIB)
    return _GONE_SEVERAL_GPUS_LOW, likely + more_likely, high + more


def _over_all(intervals: Sequence[Interval]) -> Interval:
    """The point of the first, and an interval over all."""
    return Interval(min(one.low for one in intervals), intervals[0].point, max(one.high for one in intervals))


def _communication_over_all(rows: Sequence[Communication | None], version: str) -> Communication | None:
    """None as soon as one row does not tell: an interval over the others would promise too much."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return Communication(
        bytes=_over_all([row.bytes for row in known]),
        source=f"{known[0].source}; not measured with {version}",
        measured=False,
    )


def known_gpus() -> tuple[str, ...]:
    """The cards that one can have; `cpu` is none, and neither is a share of a card."""
    return tuple(name for name, gpu in _gpus().items() if not gpu.is_host and gpu.share_of is None)


def parts_of_a_card(gpu: GpuSpec) -> int:
    """How many such shares a card has; 1: it is a card itself."""
    return 1 if gpu.share_of is None else round(load_gpu(gpu.share_of).total_bytes / gpu.total_bytes)


def gpu_by_usual_name(name: str) -> str:
    """The row that is meant by a card's name ('RTX PRO 6000', 'NVIDIA H200', '5090'); else `name` as it came.

    It must be a row's name by letters and digits alone, or a part of the title of one row only.
    """
    table = _gpus()
    part = plain(name)
    for row in table:
        if part.removeprefix("nvidia").removeprefix("geforce") == plain(row):
            return row
    titled = [row for row in known_gpus() if len(part) >= LEAST_PART and part in plain(table[row].title)]
    return titled[0] if len(titled) == 1 else name


def load_gpu(name: str, key: str = "gpu.name") -> GpuSpec:
    """A row of data/gpus.yaml. ConfigError naming `key`, with the nearest name, when there is none."""
    table = _gpus()
    if name in table:
        return table[name]
    offered = [row for row, gpu in table.items() if gpu.share_of is None]
    near = [row for row in offered if plain(name) and plain(name) in plain(row)]
    near = near or difflib.get_close_matches(name.lower(), offered, n=1, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ConfigError(
        f"{key}: {name!r:.90} is not in the GPU table.{hint}\n"
        f"Known: {', '.join(offered)}. Another: a row in specbench/data/gpus.yaml, "
        "NAME: {title: …, total_mib: as nvidia-smi shows it, compute_capability: 9.0 for Hopper}."
    )


@functools.cache
def _gpus() -> dict[str, GpuSpec]:
    rows = yamltext.read_mapping(DATA / "gpus.yaml", expected="a row per card", shipped=True)
    check_table(rows)
    return {name: _gpu(name, row) for name, row in rows.items()}


def _gpu(name: str, row: Mapping[str, Any]) -> GpuSpec:
    total, idle = row["total_mib"], row.get("idle_free_mib")
    return GpuSpec(
        name=name,
        title=row["title"],
        share_of=row.get("share_of"),
        card_bytes=None if total is None else total * MIB,
        listed={
            ranks: tuple(map(_free, known if isinstance(known, list) else [known]))
            for ranks, known in row.get("free_gib", {}).items()
        },
        idle_free_bytes=None if idle is None else idle * MIB,
        compute_capability=row.get("compute_capability"),
    )


def _free(known: Mapping[str, Any]) -> FreeBeforeLoad:
    communication = known.get("communication_gib")
    return FreeBeforeLoad(
        bytes=_interval(known),
        source=known["source"],
        measured=known["source"].startswith("measured"),
        versions=frozenset(known.get("versions", ())),
        communication=None if communication is None else _communication(communication),
    )


def _communication(known: Mapping[str, Any]) -> Communication:
    source = known["source"]
    return Communication(bytes=_interval(known), source=source, measured=source.startswith("measured"))


def _interval(known: Mapping[str, Any]) -> Interval:
    return Interval(*(round(known[key] * GIB) for key in ("low", "point", "high")))


def plain(name: str) -> str:
    """A name by its letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
