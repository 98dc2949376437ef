"""An answer in plain words: what to set, whether that is sure, what it reaches and costs, why other things do not do.

One text for the terminal, the page and the notebook. Nothing is escaped here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from ..budget_types import MemoryBudget
from ..engines.sglang.command import flags_for
from ..engines.sglang.flags import facts_version
from ..gpus import FreeBasis, load_gpu
from ..terms import Limit
from ..units import GIB, Interval, counted, format_gib, format_spread
from .changes import ASKED, COSTS, PRICES, Change
from .screen import estimated_outside, per_worker
from .types import MOST_REQUESTS, Answer, Certainty, Most, Plan, Size
from .underlying import FRACTION, Underlying, underlying
from .wished import one_request
from .wishes import LEAST_SLACK_BYTES

_SHORT: Mapping[FreeBasis, str] = {
    "measured": "measured",
    "logged": "logged by others, not measured",
    "inferred": "inferred, not measured",
    "derived": "derived from the card's total, not measured",
    "assumed": "assumed, not measured",
}
_FIGURES: tuple[tuple[Limit, str], ...] = (
    ("state_slots", "state slot"),
    ("running_requests", "request"),
    ("kv_tokens", "KV token"),
)
#: Where the static fraction is from that a plan changes.
SET_BY_PLAN = "set by this plan"
#: … and where a release's own follows what a plan sets.
FOR_PLAN = "for what this plan sets"
#: What is said of a plan beside its figures. Only the pools follow from arithmetic; what is beside them is estimated.
CERTAIN: Mapping[Certainty, str] = {
    "sure": "requests, slots and tokens sure: so over the whole interval of free memory",
    "likely": "requests, slots and tokens likely: so at the likely free memory, not at all that is possible",
}
#: The same in a sentence, for tables in which each plan has its word.
CERTAIN_OF = "sure, likely: of requests, slots and tokens; that the memory beside the pools suffices is an estimate"


def certainty(plan: Plan) -> str:
    """Of the pools, and of the memory beside them: '… sure: …; memory beside the pools estimated: enough …'."""
    return f"{CERTAIN[plan.certainty]}; memory beside the pools {_beside(plan.budget)}"


def _beside(budget: MemoryBudget) -> str:
    slack, taken = budget.terms["slack"].bytes, estimated_outside(budget)
    if slack is None or taken is None:
        return "not estimated"
    if slack.low >= taken.high:
        return "estimated: enough, even if graphs and a full prefill take the most"
    if slack.low >= taken.point:
        return "estimated: enough for what graphs and a full prefill likely take, not for the most"
    if slack.point >= taken.point:
        return "estimated: enough for what graphs and a full prefill likely take, at the likely free memory only"
    return "estimated: less than graphs and a full prefill likely take"


def cheaper(answer: Answer) -> str | None:
    """What comes before the plan to take, which is sure, and is only likely: 'cheaper, but only likely: set …; costs:
    slack'. None: that plan is the first."""
    best = answer.best
    first = next((plan for size in answer.owned for plan in size.plans), None)
    if best is None or first is None or first is best:
        return None
    lead = "cheaper" if first.tp_size == best.tp_size else f"on TP{first.tp_size}"
    return f"{lead}, but only likely: {setting(first.changes)}; costs: {prices(first)}"


def also_asked(answer: Answer) -> str:
    """That the flags of the wish itself, which `flags(plan, whole=False)` leaves out, belong to each plan that is
    listed; "": there are none, or they are shown (where the most is wished)."""
    plan = answer.best or answer.beyond or next((plan for size in answer.sizes for plan in size.plans), None)
    if plan is None or answer.wishes.running_requests is None:
        return ""
    version = facts_version(plan.config.engine)
    asked = (change for change in plan.changes if change.kind in ASKED)
    words = " ".join(filter(None, (flags_for(change.set, version) for change in asked)))
    return f"beside the flags that are listed each needs {words}, as asked" if words else ""


