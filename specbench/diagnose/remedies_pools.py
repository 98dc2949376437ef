"""Remedies for pools out of proportion: a context above the pool, too little memory beside the pools, idle slots,
scratch or draft KV that outgrows what it serves.

In: a situation, whose `wanted_requests` are what has to run on at once, and what is lacking. Out: remedies, the
cheapest first, each of which the prediction shows to reach it. Changes that alter results say so; asking for less comes
last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ..budget_types import MemoryBudget
from ..engines.sglang.given import spelled
from ..engines.sglang.resolve import Settings, settings
from ..engines.sglang.verify_mask import AVOIDED_BY
from ..errors import SpecbenchError
from ..planning import changes as candidates
from ..planning.wishes import LEAST_SLACK_BYTES
from ..terms import Term
from ..versions import at_least
from .finding import Remedy
from .remedies import Ladder, at_most, fewer_drafts, more_gpus, other_fractions, working
from .trying import Change, Goal, Situation, of_candidate, point, slack_bytes, stated_fraction, tried

_MOST = 6
_DRAFT_DTYPE_SINCE = "0.5.18"  # --speculative-draft-kv-cache-dtype
_DRAFT_DTYPE = "speculative-draft-kv-cache-dtype"


def for_context(situation: Situation, tokens: int) -> tuple[Remedy, ...]:
    """Changes by which the KV pool holds `tokens` at once (one whole context, or several) for the same requests; at
    last a context that the pool can hold, which turns requests away instead of ending them early."""
    goal = Goal(requests=situation.wanted_requests, least="starts", tokens=tokens, workload=False)
    found = _some(working(situation, _for_tokens(situation), goal))
    pool, context = point(situation.budget, "kv_tokens"), point(situation.budget, "context_len")
    if pool is None or context is None or pool >= context:
        return found
    honest = Change(
        {"memory.context_length": pool},
        f"a context of {pool:,} tokens, as large as the pool: a longer request is refused at once, with an error",
    )
    remedy = tried(situation, honest, Goal(requests=situation.wanted_requests, least="starts", workload=False))
    return found if remedy is None else (*found[: _MOST - 1], remedy)


def less_memory(situation: Situation, size_bytes: int) -> tuple[Remedy, ...]:
    """Changes by which at least `size_bytes` more per rank stay free beside the pools, for graphs and activations,
    while as many requests run; at last by which fewer do."""
    goal = Goal(requests=situation.wanted_requests, more_bytes=size_bytes, workload=False)
    if situation.budget.verdict == "capped":  # that is another cause, and not to be mended at the same time
        goal = dataclasses.replace(goal, least="starts")
    found = _some(working(situation, _for_slack(situation, size_bytes), goal))
    less = at_most(situation, 1, situation.wanted_requests - 1, goal)
    return found if less is None else (*found[: _MOST - 1], less)


def give_slots_back(situation: Situation) -> tuple[Remedy, ...]:
    """Changes by which slots that no running request can use become KV tokens."""
    now, per_request = point(situation.budget, "kv_tokens"), point(situation.budget, "slots_per_request")
    if now is None or per_request is None:
        return ()
    goal = Goal(requests=situation.wanted_requests, least="starts", tokens=now + 1, workload=False)
    return _some(working(situation, _fewer_slots(situation, per_request), goal))


def smaller_scratch(situation: Situation) -> tuple[Remedy, ...]:
    """Changes by which the speculative scratch is smaller than the KV pool of the requests that it serves."""
    below = _below("scratch_ssm", "scratch_conv", than="kv")
    goal = Goal(requests=situation.wanted_requests, least="starts", workload=False, also=below)
    ladders = (fewer_drafts(situation), _half_state(situation))
    less = at_most(situation, 1, situation.wanted_requests - 1, goal)
    found = _some(working(situation, ladders, goal))
    return found if less is None else (*found[: _MOST - 1], less)


def smaller_draft_kv(situation: Situation) -> tuple[Remedy, ...]:
    """Changes by which a token takes less KV of the draft than of the target."""
    below = _below("draft_kv", than="kv")
    goal = Goal(requests=situation.wanted_requests, least="starts", workload=False, also=below)
    return _some(working(situation, _for_draft_kv(situation), goal))


def _some(found: Iterator[Remedy]) -> tuple[Remedy, ...]:
    """The first of them; each is predicted only when it is asked for."""
    return tuple(remedy for remedy, _ in zip(found, range(_MOST), strict=False))


def _below(*terms: Term, than: Term) -> Callable[[MemoryBudget], bool]:
    def holds(budget: MemoryBudget) -> bool:
        sizes = [budget.terms[term].bytes for term in terms]
        whole = budget.terms[than].bytes
        return whole is not None and None not in sizes and sum(size.point for size in sizes if size) < whole.point

    return holds


# ── ladders, the cheapest first ──────────────────────────────────────────────────────────────────────────────────────


def _for_tokens(situation: Situation) -> Iterator[Ladder]:
    """What gives KV tokens."""
    per_request = point(situation.budget, "slots_per_request")
    if situation.config.memory.max_total_tokens is not None:
        yield (
            Change({"memory.max_total_tokens": None}, "without the upper bound of the KV pool (leave the flag out)"),
        )
    if per_request is not None:
        yield from _fewer_slots(situation, per_request)
    yield other_fractions(situation, larger=True)
    yield fewer_drafts(situation)
    if per_request is not None:
        yield tuple(map(of_candidate, candidates.no_radix(situation.config)))
    resolved = _settings(situation)
    if resolved is not None:
        yield tuple(map(of_candidate, candidates.cache_dtypes(resolved)))
    yield _half_state(situation)
    yield from more_gpus(situation)


def _for_slack(situation: Situation, size_bytes: int) -> Iterator[Ladder]:
    """What leaves memory beside the pools. The fraction is stated with changes by which its default would move."""
    stated = stated_fraction(situation)
    yield tuple(
        Change({"memory.cuda_graph_max_bs": size, **stated}, _graphs_note(size)) for size in _batches(situation)
    )
    yield _fewer_tokens(situation, size_bytes)
    yield other_fractions(situation, larger=False)
    chunk = next((one.value for one in situation.budget.resolved if one.name == "chunked_prefill_size"), None)
    if isinstance(chunk, int) and chunk >= 2048:
        note = (
            "prefills in smaller chunks: less memory while they run, a longer time to the first token of long prompts"
        )
        sizes = (chunk // 2, chunk // 4)
        yield tuple(Change({"memory.chunked_prefill_size": size, **stated}, note) for size in sizes)
    yield fewer_drafts(situation)
    yield (Change({spelled(situation.config, AVOIDED_BY): True, **stated}, "no CUDA graphs: every step is slower"),)
    yield from more_gpus(situation)


def _fewer_slots(situation: Situation, per_request: int) -> Iterator[Ladder]:
    """As many slots as the requests need, and other shares of state."""
    config, slots = situation.config, point(situation.budget, "state_slots")
    enough = candidates.slots(per_request, situation.wanted_requests, workers=config.parallel.attention_dp)
    if slots is not None and int(enough.value) < slots * config.parallel.attention_dp:
        yield (of_candidate(enough),)
    ratio = candidates.ratio_of(config)
    # The largest step first: the smallest gives back the least.
    smaller = [change for change in candidates.ratios(config) if float(change.value) < ratio]
    yield tuple(map(of_candidate, reversed(smaller)))


def _for_draft_kv(situation: Situation) -> Iterator[Ladder]:
    if at_least(situation.budget.version, _DRAFT_DTYPE_SINCE):
        note = (
            "the draft's keys and values in one byte: drafts may be accepted less often, what is generated is verified"
        )
        yield (Change({spelled(situation.config, _DRAFT_DTYPE): "fp8_e4m3"}, note),)


def _batches(situation: Situation) -> tuple[int, ...]:
    """Half and a quarter of the largest captured batch."""
    sizes = next((one.value for one in situation.budget.resolved if one.name == "cuda_graph_bs"), None)
    if not isinstance(sizes, tuple) or not sizes:
        return ()
    largest = max(sizes)
    return tuple(size for size in (largest // 2, largest // 4) if size >= 1)


def _graphs_note(size: int) -> str:
    return f"CUDA graphs for batches of up to {size} only: larger batches decode without a graph, and slower"


def _fewer_tokens(situation: Situation, size_bytes: int) -> Ladder:
    """An upper bound of the KV pool by which it gives the memory back."""
    tokens, slack = point(situation.budget, "kv_tokens"), slack_bytes(situation.budget)
    size_bytes = max(size_bytes, 0 if slack is None else LEAST_SLACK_BYTES - slack)
    cells = [situation.budget.details.get(name) for name in ("cell_bytes", "draft_cell_bytes")]
    cell = sum(one.point for one in cells if one is not None)
    if tokens is None or cell <= 0:
        return ()
    bound = (tokens - -(-size_bytes // cell)) // 1024 * 1024
    note = f"a KV pool of at most {bound:,} tokens, whatever the fraction allows"
    return (Change({"memory.max_total_tokens": bound}, note),) if bound > 0 else ()


def _half_state(situation: Situation) -> Ladder:
    resolved = _settings(situation)
    return () if resolved is None else tuple(map(of_candidate, candidates.state_dtypes(resolved)))


def _settings(situation: Situation) -> Settings | None:
    try:
        return settings(situation.config)
    except SpecbenchError:
        return None
