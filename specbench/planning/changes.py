"""Single changes of a configuration that can move its limits: the one definition, for plans and for remedies.

In: a configuration (and what the engine resolves of it). Out: per kind of change its values, the smallest step first.
Whether a change reaches anything is not said here: that is computed by `predict`'s own arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import speculative
from ..configuration.config import RunConfig
from ..configuration.explain import listed, near_miss, shown
from ..engines.sglang.flags import kv_dtypes
from ..engines.sglang.given import spelled
from ..engines.sglang.resolve import DEFAULT_RATIO, Settings
from ..engines.sglang.verify_mask import AVOIDED_BY
from ..errors import ConfigError
from ..units import counted
from ..versions import at_least

Kind = Literal[
    "requests",
    "context",
    "slots",
    "ratio",
    "fraction",
    "state_dtype",
    "kv_dtype",
    "draft_tokens",
    "strategy",
    "radix",
    "graphs",
]

#: Cheapest first, and what a change of the kind costs in general. More cards are dearer than all of them.
COSTS: Mapping[Kind, str] = {
    "requests": "nothing: it is what is wished",
    "context": "nothing: it is what is wished",
    "slots": "KV tokens pay for the slots; states of the prefix cache have no room beyond them",
    "ratio": "KV tokens pay for state slots, or slots for tokens",
    "fraction": "what stays of the card outside the pools",
    "state_dtype": "accuracy: the recurrent state is rounded at every step",
    "kv_dtype": "accuracy: keys and values are rounded",
    "draft_tokens": "speed: fewer tokens can be accepted in a step",
    "strategy": "speed or prefix reuse: how the prefix cache keeps states",
    "radix": "the prefix cache: every prompt is computed whole",
    "graphs": "speed: no CUDA graphs",
}
#: The same in a word or two.
PRICES: Mapping[Kind, str] = {
    "requests": "nothing",
    "context": "nothing",
    "slots": "KV tokens",
    "ratio": "KV tokens or slots",
    "fraction": "slack",
    "state_dtype": "accuracy of the state",
    "kv_dtype": "accuracy of KV",
    "draft_tokens": "speed of drafts",
    "strategy": "speed or prefixes",
    "radix": "prefix cache",
    "graphs": "speed",
}
#: Kinds that only say what is wished.
ASKED: frozenset[Kind] = frozenset({"requests", "context"})
#: Kinds by which the output of the model may change.
CHANGES_RESULTS: frozenset[Kind] = frozenset({"state_dtype", "kv_dtype"})

#: What `--keep` may name.
KEPT: tuple[Kind, ...] = tuple(kind for kind in COSTS if kind not in ASKED)


def check_kinds(keep: Iterable[object]) -> None:
    """ConfigError for what is no kind of change that can be left out."""
    for kind in keep:
        if kind not in KEPT:
            near = near_miss(str(kind), KEPT)
            raise ConfigError(f"--keep {shown(kind)}: no such kind{near}.\nKinds: {listed(KEPT)}.")


RATIOS = (0.1, 0.25, 0.5, 0.9, 1.5, 2.5, 4.0, 8.0)
FRACTIONS = tuple(hundredth / 100 for hundredth in range(5, 98))
TP_SIZES = (1, 2, 4, 8)
_FEWEST_DRAFT_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Change:
    """One change: dotted keys as `--set` takes them, and what it gives up, in words."""

    kind: Kind
    set: Mapping[str, Any] = field(hash=False)
    note: str
    value: float | int | str  # what it is set to, for words

    @property
    def changes_results(self) -> bool:
        return self.kind in CHANGES_RESULTS


def slots(per_request: int, requests: int, *, workers: int = 1) -> Change:
    """As many state slots as so many requests need. `workers`: of data-parallel attention, which share the figure."""
    count = per_request * requests * workers
    return Change(
        "slots",
        {"memory.max_mamba_cache_size": count},
        f"{counted(per_request, 'slot')} for {_each_of(requests)}; the KV pool pays",
        count,
    )


def _each_of(requests: int) -> str:
    return "the one request" if requests == 1 else f"each of {requests:,} requests"


def ratio_of(config: RunConfig) -> float:
    """The share of state that a configuration has, the engine's default where it gives none."""
    given = config.memory.mamba_full_memory_ratio
    return DEFAULT_RATIO if given is None else given


def ratios(config: RunConfig) -> Iterator[Change]:
    """Other shares of state and KV, the nearest first; none where the slots are given."""
    memory = config.memory
    if memory.max_mamba_cache_size is not None:
        return
    now = ratio_of(config)
    for value in sorted((value for value in RATIOS if value != now), key=lambda value: abs(math.log(value / now))):
        note = "more state, fewer KV tokens" if value > now else "more KV tokens, less state"
        yield Change("ratio", {"memory.mamba_full_memory_ratio": value}, note, value)


def fractions(now: float) -> Iterator[Change]:
    """Other static fractions, the nearest first, larger before smaller."""
    others = (value for value in FRACTIONS if abs(value - now) > 1e-9)
    for value in sorted(others, key=lambda value: (round(abs(value - now), 9), value < now)):
        note = "the pools get more, the rest of the card less" if value > now else "leaves more room outside the pools"
        yield Change("fraction", {"memory.mem_fraction_static": value}, note, value)