def rests_on(plan: Plan) -> str:
    """'the configuration alone; free memory inferred, not measured on 4 × RTX PRO 6000; mem_fraction_static 0.75
    (given)'."""
    fraction = [argument for argument in plan.budget.resolved if argument.name == FRACTION]
    if any(change.kind == "fraction" for change in plan.changes):
        fraction = [dataclasses.replace(argument, source=SET_BY_PLAN) for argument in fraction]
    elif (
        plan.changes
    ):  # it is computed from the number of requests too, so another one than of the settings as they are
        fraction = [
            dataclasses.replace(argument, source=f"{argument.source} {FOR_PLAN}")
            if argument.source.startswith("default")
            else argument
            for argument in fraction
        ]
    return "; ".join([plan.budget.basis_words, *(argument.words for argument in fraction)])


def bases(answer: Answer) -> str:
    """What each number of ranks rests on: 'free memory: TP1, TP2 measured; TP4 inferred, not measured. Fraction …'."""
    return bases_of({size.tp_size: underlying(answer, size) for size in answer.sizes})


def bases_of(by_ranks: Mapping[int, Underlying | None]) -> str:
    """The same of any numbers of tensor-parallel ranks."""
    found = [(ranks, under) for ranks, under in by_ranks.items() if under is not None]
    memory = _grouped((ranks, _SHORT[under.free.basis]) for ranks, under in found)
    return f"free memory before loading: {memory}. {FRACTION} as it is: {_fractions(found)}" if found else ""


def _fractions(found: Iterable[tuple[int, Underlying]]) -> str:
    """'0.75 (given)'; 'TP1 0.7934, TP2 0.7925 (default of sglang 0.5.16)'."""
    by_source: dict[str, list[tuple[int, str]]] = {}
    for ranks, under in found:
        by_source.setdefault(under.fraction_source, []).append((ranks, f"{under.fraction:.4g}"))
    parts = []
    for source, each in by_source.items():
        one = len({fraction for _, fraction in each}) == 1 and len(by_source) == 1
        said = each[0][1] if one else ", ".join(f"TP{ranks} {fraction}" for ranks, fraction in each)
        parts.append(f"{said} ({source})")
    return "; ".join(parts)


def _grouped(said: Iterable[tuple[int, str]]) -> str:
    """'TP1, TP2 measured; TP4 inferred'; without the numbers where all have the same."""
    by_words: dict[str, list[str]] = {}
    for ranks, words in said:
        by_words.setdefault(words, []).append(f"TP{ranks}")
    if len(by_words) == 1:
        return next(iter(by_words))
    return "; ".join(f"{', '.join(sizes)} {words}" for words, sizes in by_words.items())


def cards(answer: Answer, gpus: int) -> str:
    """'2 × RTX PRO 6000'; of an emulated card '… (budget emulated on H200)'."""
    gpu = answer.given.gpu
    card = load_gpu(gpu.emulate or gpu.name).words
    return f"{gpus} × {card}" + (f" (budget emulated on {load_gpu(gpu.name).words})" if gpu.emulate else "")


def setting(changes: Iterable[Change]) -> str:
    """'max_running_requests 8, max_mamba_cache_size 40'; 'nothing changed'."""
    pairs = [(key, value) for change in changes for key, value in change.set.items()]
    return ", ".join(f"{_key(key)} {_value(value)}" for key, value in pairs) or "nothing changed"


def flags(plan: Plan, *, whole: bool = True) -> str:
    """The server's flags of a plan's changes: '--max-mamba-cache-size 40'. `whole`: with those of the wish itself."""
    version = facts_version(plan.config.engine)
    changes = [change for change in plan.changes if whole or change.kind not in ASKED]
    words = " ".join(filter(None, (flags_for(change.set, version) for change in changes)))
    dropped = [_key(key) for change in changes for key, value in change.set.items() if value in (None, "auto")]
    without = f"without {', '.join(dropped)}" if dropped else ""
    return ", ".join(filter(None, (words, without)))


def prices(plan: Plan) -> str:
    """'accuracy, slack': what a plan gives up, in a word each, the dearest first."""
    kinds = sorted({change.kind for change in plan.changes} - ASKED, key=lambda kind: -list(COSTS).index(kind))
    return ", ".join(dict.fromkeys(PRICES[kind] for kind in kinds)) or "nothing"


