"""One row of memory from four sides: what each side tells, with its source. In: cells. Out: `Side`, and `Sides` of all.

A side that tells nothing is None; where the log and /server_info differ the row says so in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..terms import Limit, Term
from ..units import Interval, format_gib

Total = Literal[
    "communication",
    "free_before_loading",
    "free_when_sized",
    "before_start",
    "at_ready",
    "peak",
    "given_back",
    "context_and_unexplained",
]

#: Bytes of a whole card (the first and the last two: of a rank), beside the terms.
TOTALS: dict[Total, str] = {
    "communication": "taken of its card by a rank's distributed init once its CUDA context stands (buffers, most of "
    "them for the communication between ranks), before the free memory of the next rows is read",
    "free_before_loading": "free on its card before a rank loads its weights; the server goes by the rank with least",
    "free_when_sized": "free on its card when a rank sizes its pools; the server goes by the rank with least",
    "before_start": "in use before the start: the driver's own, and others'; the baseline of the rows below",
    "at_ready": "in use when the server was ready, above the baseline",
    "peak": "most in use from then until the stop, above the baseline",
    "given_back": "counted in a term and freed after the pools were made: a draft's own embedding and head, which it "
    "then shares with the target",
    "context_and_unexplained": "in use when ready, above the baseline, neither communication nor in a term: CUDA "
    "context, workspaces, the rest",
}
SERVER_INFO = "/server_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one side tells."""

    value: int  # in the unit of the row
    tolerance: int  # rounding of the figure
    source: str  # "log line 24", "/server_info memory_usage.weight", "NVML, GPU 0, 12 samples"
    place: str = ""  # the part of `source` in which ranks differ: "log line 24", "GPU 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One row."""

    name: Term | Limit | Total
    rank: str  # "" on one GPU, and for what holds for all ranks
    unit: Literal["bytes", "count"]
    predicted: Interval | None
    log: Told | None
    server_info: Told | None
    nvml: Told | None
    disagreement: str | None  # between the log and /server_info
    predicted_from: str | None  # None: what the whole budget rests on


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """All rows of a start."""

    rows: tuple[Side, ...]
    deciding: str | None = None  # of several ranks the one with least free before loading; None: one rank, or as much
    not_sampled: str | None = None  # why NVML tells nothing of a rank

    @property
    def disagreements(self) -> tuple[str, ...]:
        return tuple(row.disagreement for row in self.rows if row.disagreement is not None)

    def of(self, name: Term | Limit | Total, rank: str = "") -> Side:
        """The row of a name; KeyError when there is none."""
        for row in self.rows:
            if (row.name, row.rank) == (name, rank):
                return row
        raise KeyError(name)


def row(
    name: Term | Limit | Total,
    rank: str,
    unit: Literal["bytes", "count"] = "bytes",
    *,
    predicted: Interval | None = None,
    log: Told | None = None,
    server_info: Told | None = None,
    nvml: Told | None = None,
    alike: bool = True,
    predicted_from: str | None = None,
) -> Side:
    """A side that is not given tells nothing. `alike`: whether the log and /server_info mean the same thing here."""
    differ = None
    if alike and log is not None and server_info is not None:
        apart = abs(log.value - server_info.value)
        if apart > log.tolerance + server_info.tolerance:
            said = [_amount(one.value, unit) for one in (log, server_info)]
            differ = (
                f"{name}{f' of {rank}' if rank else ''}: {said[0]} ({log.source}), {said[1]} ({server_info.source})"
            )
    return Side(
        name=name,
        rank=rank,
        unit=unit,
        predicted=predicted,
        log=log,
        server_info=server_info,
        nvml=nvml,
        disagreement=differ,
        predicted_from=predicted_from,
    )


def _amount(value: int, unit: str) -> str:
    return format_gib(value) if unit == "bytes" else f"{value:,}"


def by_line(value: int, tolerance: int, line: int | None) -> Told:
    """What the log tells in a line; None: in which one is not known."""
    words = line_words(line)
    return Told(value=value, tolerance=tolerance, source=words, place="" if line is None else words)


def line_words(number: int | None) -> str:
    """'log line 24'; None: in which line is not known."""
    return "log" if number is None else f"log line {number}"