def half_state() -> Change:
    """A state of two bytes an element."""
    note = "halves the recurrent state; its rounding changes results"
    return Change("state_dtype", {"memory.mamba_ssm_dtype": "bfloat16"}, note, "bfloat16")


def state_dtypes(resolved: Settings) -> Iterator[Change]:
    """A state of half the size, where it has four bytes."""
    if resolved.ssm_dtype == "float32" and resolved.target.state_layers:
        yield half_state()


def cache_dtypes(resolved: Settings) -> Iterator[Change]:
    """A KV cache of one byte an element, where it has two."""
    if resolved.kv_itemsize == 2 and "fp8_e4m3" in kv_dtypes(resolved.version):
        yield Change(
            "kv_dtype",
            {"memory.kv_cache_dtype": "fp8_e4m3"},
            "halves a KV token; the rounding of keys and values changes results",
            "fp8_e4m3",
        )


def draft_widths(config: RunConfig, width: int | None, least: int = _FEWEST_DRAFT_TOKENS) -> Iterator[Change]:
    """Three quarters, half and a quarter of the draft tokens, and the least that is wished; of a chain only."""
    section = config.speculative
    if width is None or speculative.canonical(section.algorithm) == "none" or section.eagle_topk not in (None, 1):
        return
    least = max(least, _FEWEST_DRAFT_TOKENS)
    ladder = {width * 3 // 4, width // 2, width // 4} | ({least} if least > _FEWEST_DRAFT_TOKENS else set())
    for fewer in sorted((value for value in ladder if least <= value < width), reverse=True):
        change = width_change(config, width, fewer)
        note = f"{fewer} instead of {width} draft tokens: less scratch, shorter acceptance at most"
        yield Change("draft_tokens", change, note, fewer)


def width_change(config: RunConfig, width: int, wanted: int) -> dict[str, Any]:
    """Dotted keys by which `wanted` tokens are verified per step instead of `width`. A tree keeps its steps."""
    section = config.speculative
    change: dict[str, Any] = {"speculative.num_draft_tokens": wanted}
    if section.num_steps is not None and section.num_steps == width - 1:
        change["speculative.num_steps"] = wanted - 1  # the EAGLE family drafts a chain: width = steps + 1
    elif all_three_or_none(section.algorithm) and section.num_steps is None:
        change |= {"speculative.num_steps": wanted - 1, "speculative.eagle_topk": 1}
    return change


def all_three_or_none(algorithm: str) -> bool:
    """Whether the engine takes steps, top-k and draft tokens together only."""
    name = speculative.canonical(algorithm)
    return name in speculative.ALGORITHMS and speculative.ALGORITHMS[name].family == "eagle"


def strategies(resolved: Settings) -> Iterator[Change]:
    """Other ways in which the prefix cache keeps states, of fewer slots per request."""
    config, rule = resolved.config, resolved.rule
    if resolved.strategy is None or not resolved.target.state_layers:
        return
    key, overlap = "memory.mamba_radix_cache_strategy", "memory.disable_overlap_schedule"
    if resolved.strategy != "extra_buffer_lazy" and "extra_buffer_lazy" in rule.strategies and resolved.overlap:
        note = "keeps the state in a buffer made when it is needed: one slot fewer per request"
        yield Change("strategy", {key: "extra_buffer_lazy"}, note, "extra_buffer_lazy")
    if resolved.strategy == "extra_buffer" and resolved.overlap:
        note = "scheduling no longer overlaps computing: one slot fewer per request, every step slower"
        yield Change("strategy", {key: "extra_buffer", overlap: True}, note, "extra_buffer without overlap")
    if resolved.strategy != "no_buffer":
        change: dict[str, Any] = {key: "no_buffer"}
        if at_least(resolved.version, "0.5.14") or resolved.overlap:
            change[overlap] = True
        note = "3 slots per request; scheduling no longer overlaps computing, and fewer prefixes are kept"
        yield Change("strategy", change, note, "no_buffer")
    elif config.memory.mamba_radix_cache_strategy == "auto":
        yield Change("strategy", {key: "extra_buffer"}, "states are kept while requests decode", "extra_buffer")


def no_radix(config: RunConfig) -> Iterator[Change]:
    """The prefix cache off."""
    if config.memory.disable_radix_cache:
        return
    change: dict[str, Any] = {"memory.disable_radix_cache": True}
    note = "one slot per request; no prefix is reused"
    if config.memory.mamba_radix_cache_strategy != "auto":
        # Up to 0.5.13 extra_buffer is refused without a radix cache.
        change["memory.mamba_radix_cache_strategy"] = "auto"
        note += " (without the strategy's flag)"
    yield Change("radix", change, note, "off")


def without_graphs(config: RunConfig) -> Change:
    """What avoids the attention mask of CUDA graphs that is too small."""
    note = "the attention mask of this version's CUDA graphs is too small for a full batch"
    return Change("graphs", {spelled(config, AVOIDED_BY): True}, note, "off")
