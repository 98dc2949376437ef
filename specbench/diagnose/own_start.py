"""A start of a model that specbench does not know, by its own log: what its pools took, and from what memory.

Sizes are printed to 0.01 GiB, so every unit is an interval. Which of an engine's ways the unknown model takes is what
fits the log: all of them are kept (`Way`). Every version's solver sees memory in units of a state slot alone, so the
logged count of slots bounds the memory that it started from, in slots, better than the printed free memory does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .. import speculative
from ..configuration.config import RunConfig
from ..engines.sglang.resolve import DEFAULT_RATIO, Strategy, overlaps, slots_per_request
from ..engines.sglang.sizing.contract import Demand, Rule
from ..engines.sglang.sizing.steps import resolve_requests
from ..units import Interval

#: Tokens.
LARGEST_PAGE = 256
#: What the strategy `auto` means for a model; None: it keeps no prefixes.
Auto = Literal["no_buffer", "extra_buffer"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of the engine by which the log's figures come about."""

    auto: Auto
    least: float  # memory for state and KV before anything is taken, in state slots
    most: float
    used: float  # of it by slots and scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStart:
    """What a start took, per rank. Bytes are intervals of the log's rounding."""

    config: RunConfig  # the arguments; its model is a name only
    version: str
    rule: Rule
    ways: tuple[Way, ...]
    pre: Interval  # free before loading
    fraction: float
    slot: Interval
    row: Interval | None  # scratch of a running request; None: not logged
    kv: Interval  # a token of the target
    draft_kv: Interval  # a token of the draft; 0: it has none
    charged: Interval | None  # a token as the solver counts it; None: by the logged tokens
    draft_tokens: int
    slots: int
    tokens: int
    requests: int  # that ran at once; 0: refused
    context_len: int
    left: Interval  # free when all pools stood, draft included
    graphs_bytes: int  # as logged; 0: not logged

    @property
    def page(self) -> int:
        """The largest page that the logged tokens are whole pages of."""
        return math.gcd(self.tokens, LARGEST_PAGE)

    def per_request(self, config: RunConfig, way: Way) -> int:
        """Slots of a running request."""
        memory, algorithm = config.memory, speculative.of(config.speculative)
        strategy: Strategy | None = None
        if not memory.disable_radix_cache and way.auto is not None:
            asked = memory.mamba_radix_cache_strategy
            strategy = way.auto if asked == "auto" else asked
        overlap = overlaps(config, self.rule, algorithm)
        return slots_per_request(self.rule, strategy, overlap, bool(self.draft_tokens), config.engine.env)

    def resolved_requests(self, way: Way) -> int:
        """Requests at once that the engine resolves from the logged pools."""
        wanted = self.demand(self.config, way, self.slot.point, self.kv.point)
        return resolve_requests(self.rule, wanted, self.slots, self.tokens)

    def demand(self, config: RunConfig, way: Way, slot_bytes: int, cell_bytes: int) -> Demand:
        """What the version's solver takes, for a slot and a token of so many bytes."""
        memory = config.memory
        requests = memory.max_running_requests
        if requests is None:
            requests = speculative.of(config.speculative).default_requests
        width = (config.speculative.num_draft_tokens or self.draft_tokens) if self.draft_tokens else 0
        return Demand(
            slot_bytes=slot_bytes,
            cell_bytes=cell_bytes,
            draft_tokens=width,
            slots_per_request=self.per_request(config, way),
            requests=requests,
            attention_dp=1,
            explicit_slots=memory.max_mamba_cache_size,
            radix=not memory.disable_radix_cache and way.auto is not None,
            ratio=DEFAULT_RATIO if memory.mamba_full_memory_ratio is None else memory.mamba_full_memory_ratio,
            max_total_tokens=memory.max_total_tokens,
            page_size=memory.page_size or 1,
            context_len=memory.context_length or self.context_len,
        )
