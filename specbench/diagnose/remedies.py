"""Changes that reach what was asked, each checked by `predict` before it is named.

In: a configuration, the budget that fell short, and what is wanted. Out: remedies, ordered as `ORDER` says. A change
that the prediction does not show to serve is never offered; neither is one that this engine version would refuse, or
that leaves no room for graphs and activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from ..budget.predict import predict
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.command import flags_for
from ..engines.sglang.verify_mask import AVOIDED_BY
from ..errors import SpecbenchError
from ..planning import changes as candidates
from ..planning.screen import estimated_outside
from ..planning.wishes import LEAST_SLACK_BYTES
from ..terms import Limit
from ..units import GIB, format_gib
from .finding import Remedy

_SHOWN: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "max_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What remedies start from."""

    config: RunConfig
    budget: MemoryBudget  # on the better basis that there is
    free: FreeMemory | None  # as logged, or as NVML measured it; None: only the configuration is known
    wanted_requests: int
    passed_fraction: float | None  # on the command line of a server that emulates a smaller card; else None
    graphs_bytes: int  # as logged; 0 when not logged (then LEAST_SLACK_BYTES stands for them)


@dataclass(frozen=True, slots=True)
class _Change:
    set: Mapping[str, Any]
    note: str
    wanted: int  # running requests that the change promises
    changes_results: bool = False


def remedies(situation: Situation, *, most: int = 6) -> tuple[Remedy, ...]:
    """At most `most`: changes of the server, more GPUs, pairs of changes to fill up, and at last asking for less."""
    less = _ask_less(situation)
    ask_less = () if less is None else (less,)
    found: list[Remedy] = []
    for group in (_server_changes(situation), _more_gpus(situation), _pairs(situation)):
        if len(found) + len(ask_less) < most:
            found.extend(_working(situation, group))
    return (*found[: most - len(ask_less)], *ask_less)


def longer_requests(situation: Situation, input_tokens: int, output_tokens: int) -> tuple[Remedy, ...]:
    """Changes by which a request of that length fits: a longer context, or a shorter request."""
    total, served = input_tokens + output_tokens, situation.wanted_requests
    found: list[Remedy] = []
    # SGLang wants room for one more token than input and output together (max_req_len = context - 1).
    context = _round_up(total + 1, 1024)
    change = _Change({"memory.context_length": context}, "a longer context, up to the model's own", served)
    remedy = _tried(situation, change, least="starts")
    longest = _point_of(remedy, "max_input_tokens")
    if remedy is not None and longest is not None and longest > input_tokens:
        found.append(remedy)
    limit = situation.config.memory.context_length
    if limit is not None and limit - output_tokens > 1:
        fits = [limit - output_tokens - 1]
        shorter = _Change({"workload.input_tokens": fits}, f"prompts of {fits[0]:,} tokens at most", served)
        remedy = _tried(situation, shorter, least="starts")
        found += [remedy] if remedy is not None else []
    return tuple(found)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _point_of(remedy: Remedy | None, limit: Limit) -> int | None:
    return None if remedy is None else remedy.predicted.get(limit)


def _working(situation: Situation, changes: Iterable[tuple[_Change, ...]]) -> Iterator[Remedy]:
    """Of each ladder of ever larger changes, the first that serves."""
    for ladder in changes:
        for change in ladder:
            remedy = _tried(situation, change)
            if remedy is not None:
                yield remedy
                break


