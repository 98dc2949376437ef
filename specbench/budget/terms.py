"""Terms of a budget, each with its formula in words and in figures. In: a solved case. Out: bytes per rank."""

from __future__ import annotations

from collections.abc import Sequence

from ..budget_types import PredictedTerm
from ..engines.sglang.sizing.allocation import Allocation
from ..terms import Term
from ..units import Interval, format_gib
from .case import Case, hull
from .outside import Outside

#: Of a host the engine logs what is available at a moment: weights are the difference of two such figures.
_SHARED = "what a host has free changes with everything that runs there, and so does what the engine logs of it"


def terms(case: Case, slack: Interval | None, beside: Outside | None) -> dict[Term, PredictedTerm]:
    """Every term in bytes of one rank, with its formula. `slack`, `beside`: what is left outside the pools when they
    stand, and the estimate of what takes it; None: not predicted."""
    resolved = case.settings
    rule = resolved.rule.label
    tp = resolved.config.parallel.tp_size
    found: dict[Term, PredictedTerm] = {}

    def add(term: Term, value: Interval | None, formula: str, numbers: str = "", source: str = rule) -> None:
        found[term] = PredictedTerm(term=term, bytes=value, formula=formula, numbers=numbers, rule=source)

    loaded = "config.json; CUDACachingAllocator"
    weights, draft = case.start.weights, case.start.draft_weights
    why = "not predicted: the config does not tell the tensors of this checkpoint or split"
    if resolved.gpu.is_host:
        weights = draft = None
        why = f"not predicted: {_SHARED}"
    words = resolved.target.weights_words(tp) if weights else why
    add("weights", weights, words, _on_a_rank(resolved.target.name, weights, tp), loaded)
    if resolved.draft is None:
        add("draft_weights", Interval.exact(0), "no draft model", "0 B", loaded)
    else:
        words = resolved.draft.weights_words(tp) if draft else why
        add("draft_weights", draft, words, _on_a_rank(resolved.draft.name, draft, tp), loaded)
    stand = [case.allocation(solved.pools) for solved in case.span.all if solved.pools.allocated]
    for term in ("state_conv", "state_ssm", "scratch_ssm", "scratch_conv", "kv", "draft_kv"):
        add(term, *_pool_term(case, term, stand))
    if beside is None:
        add("graphs", None, "not predicted: CUDA graphs depend on kernels and captured sizes; the log tells")
    else:
        graphs = beside.graphs
        found["graphs"] = PredictedTerm(
            term="graphs",
            bytes=graphs.bytes,
            formula=graphs.formula,
            numbers=graphs.numbers,
            rule="data/outside.yaml, of recorded starts",
            estimated=not graphs.bytes.is_exact,
        )
    if slack is None:
        unknown = "the start is refused, or the draft's weights are not known"
        lacking = _SHARED if resolved.gpu.is_host else unknown
        add("slack", None, f"not predicted: {lacking}")
    else:
        later = "" if resolved.rule.draft_loads_first else ", less the draft's weights"
        add(
            "slack",
            slack,
            f"free when sizing, less all pools and the request table{later}; the low end allows for rounding",
            _slack_numbers(case, slack) + _taken_of_it(beside),
        )
    return found


def _on_a_rank(name: str, size: Interval | None, tp: int) -> str:
    return f"{name}, TP{tp}: {size.point:,} B = {format_gib(size.point)}" if size else ""


def _pool_term(case: Case, term: Term, stand: Sequence[Allocation]) -> tuple[Interval | None, str, str]:
    """Bytes, formula, numbers of a pool. `stand`: what is allocated wherever pools are, over the span."""
    if term.startswith("state_") and not case.slot.layers:
        return Interval.exact(0), "the model keeps no state", "0 B"
    if term.startswith("scratch_") and not (case.slot.layers and case.demand.draft_tokens):
        return Interval.exact(0), "no speculative scratch", "0 B"
    if term == "draft_kv" and case.cell.draft_bytes == 0:
        return Interval.exact(0), "no draft keeps KV", "0 B"
    if not case.span.point.pools.allocated:
        return None, "not predicted: the start is refused before the pools are allocated", ""
    if term == "draft_kv" and case.span.point.pools.refusal and not case.settings.rule.draft_loads_first:
        return None, "not predicted: the start is refused before the draft is loaded", ""
    share = case.allocation(case.span.point.pools).shares[term]
    return hull((one.shares[term].bytes for one in stand), share.bytes), share.formula, share.numbers


def _taken_of_it(beside: Outside | None) -> str:
    """What is left of the slack when graphs stand and a full prefill runs, by estimate."""
    if beside is None:
        return ""
    graphs, running = beside.graphs.bytes.point, beside.activations.bytes.point
    return (
        f"; of it {format_gib(graphs)} for graphs and {format_gib(running)} for a full prefill (estimated, "
        f"{beside.activations.numbers}), which leaves {format_gib(beside.left.point)}"
    )


def _slack_numbers(case: Case, slack: Interval) -> str:
    pools = case.allocation(case.span.point.pools).total_bytes
    text = f"{format_gib(case.start.free.post.point)} - {format_gib(pools)}"
    if not case.settings.rule.draft_loads_first and case.start.draft_weights:
        text += f" - {format_gib(case.start.draft_weights.point)}"
    return f"{text} = {format_gib(slack.point)}"
