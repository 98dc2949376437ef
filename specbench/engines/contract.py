"""What an engine's log says, as values. No engine's wording appears here.

Every figure keeps the line it came from (`line`, 1-based). Sizes are `Quantity` (bytes ± rounding), per rank.
Unknown is None.
`rank` is "" for a line without a rank prefix, else the prefix as printed ("TP0", "DP1 TP3").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..terms import Role
from ..units import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of evidence, cleaned of colours and control characters."""

    line: int | None  # 1-based, physical line in the file; None: evidence of another kind (a request)
    text: str
    file: str | None = None  # which file, when the log was read from several
    about: str = ""  # what it is, where its text does not say so: "the last line of TP1"; not of the log

    @property
    def where(self) -> str:
        """'line 12', 'line 12 of rank1.log'; 'request' for what is no line."""
        if self.line is None:
            return "request"
        return f"line {self.line}" if self.file is None else f"line {self.line} of {self.file}"

    @property
    def labelled(self) -> str:
        """'(the last line of TP1) …': the text, after what it is."""
        return f"({self.about}) {self.text}" if self.about else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded:
    """One load of weights on one rank."""

    rank: str
    role: Role
    model_class: str | None  # e.g. Qwen3_5ForConditionalGeneration
    before: Quantity | None  # free before loading ("Load weight begin")
    available: Quantity | None  # free after loading
    used: Quantity | None
    elapsed_s: float | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePool:
    """Slots of recurrent state (and the speculative scratch, when there is one)."""

    rank: str
    role: Role
    slots: int | None  # None: a pasted part of the line, without them
    conv: Quantity | None
    ssm: Quantity | None
    scratch_ssm: Quantity | None  # None: the line has no scratch part (no speculation)
    scratch_conv: Quantity | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """A pool of KV, as one line tells it; a model may have several."""

    rank: str
    role: Role
    label: str | None  # "Full", "SWA" for sliding-window pools
    tokens: int
    k: Quantity | None  # None for MLA, which logs one size
    v: Quantity | None
    kv: Quantity | None  # k + v, or the one size of MLA
    dtype: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEnd:
    """Free memory after a pool was allocated."""

    rank: str
    role: Role
    available: Quantity
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCapture:
    """One capture of CUDA graphs on one rank."""

    rank: str
    role: Role
    kind: str  # decode, verify, prefill, extend, …
    batch_sizes: tuple[int, ...] | None
    used: Quantity | None  # None: begun, end never logged
    available: Quantity | None
    elapsed_s: float | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The engine's summary: what it resolved, per rank. Fields the line lacks are None."""

    rank: str
    kv_tokens: int | None
    running_requests: int | None
    context_len: int | None
    chunked_prefill_size: int | None
    max_prefill_tokens: int | None
    available: Quantity | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An info or warning about sizing, recognised: `kind` is our name for it, `values` its figures."""

    kind: str  # e.g. requests_reduced, requests_capped_by_state, requests_default_48, tokens_above_profile
    values: Mapping[str, Any]
    rank: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A recognised error: the innermost exception line of a traceback, or an error the engine logged while running."""

    kind: str  # state_pool_too_small, weights_leave_no_room, cuda_oom, bad_arguments, … (engines/<name>/failures)
    phase: str  # arguments, load, pools, graphs, serving, unknown
    exception: str | None  # class name
    text: str  # the message, whole
    rank: str
    line: int
    values: Mapping[str, Any] = field(default_factory=dict)  # figures of the message
    ends: bool = False  # a process of the engine said that it ends by it, or nobody caught it; False: perhaps
    traceback: tuple[str, ...] = ()  # whole, as printed, with the causes before it; empty: none, or too many of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What stands in a paste beside the server's own lines."""

    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the launch command, by the server's names
    env: Mapping[str, str] = field(default_factory=dict)  # the engine's variables before it
    line: int | None = None  # where the command begins; None: there is none
    cards: tuple[str, ...] = ()  # names of GPUs, as nvidia-smi shows them


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLog:
    """A log, read once. Tables are dicts of equally long lists (no pandas here), one row per line.

    A log of several files (one server's ranks, or its nodes) is one timeline: its `line` numbers count the lines that
    were kept, in the order of their times, and `places` tells the file and the physical line of each.
    """

    source: str
    engine: str  # "sglang"
    version: str | None  # exact, when the text tells it
    version_range: tuple[str | None, str | None]  # earliest and latest version whose lines fit; None: open
    server_args: Mapping[str, Any] | None  # as printed by the engine, literals only
    server_args_line: int | None
    memory_before: Mapping[str, Quantity]  # rank -> free memory before the target's weights
    weights: tuple[WeightsLoaded, ...]
    state_pools: tuple[StatePool, ...]
    kv_pools: tuple[KvPool, ...]
    pool_ends: tuple[PoolEnd, ...]
    graphs: tuple[GraphCapture, ...]
    resolved: tuple[Resolved, ...]
    notices: tuple[Notice, ...]
    failures: tuple[Failure, ...]
    ready_line: int | None  # None: never ready
    #: Columns: line, time, rank, running_requests, tokens, token_usage, state_slots_used, state_usage, accept_length,
    #: accept_rate, throughput, queued_requests, graph, retracted_requests (those that wait at a disaggregated decode
    #: server)
    decode: Mapping[str, list[Any]]
    #: Columns: line, time, rank, new_requests, new_tokens, cached_tokens, token_usage, state_usage, running_requests,
    #: queued_requests, throughput
    prefill: Mapping[str, list[Any]]
    unread: tuple[Line, ...]  # looks like a line we read, fits no known form
    evidence: Mapping[int, str]  # line number -> cleaned text, of every line referred to above
    lines_total: int
    #: Lines of each kind, exact: decode, prefill, starts, unread, … What is kept of a very long log is less.
    seen: Mapping[str, int] = field(default_factory=dict)
    #: (file, physical line) by line number. Empty: one file, whose physical lines the numbers are. No file: of the one
    #: file that was read, in which others wrote too.
    places: Mapping[int, tuple[str | None, int]] = field(default_factory=dict)
    beginning: bytes = field(default=b"", repr=False)  # at most 64 KiB, as they came: what it is when nothing is known
    assumptions: tuple[str, ...] = ()  # how several files were put together, which start counts, in sentences
    two_servers: str = ""  # files whose figures do not belong together, and by what; "": nothing shows it
    beside: Beside = field(default_factory=Beside)
    version_from: tuple[str, ...] = ()  # what the version is known from, beside a text that names it, in sentences
    previous: ServerLog | None = None  # the start before this one in the same log, when that had got as far as loading

    def at(self, number: int, text: str) -> Line:
        """A line of this log, by its number, as evidence."""
        file, line = self.places.get(number, (None, number))
        return Line(line=line, text=text, file=file)

    def where(self, number: int | None) -> str:
        """'line 12', 'line 12 of rank1.log'."""
        return self.at(number, "").where if number is not None else "unknown line"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPools:
    """One pool row of the report: one rank and role. Bytes ± resolution; None is "not logged"."""

    rank: str
    role: Role
    weights: Quantity | None
    state_slots: int | None
    state_conv: Quantity | None
    state_ssm: Quantity | None
    scratch_ssm: Quantity | None
    scratch_conv: Quantity | None
    kv_tokens: int | None
    k: Quantity | None
    v: Quantity | None
    kv: Quantity | None
    dtype: str | None
    label: str | None
    graphs: Quantity | None  # sum over captures
    available: Quantity | None  # after this role's last pool
    lines: Mapping[str, int]  # field -> line of evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """What the engine got, per rank and role, beside what it was asked."""

    ranks: tuple[RankPools, ...]
    requested: Mapping[
        str, Any
    ]  # running_requests, state_slots, kv_tokens, context_len, mem_fraction_static; None: not given
    running_requests: int | None  # resolved; the minimum over ranks
    state_slots: int | None
    kv_tokens: int | None
    context_len: int | None
    max_input_tokens: int | None
    pre: Mapping[str, Quantity]  # rank -> free before weights
    post: Mapping[str, Quantity]  # rank -> free when the pools are sized
    disagreements: tuple[str, ...]  # ranks that differ where they should not, in words
    communication: Mapping[str, Quantity] = field(default_factory=dict)  # rank -> taken by the distributed init

    @property
    def deciding_rank(self) -> str | None:
        """The rank with the least free memory before loading: the solver takes its figure for all."""
        return self.rank_with_least(self.pre)

    def rank_with_least(self, free: Mapping[str, Quantity]) -> str | None:
        """None as soon as one rank that has pools logged no figure: it may be the one."""
        if any(pools.rank not in free for pools in self.ranks):
            return None
        return min(free, key=lambda rank: (free[rank].bytes, rank), default=None)

    def least(self, free: Mapping[str, Quantity]) -> Quantity | None:
        """The figure of that rank."""
        rank = self.rank_with_least(free)
        return None if rank is None else free[rank]