def _tried(situation: Situation, change: _Change, *, least: Literal["serves", "starts"] = "serves") -> Remedy | None:
    """The change as a remedy when the prediction says that it serves (or, where that was not the trouble, starts)."""
    found = _changed(situation, change)
    if found is None:
        return None
    config, budget = found
    running = _point(budget, "running_requests")
    if (
        budget.verdict == "refused"
        or (least == "serves" and budget.verdict != "serves")
        or running is None
        or running < change.wanted
    ):
        return None
    tokens = _point(budget, "kv_tokens")
    if tokens is None or tokens < _needed_tokens(config, change.wanted):
        return None
    slack_bytes = _slack_bytes(budget)
    if slack_bytes is None or slack_bytes < _needed_slack_bytes(situation, budget):
        return None
    return Remedy(
        set=dict(change.set),
        flags=flags_for(dict(change.set), situation.config.engine.version),
        basis=budget.basis,
        predicted={limit: _point(budget, limit) for limit in _SHOWN},
        verdict=budget.verdict,
        note=(
            f"{change.note}; {format_gib(slack_bytes)} stay for graphs and activations (predicted)"
            + (f"; as on {budget.emulation.card}" if budget.emulation is not None else "")
            + (f"; --{AVOIDED_BY} as well, or it ends at its first full batch" if budget.fault is not None else "")
        ),
        changes_results=change.changes_results,
    )


def _needed_slack_bytes(situation: Situation, budget: MemoryBudget) -> int:
    """What has to stay outside the pools: as a plan needs it; where graphs were logged, those and a prefill chunk."""
    if situation.graphs_bytes:
        return max(LEAST_SLACK_BYTES, situation.graphs_bytes + GIB)
    taken = estimated_outside(budget)
    return max(LEAST_SLACK_BYTES, 0 if taken is None else taken.point)


def _changed(situation: Situation, change: _Change) -> tuple[RunConfig, MemoryBudget] | None:
    """The configuration with the change, and its prediction; None: refused, or not sized."""
    try:
        config = situation.config.replace(change.set)
    except ValidationError:  # a figure beyond what a params file may hold
        return None
    try:
        if check(config):
            return None
        # Other weights per rank mean other free memory than the log's: then only the configuration is left to go by.
        moved = any(key.startswith(("parallel.", "speculative.algorithm", "gpu.")) for key in change.set)
        if moved or situation.free is None:
            return config, predict(config)
        return config, predict(config, free=situation.free, passed_fraction=_passed(situation, config))
    except SpecbenchError:
        return None


def shortage(situation: Situation) -> str:
    """Why so many requests at once do not fit, as a sentence."""
    wanted = situation.wanted_requests
    found = _changed(situation, _Change({"memory.max_running_requests": wanted}, "", wanted))
    if found is not None and found[1].verdict != "serves":
        return found[1].reason
    return f"{wanted:,} would leave too little for graphs and activations, or for their prompts."


def _passed(situation: Situation, changed: RunConfig) -> float | None:
    """What the server of a changed configuration would be passed; its own fraction is that of the emulated card."""
    before, after = situation.config.memory.mem_fraction_static, changed.memory.mem_fraction_static
    if situation.passed_fraction is None or before is None or after is None:
        return situation.passed_fraction if before == after else None
    return situation.passed_fraction * after / before


def _needed_tokens(config: RunConfig, requests: int) -> int:
    """KV tokens without which a remedy is none: every request of the workload at once, and one whole context.

    A pool of a thousand tokens "serves" eight requests to the letter and nobody in practice.
    """
    workload = config.workload
    at_once = 0
    if not workload.load_only:
        at_once = requests * (max(workload.input_tokens) + workload.output_tokens)
    return max(at_once, config.memory.context_length or 0)


def _point(budget: MemoryBudget, limit: Limit) -> int | None:
    predicted = budget.limits.get(limit)
    return predicted.value.point if predicted and predicted.value else None


# ── what can be changed ──────────────────────────────────────────────────────────────────────────────────────────────


