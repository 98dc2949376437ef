"""The result of a prediction: terms in bytes per rank, limits in counts of the server, each with its interval and its
formula. The server is one data-parallel worker, where there are several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .gpus import Communication, RestsOn
from .terms import Basis, Limit, Term, Verdict
from .units import GIB, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTerm:
    """One term of memory, bytes per rank."""

    term: Term
    bytes: Interval | None  # None: not predicted (then `formula` says why)
    formula: str  # in words: "slots + 1 padding, times linear layers, times …"
    numbers: str  # the same with figures: "48 × (24 + 1) × 61,440 B = 73,728,000 B"
    rule: str  # the rule's version and source, e.g. "sglang 0.5.8-0.5.12, memory_pool.py"
    estimated: bool = False  # from what recorded starts took, not from the engine's own arithmetic: never a match


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLimit:
    """One limit, a count."""

    limit: Limit
    value: Interval | None  # None: not predicted
    formula: str
    numbers: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedArgument:
    """One argument as the engine resolves it: given, or its own default."""

    name: str  # the server's flag, underscored
    value: float | int | tuple[int, ...] | None  # None: the engine sets none
    source: str  # "given", "default of sglang 0.5.16", …

    @property
    def words(self) -> str:
        """'cuda_graph_bs 1, 2, 4 (captured; default of …)'."""
        if self.value is None:
            text = "none"
        elif isinstance(self.value, tuple):
            text = _ranges(self.value)
        else:
            text = f"{self.value:g}" if isinstance(self.value, float) else f"{self.value}"
        return f"{self.name} {text} ({self.source})"


def _ranges(sizes: tuple[int, ...]) -> str:
    """'1 to 8, 10, 12': three or more neighbours in one."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftForPools:
    """What state, scratch and KV share, bytes per rank: the figure that decides everything else."""

    bytes: Interval
    formula: str
    numbers: str
    rule: str


#: What a start's free memory is called that its log alone tells.
LOGGED_FREE = "logged free memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeMemory:
    """What the solver is fed with, bytes per rank."""

    pre: Interval  # free before the weights load
    post: Interval  # free when the pools are sized
    source: str  # "gpu table: …", "given: --pre-gib, --post-gib", "log: line 24 and 30, offsets of …"
    watched: bool = False  # NVML showed it in that very start; False: a table or a printed figure
    communication: Communication | None = None  # taken before `pre` is read; of the GPU table. None: not measured
    rests_on: RestsOn | None = None  # where `pre` is of the GPU table: measured or not; None: given, or logged
    communication_elsewhere: str = ""  # where it was not measured on this card: what is known of others, in words

    @property
    def words(self) -> str:
        """Of a prediction on the measured basis: what it rests on."""
        return "free memory that NVML measured in this start" if self.watched else LOGGED_FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """A larger card that stands for a smaller one: two fractions, of which only one is on the command line."""

    card: str  # the emulated one, in words: RTX PRO 6000
    host: str  # the card that is there: H200
    ranks: int
    asked: float  # the fraction as on the emulated card
    asked_source: str  # given, or the engine's default for the emulated card
    passed: float  # the fraction that the server gets: the same budget in bytes, of the larger card
    card_free_bytes: int  # free before loading on a rank, as the engine takes it; the GPU table's
    host_free_bytes: int
    host_source: str  # the GPU table, or measured
    not_emulated: tuple[str, ...]  # what differs all the same, a sentence each

    @property
    def banner(self) -> str:
        return f"emulated budget of {self.card} on {self.host}"

    @property
    def room_bytes(self) -> int:
        """What the larger card has beyond the smaller one: none of it is in the budget."""
        return self.host_free_bytes - self.card_free_bytes

    @property
    def arithmetic(self) -> str:
        """'0.75 × 94.3063 GiB = 70.7297 GiB = 0.50814020 × 139.1933 GiB'."""
        budget = self.asked * self.card_free_bytes / GIB
        return (
            f"{self.asked:g} × {self.card_free_bytes / GIB:.4f} GiB = {budget:.4f} GiB = "
            f"{self.passed:.8f} × {self.host_free_bytes / GIB:.4f} GiB"
        )


def config_words(rests: RestsOn | None) -> str:
    """What a prediction rests on that no start has told anything of: with the free memory of such cards, or without
    where it is not of the GPU table."""
    return "the configuration alone" + ("" if rests is None else f"; free memory {rests.words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """What should happen. Exact figures have an interval of width zero."""

    name: str
    engine: str
    version: str
    rule: str  # e.g. "sglang 0.5.12"
    basis: Basis
    free: FreeMemory
    requested_running_requests: int | None  # as asked; None: not given
    terms: Mapping[Term, PredictedTerm]
    limits: Mapping[Limit, PredictedLimit]
    verdict: Verdict
    verdicts: tuple[Verdict, ...]  # every verdict that the free-memory interval allows
    reason: str  # one sentence: what limits, with figures
    engine_error: str | None  # the text this engine version would raise, when refused
    fault: str | None = None  # a known fault of this engine version that ends such a server, in a sentence
    warnings: tuple[str, ...] = ()
    admission: str | None = None  # that it waits for several free places before it admits; a warning too
    out_of_memory: str | None = None  # that it likely runs out outside the budget, with arithmetic; a warning too
    rule_words: str = ""  # what the era means: "the rules of SGLang 0.5.12: …"
    emulation: Emulation | None = None  # None: the card is itself
    shared_card: bool = False  # each rank is shown a share of a card that other processes use too
    left: LeftForPools | None = None  # None: the engine refuses the arguments, before any memory is looked at
    resolved: tuple[ResolvedArgument, ...] = ()  # what the engine makes of arguments that may be left out
    split: str | None = None  # whose the slots and tokens are, and what a rank holds of each; None: one rank
    details: Mapping[str, Interval] = field(
        default_factory=dict
    )  # slot_bytes, cell_bytes, scratch_per_request_bytes, rest_bytes, padding_bytes, …

    @property
    def basis_words(self) -> str:
        """'the configuration alone; free memory inferred, not measured on 4 × RTX PRO 6000'."""
        if self.basis == "measured":
            return "measured free memory"
        return config_words(self.free.rests_on)

    def not_multiplied(self, slots: int | None, tokens: int | None) -> str | None:
        """'47 slots and 748,747 tokens are those of the server, not to be multiplied: …'. None: one rank, no figure."""
        figures = [f"{count:,} {what}" for count, what in ((slots, "slots"), (tokens, "tokens")) if count is not None]
        return None if self.split is None or not figures else f"{' and '.join(figures)} are those of {self.split}."

    @property
    def predicted_not_multiplied(self) -> str | None:
        """The same of the predicted figures."""
        found = [self.limits[name].value for name in ("state_slots", "kv_tokens") if name in self.limits]
        return self.not_multiplied(*(None if value is None else value.point for value in found))
