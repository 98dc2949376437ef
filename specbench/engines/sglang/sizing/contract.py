"""Inputs and results of a sizing rule, and the rule itself: what differs between versions, as values.

Everything is per rank. `gib` figures are the floats SGLang computes with: the solvers repeat its operations in its
order, so that the results agree to the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: Why a start is refused: each kind has its text in `errors.py`.
Refusal = Literal[
    "no_state",
    "no_room",
    "not_enough_memory",
    "state_too_small",
    "zero_requests",
    "pool_too_short",
    "window_too_small",
    "window_cap_too_large",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Layers that look back over a window, whose tokens have a pool of their own (SGLang: hybrid SWA)."""

    bytes: int  # one token of that pool, all its layers
    tokens: int  # that a layer looks back
    ratio: float  # --swa-full-tokens-ratio: tokens of that pool to those of the other
    cap: int | None  # tokens of that pool, where the requests bound them; None: by the ratio
    whole_cell_first: bool  # 0.5.9 and 0.5.10: tokens as if every layer kept all of them, then parted
    checked: bool  # whether a pool that is too small for one window is refused (0.5.16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a configuration asks of the memory, resolved."""

    slot_bytes: int  # p: one state slot, all linear layers charged; 0 for a model without state
    cell_bytes: int  # c: one KV token as the solver charges it, draft included; of layers without a window
    draft_tokens: int  # D: tokens verified per step; 0 without speculation
    slots_per_request: int  # q
    requests: int | None  # as asked, or 48 with speculation; the whole server's
    attention_dp: int  # ranks of data-parallel attention, which share the requests
    explicit_slots: int | None  # --max-mamba-cache-size; the whole server's
    radix: bool
    ratio: float  # state pool : KV pool
    max_total_tokens: int | None
    page_size: int
    context_len: int
    slots_divided: bool = True  # ranks of data-parallel attention share the slots, too
    tokens_beyond: int = 0  # of each request, that the pool gets beyond those that fit (0.5.6); 0: none
    #: rings of inputs that replace the recurrent states of a verification (`rings.py`)
    keeps_states: bool = True  # the scratch has a recurrent state per token; False: rings replace them
    ring_slot_bytes: int = 0  # with every slot
    ring_row_bytes: int = 0  # with every asked request, and one more
    windows: Windows | None = None  # None: every layer with KV keeps all tokens

    @property
    def scratch_tokens(self) -> int:
        """Tokens for which a request's scratch is charged."""
        return self.draft_tokens if self.keeps_states else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """What the solver gives. After a refusal the figures that exist are kept: SGLang may even have printed them."""

    slots: int  # K; can be negative in a refusal
    scratch_charged_bytes: int
    tokens: int | None  # None: refused before they were computed
    requests: int | None
    left_gib: float  # after state and scratch, as the error texts print it
    refusal: Refusal | None
    allocated: bool  # whether the pools were allocated (a refusal can come before or after)
    window_tokens: int = 0  # of the pool of layers with a window
    fitting: int = 0  # tokens before --max-total-tokens and whole pages


_ERAS = {
    "0": "every state slot carries its own speculative scratch",
    "I": "the speculative scratch of every request asked is taken first, then state and KV share by the ratio",
    "II": "state and KV share by the ratio, and the speculative scratch comes out of the state's share",
    "III": "state and KV share by the ratio; speculative scratch and padding rows come out of the state's share",
}

#: Slots and scratch of a rest in GiB; tokens and requests come after (`steps.solve`).
State = Callable[["Rule", Demand, float], Pools]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One version's way. Later files replace the fields that changed."""

    version: str  # first version that this rule was read from
    era: str
    state: State
    #: target only, or target and draft, before the pools are sized
    draft_loads_first: bool
    trees_by_default: bool  # EAGLE drafts a tree where no widths are given, but for some architectures (`widths.py`)
    #: the pool has room for what requests draft and verify, beyond the tokens that fit
    pool_beyond_fitting: bool
    #: whether data-parallel attention divides the slots of every model, or of gated delta nets alone
    divides_all_slots: bool
    #: the requests that nobody limits follow from the tokens that fit, not from those of the pool
    requests_of_fitting: bool
    #: rows beyond slots and requests that the solver charges (they are allocated in every version)
    charges_padding: bool
    #: the scratch has a row per state slot (0.5.6) or per resolved request
    scratch_per_slot: bool
    dedup_conv: bool
    dedup_any_layout: bool  # windows are shared whatever their layout, KDA's too (which garbles them)
    request_limit: Literal["none", "estimate", "half_tokens"]  # what caps a given number of requests
    refuses_no_room: bool  # "Loaded weights leave no GPU memory", before the tokens are computed
    guards_zero_division: bool  # max(1, requests // dp)
    asserts_input_len: bool  # a worker wants room for an input, not for a token alone
    radix_off_default_slots: int | None  # slots without radix cache and without a request limit; None: from the ratio
    eagle_draft_kv: Literal["outside", "with_path"]
    counts_nested_head: bool  # a head with a path, of a model with a vision tower: as one layer, not as all of them
    eagle_scale: Literal["multiply", "add"]  # int(c × (1 + d / n)) or c + int(c × d / n): they round differently
    dflash_draft_kv: Literal["absent", "layer_ratio", "geometry"]
    # latent KV with an indexer (DSA)
    latent_scales_charged: bool  # the solver counts the scales of fp8, which are allocated in every version
    index_shared: bool  # layers that reuse a selection keep no index keys, and a draft's index is charged apart
    index_pooled: bool  # index keys of several tokens in one
    raw_on_blackwell: bool  # bare fp8 by default there (backend trtllm)
    rings: Literal["none", "per_slot", "delta_nets_per_request"]  # --enable-linear-replayssm-spec
    #: pipeline stages of a model with state: each keeps KV and state of all layers, and charges it
    stages_hold_all: bool
    largest_stage_only: bool  # pipeline stages: charge the largest share of linear layers, not all
    skips_empty_stages: bool  # a pipeline stage without KV counts for as many tokens as one likes; else zero divides
    multimodal_reserve: bool
    state_dtype_default: Literal["float32", "config"]
    fp8_kv_of: tuple[str, ...]  # methods of quantized checkpoints whose wish for KV in fp8 is obeyed (dtype auto)
    # arguments
    strategies: tuple[str, ...]
    auto_strategy: Literal["no_buffer", "extra_buffer"]
    extra_buffer_always_four: bool  # 0.5.7 to 0.5.9 with speculation
    five_slots_without_buffers: bool  # of a request with a prefix cache; later three
    overlap_with: tuple[str, ...]  # families of algorithms that run with overlap scheduling
    # default memory fraction
    speculative_reserve_mib: int
    graph_batch_capped: bool  # by max_running_requests
    small_card_generous: bool  # 4096 and 48 / 160 below 35 GiB
    # side tables
    request_table_padding: int  # rows of req_to_token beyond the requests

    @property
    def label(self) -> str:
        """'sglang 0.5.16': the name of the rule wherever a figure names its source."""
        return f"sglang {self.version}"

    @property
    def words(self) -> str:
        """How state slots and speculative scratch come to their share (no page speaks of eras: it says this)."""
        return f"the rules of SGLang {self.version}: {_ERAS[self.era]}"