def _server_changes(situation: Situation) -> Iterator[tuple[_Change, ...]]:
    memory, wanted = situation.config.memory, situation.wanted_requests
    asked = memory.max_running_requests
    # Nothing asked means that the engine's own default (48 with speculation) applies: then the wish is stated too.
    extra: dict[str, Any] = {} if asked == wanted else {"memory.max_running_requests": wanted}
    per_request = _point(situation.budget, "slots_per_request")
    if per_request and not memory.disable_radix_cache:
        yield (_of(candidates.slots(per_request, wanted), extra, wanted),)
    ratio = candidates.ratio_of(situation.config)
    yield tuple(
        _of(change, extra, wanted) for change in candidates.ratios(situation.config) if float(change.value) > ratio
    )
    fraction = memory.mem_fraction_static
    if fraction is not None:
        short = _short_of_slack(situation)
        yield tuple(
            _of(change, extra, wanted)
            for change in candidates.fractions(fraction)
            if (float(change.value) < fraction) == short
        )
    yield tuple(_of(change, extra, wanted) for change in candidates.no_radix(situation.config))
    yield _fewer_drafts(situation, extra)
    if memory.mamba_ssm_dtype in (None, "float32"):
        yield (_of(candidates.half_state(), extra, wanted),)


def _short_of_slack(situation: Situation) -> bool:
    """Whether the pools leave too little, so that a larger fraction would make it worse."""
    slack_bytes = _slack_bytes(situation.budget)
    return slack_bytes is not None and slack_bytes < LEAST_SLACK_BYTES


def _slack_bytes(budget: MemoryBudget) -> int | None:
    """Left outside the pools. Measured memory is that of the real card; a remedy has to do on one that it emulates."""
    slack = budget.terms["slack"].bytes
    if slack is None or budget.emulation is None or budget.basis == "config":
        return None if slack is None else slack.point
    return slack.point - budget.emulation.room_bytes


def _of(change: candidates.Change, extra: Mapping[str, Any], wanted: int) -> _Change:
    """A candidate change as one that is tried: with the wish, where that is not stated yet."""
    return _Change({**change.set, **extra}, change.note, wanted, change.changes_results)


def _fewer_drafts(situation: Situation, extra: Mapping[str, Any]) -> tuple[_Change, ...]:
    now = situation.budget.details.get("draft_tokens")
    width = now.point if now is not None else situation.config.speculative.num_draft_tokens
    found = candidates.draft_widths(situation.config, width)
    return tuple(_of(change, extra, situation.wanted_requests) for change in found)


def _ask_less(situation: Situation) -> Remedy | None:
    """The largest number below the asked one that serves."""
    return at_most(situation, 1, situation.wanted_requests - 1)


def at_most(situation: Situation, low: int, high: int) -> Remedy | None:
    """The largest number of requests from `low` to `high` that serves, by bisection: a log may ask for any number."""
    best: Remedy | None = None
    while low <= high:
        number = (low + high) // 2
        note = f"asks for {number:,} instead of {situation.wanted_requests:,}: the rest waits at the client"
        tried = _tried(situation, _Change({"memory.max_running_requests": number}, note, number))
        if tried is None:
            high = number - 1
        else:
            best, low = tried, number + 1
    return best


def _pairs(situation: Situation) -> Iterator[tuple[_Change, ...]]:
    singles = [change for ladder in _server_changes(situation) for change in ladder]
    radix = [c for c in singles if "memory.disable_radix_cache" in c.set]
    half = [c for c in singles if "memory.mamba_ssm_dtype" in c.set]
    drafts = [c for c in singles if "speculative.num_draft_tokens" in c.set]
    for first, second in ((radix, drafts), (half, drafts), (radix, half)):
        yield tuple(
            _Change({**a.set, **b.set}, f"{a.note}; {b.note}", a.wanted, a.changes_results or b.changes_results)
            for a in first
            for b in second
        )


def _more_gpus(situation: Situation) -> Iterator[tuple[_Change, ...]]:
    parallel = situation.config.parallel
    yield tuple(
        _Change(
            {"parallel.tp_size": size, "gpu.count": parallel.model_copy(update={"tp_size": size}).gpus},
            f"{size} GPUs: weights, state and scratch are split",
            situation.wanted_requests,
        )
        for size in candidates.TP_SIZES
        if size > parallel.tp_size
    )
