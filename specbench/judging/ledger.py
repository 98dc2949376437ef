"""The ledger as a value: where one rank's memory went, pool by pool, adding up to the card.

Whatever was logged, the sizes of the entries add up to the total exactly: the unexplained rest is what the figures of
free memory leave between the named pools. What is not logged is not 0: its entry has no size and names the entry in
which it lies. Figures are the log's, with their rounding; the one of the rest is the sum over all that it follows from.

The total is the card's where something tells it: NVML's samples, the text of torch when memory ran out (CUDA's total,
which is without what the driver keeps), or the GPU table. Else it is the free memory before loading, and the first
entries are not known. A log that begins later accounts for less, and says so. A host's memory has no total either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..terms import TERMS, Role
from ..units import Quantity, format_gib
from .chain import Pool

#: Beside the pools: `before` is what is gone before loading but communication, `given_back` came back after the pools
#: (negative), `until_failure` was taken after the last figure of a start until memory ran out, `left` is free at last.
Name = Pool | Literal["before", "communication", "given_back", "until_failure", "left"]

TotalOf = Literal["card", "free_before_loading", "accounted"]

LABELS: dict[Name, str] = {
    **dict(TERMS.items()),
    "before": "driver, CUDA context, other processes",
    "communication": "taken by the distributed init (buffers of the communication between ranks)",
    "kv_window": "KV cache of the target's sliding-window layers",
    "int8_checkpoints": "int8 checkpoints of the recurrent state",
    "replay_rings": "ring buffers for the replay of recurrent state",
    "given_back": "counted above and given back after the pools stood (a draft's own embedding and head)",
    "until_failure": "taken after the last figure, until memory ran out",
    "unexplained": "unexplained rest",
    "left": "free at the last figure of the log",
}

#: In the order in which a ledger stacks them.
POOLS: tuple[Pool, ...] = (
    *("weights", "draft_weights", "state_conv", "state_ssm", "scratch_ssm", "scratch_conv"),
    *("kv", "kv_window", "draft_kv", "int8_checkpoints", "replay_rings", "graphs"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    term: Name
    role: Role
    label: str
    size: Quantity | None  # bytes per rank; negative: came back, or figures that contradict; None: not logged
    line: int | None  # of the log, the last one that tells it; None: not from the log
    source: str  # "log line 24", "the total less what is free before loading", "not logged"
    lies_in: Name | None = None  # of an unknown size: the entry that holds it; None: known, or held by none


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From one figure of free memory to the next."""

    first_line: int
    last_line: int
    before: Quantity
    after: Quantity
    named: tuple[Pool, ...]  # pools that were taken in it
    rest: Quantity  # taken beyond them; negative: came back
    fails: bool = False  # it ends where memory ran out


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Of one rank. The sizes of `entries` add up to `total`."""

    rank: str
    total: Quantity
    total_of: TotalOf
    total_source: str
    entries: tuple[Entry, ...]  # in stacking order, the rest and what is left last
    stretches: tuple[Stretch, ...]
    #: Free when the last pool stood (graphs that stood by then added back); None: not all pools stood, or not logged.
    slack: Quantity | None
    on_host: bool = False  # the memory is a host's
    beside: tuple[Entry, ...] = ()  # pools in the host's memory

    def of(self, term: Name) -> Quantity | None:
        """The size of an entry, over both roles; None: not logged, or the server has none."""
        sizes = [entry.size for entry in self.entries if entry.term == term]
        return None if not sizes or None in sizes else Quantity.total(size for size in sizes if size is not None)

    @property
    def slack_words(self) -> str | None:
        """The term that is predicted, beside what is left: None where it is not logged."""
        left = self.of("left")
        if self.slack is None or left is None:
            return None
        before, after = format_gib(self.slack.bytes), format_gib(left.bytes)
        rest = "CUDA graphs and what else is not a pool"
        if before == after:
            then = "at last as much is free"
        elif left.bytes > self.slack.bytes:  # something gave memory back meanwhile
            then = f"at last {after} are free, more than that: what was given back is more than {rest} took"
        else:
            then = f"{rest} leave {after} of it"
        return f"slack, free when the last pool stood: {before}; {then}"

    @property
    def rest(self) -> Entry:
        return next(entry for entry in self.entries if entry.term == "unexplained")

    @property
    def not_logged(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.size is None and entry.term != "unexplained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card's total that somebody else than the log tells."""

    bytes: int
    source: str  # "NVML", "GPU table, H200 (assumed)"