def _key(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _value(value: object) -> str:
    if value is None:
        return "left out"
    return str(value).lower() if isinstance(value, bool) else str(value)


def headline(answer: Answer) -> tuple[bool, str]:
    """Whether the wishes are reached on the cards that there are, and the answer in a sentence."""
    best, wishes = answer.best, answer.wishes
    if best is None:
        beyond = answer.beyond
        more = "no number of cards up to 8 does" if beyond is None else f"{cards(answer, _gpus(answer, beyond))} do"
        tried = sum(size.tried for size in answer.sizes if size.gpus <= answer.gpus)
        none = f"None of {counted(tried, 'candidate')}" if tried else "No candidate"
        return False, f"No. {none} reaches {wishes.words} on {cards(answer, answer.gpus)}; {more}."
    where = f"{cards(answer, _gpus(answer, best))} (TP{best.tp_size})"
    if wishes.running_requests is None:
        running = best.budget.limits["running_requests"].value
        each = 0 if running is None else running.point
        count = counted(each * answer.given.parallel.dp_size, "request")
        count += " or more (no more were tried)" if each >= MOST_REQUESTS else ""
        return True, f"{count} at once on {where}: {_how(answer, best)}{_and_more(answer, best)}"
    return True, f"Yes: {wishes.words}, on {where}: {_how(answer, best)}"


def _and_more(answer: Answer, best: Plan) -> str:
    """Where the most is wished: what more would run on these ranks, for what that costs."""
    size = next(size for size in answer.sizes if size.tp_size == best.tp_size)
    most = max(size.most, key=lambda one: one.sure, default=None)
    plan, running = None if most is None else most.sure_plan, best.budget.limits["running_requests"].value
    if most is None or plan is None or running is None or most.sure <= running.point:
        return ""
    more = most.sure * answer.given.parallel.dp_size
    tokens = tokens_each(plan.budget)
    left = "" if tokens is None else f", of {tokens:,} KV tokens each if all are as long"
    return f" Up to {more:,}{left}, with {setting(plan.changes)}: it costs {prices(plan)}."


def tokens_each(budget: MemoryBudget) -> int | None:
    """KV tokens of each request, when as many run as can and all are as long; None: not predicted, or it is one."""
    running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
    return None if running is None or tokens is None or running.point < 2 else tokens.point // running.point


def _how(answer: Answer, best: Plan) -> str:
    ranks = f"tp_size {best.tp_size}, " if best.tp_size != answer.given.parallel.tp_size else ""
    if not best.changes and not ranks:
        return "as the settings are."
    return f"set {ranks}{setting(best.changes)}." if best.changes else f"set tp_size {best.tp_size}, nothing else."


def _gpus(answer: Answer, plan: Plan) -> int:
    return next(size.gpus for size in answer.sizes if size.tp_size == plan.tp_size)


def reached(budget: MemoryBudget) -> str:
    """'47 state slots (46 to 47), 8 requests at once, 749,416 KV tokens (735,805 to 767,725), 22.28 GiB outside'."""
    parts = []
    for name, noun in _FIGURES:
        value = budget.limits[name].value
        if value is not None:
            one = value.is_exact and value.point == 1
            parts.append(f"{format_spread(value)} {noun}{'' if one else 's'}")
    slack = budget.terms["slack"].bytes
    if slack is not None:
        taken = estimated_outside(budget)
        of_it = "" if taken is None else f" (by estimate {_about(taken)}, of it for graphs and a full prefill)"
        whose = "rank" if budget.shared_card else "card"
        parts.append(f"{format_gib(slack.point)} of each {whose} outside the pools{of_it}")
    return ", ".join(parts)


def _about(value: Interval) -> str:
    return f"{format_gib(value.point)}, {value.low / GIB:.2f} to {value.high / GIB:.2f}"


def at_most(most: Most) -> str:
    """'22 (21)': at the likely free memory, in brackets what is sure where that is less; '4,096+': the search ends."""
    if most.sure >= MOST_REQUESTS:
        return f"{most.requests:,}+"
    return f"{most.requests:,}" + (f" ({most.sure:,})" if most.sure != most.requests else "")


def why_plain_fails(size: Size) -> list[tuple[str, str]]:
    """(what was tried, why it does not do); what fails for the same reason is one line."""
    tried: dict[str, list[str]] = {}
    for failure in size.failures:
        tried.setdefault(failure.why, []).append(failure.tried)
    return [("; ".join(each), why) for why, each in tried.items()]


def of_size(answer: Answer, size: Size) -> Iterator[str]:
    """What a number of ranks comes to, in sentences: the proof that none does, the nearest, or how many were tried."""
    if size.impossible is not None:
        yield f"not possible: {size.impossible}."
        return
    if size.plans:
        return
    if not size.grid:  # the most was wished: no grid is gone through for it
        yield (
            "not one such request runs with the settings as they are, nor with state slots given exactly, nor with "
            "another static fraction; more is searched for a number that is wished: --want running_requests=1."
        )
        return
    refused = f", and {counted(size.refused, 'further combination')} refused by the engine's arguments"
    told = [other for other in answer.sizes if other.impossible is None and not other.plans]
    same = next(other for other in told if other.grid == size.grid)  # its long words are said once
    grid = f": {size.grid}" if same is size else f" that TP{same.tp_size} was searched in"
    yield (
        f"none of {counted(size.tried, 'candidate')} reaches it (the whole grid{grid}; each predicted"
        f"{refused if size.refused else ''})."
    )
    nearest = next((most for most in size.most if most.level == "any"), None)
    wanted = per_worker(answer.given, answer.wishes.running_requests or 1)
    worker = "" if answer.given.parallel.dp_size == 1 else " on each worker"
    if nearest is not None and nearest.plan is not None:
        changes = setting(nearest.plan.changes)
        yield f"nearest: {nearest.requests:,} instead of {wanted:,} requests{worker}, with {changes}."
    if size.longest_context is not None:
        yield f"or {wanted:,} requests{worker} of at most {size.longest_context:,} tokens each."
    if (nearest is None or nearest.plan is None) and size.longest_context is None:
        yield "nothing comes near: not one such request runs."


def cautions(plan: Plan) -> Iterator[str]:
    """What to be careful about: faults and warnings of the prediction, and room that an estimate may not leave."""
    budget = plan.budget
    yield from filter(None, (budget.fault, *budget.warnings))
    slack, taken = budget.terms["slack"].bytes, estimated_outside(budget)
    if slack is not None and taken is not None and slack.low < taken.high:
        yield (
            f"graphs and a full prefill may take up to {format_gib(taken.high)} by estimate, and there may be "
            f"{format_gib(slack.low)} outside the pools: should it run out of memory, a smaller --mem-fraction-static "
            "or --chunked-prefill-size gives room."
        )


def needs(answer: Answer) -> str:
    """What was looked for, in figures."""
    wishes = answer.wishes
    found = []
    if wishes.running_requests is not None and wishes.context is not None and wishes.kv_tokens is None:
        product = f"{wishes.running_requests:,} × {wishes.context:,} = {wishes.running_requests * wishes.context:,}"
        found.append(f"the KV pool must hold {product} tokens at once")
    elif wishes.kv_tokens is not None:
        found.append(f"the KV pool must hold {wishes.kv_tokens:,} tokens")
    elif wishes.context is not None:
        found.append(f"the KV pool must hold {wishes.context:,} tokens for each request")
    else:
        whole = one_request(answer.given)
        what = f"one whole request of {whole:,} tokens" if whole else "any number of tokens"
        found.append(f"the KV pool must hold {what} (no context is wished: --want context=TOKENS, of each)")
    if wishes.slack_bytes is None:
        least = format_gib(LEAST_SLACK_BYTES)
        found.append(f"outside the pools what graphs and a full prefill are estimated to take, at least {least}")
    else:
        found.append(f"{format_gib(wishes.slack_bytes)} of each card outside the pools")
    return "; ".join(found)
