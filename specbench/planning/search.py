"""The search: of every combination of kinds the smallest step that reaches, each plan predicted by `predict`.

In: a configuration, wishes, the GPUs that there are. Out: an `Answer`. A combination that only adds to one that surely
reaches is passed over; all others are gone through to the end, so that "none reaches" is a proof over the stated grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.splitting import uneven
from ..errors import ConfigError, SpecbenchError
from ..specs import load_model
from .candidates import Candidates, budget_of
from .changes import TP_SIZES, Change, Kind, check_kinds
from .grid import Kinds, combinations, described
from .most import longest, most, nearest
from .reaching import lacking
from .screen import Refused, changed, could_be_sure, per_worker, reaches, shortfall, unchecked
from .types import Answer, Failure, Most, Plan, Size
from .wished import on_ranks, with_wishes
from .wishes import Wishes, check_gpus, of_mapping
from .words import setting

#: Plans of one number of ranks that are enough; the search of a size ends with them.
MOST_PLANS = 8


def plan(
    config: RunConfig,
    want: Wishes | Mapping[str, Any],
    *,
    gpus: int | None = None,
    keep: Iterable[str] | None = (),
    draft: str | None = None,
    notes: Iterable[str] = (),
    sizes: Iterable[int] = TP_SIZES,
) -> Answer:
    """Settings that reach the wishes, for every number of ranks. `keep`: kinds that are not touched. `gpus`:
    cards that there are, when that is not `gpu.count`. `draft`: of the wished algorithm. `notes`: to be passed on.
    `sizes`: numbers of tensor-parallel ranks to look at, beside the given one.

    ConfigError or SpecError (two lines) when the configuration cannot be sized at all, or the wishes contradict it.
    """
    wishes = want if isinstance(want, Wishes) else of_mapping(want)
    kept = frozenset(keep or ())
    check_kinds(kept)
    base = with_wishes(config, wishes, draft)
    if gpus is not None:
        check_gpus(gpus)
    there = config.gpu.count if gpus is None else gpus
    every = sorted({*sizes, config.parallel.tp_size})
    found = tuple(_size(on_ranks(base, tp), wishes, kept) for tp in every)
    if all(size.impossible is not None for size in found):
        first = next(size for size in found if size.tp_size == config.parallel.tp_size)
        raise ConfigError(
            f"plan: nothing can be planned for {config.model}: {first.impossible}.\n"
            "Give a params file that specbench predict answers, and wishes that it can be changed to."
        )
    return Answer(given=config, wishes=wishes, gpus=there, sizes=found, notes=(*notes, *_notes(base, wishes)))


def _notes(base: RunConfig, wishes: Wishes) -> tuple[str, ...]:
    found = []
    if base.workload.simulate_acc_len is not None:
        found.append("speed of this configuration is simulated; plans are of memory alone.")
    workers = base.parallel.dp_size
    if workers > 1:
        found.append(
            f"a wish is of the whole server, whose {workers} data-parallel workers share it; requests, slots and "
            "tokens that are predicted, and the most at once, are those of one worker."
        )
    if wishes.context is not None and wishes.kv_tokens is None:
        found.append(
            "context is wished of every request at the same moment: the KV pool holds running_requests × context "
            "tokens. Shorter requests need less; --want kv_tokens=N states the tokens instead."
        )
    return tuple(found)


def _size(base: RunConfig, wishes: Wishes, keep: frozenset[str]) -> Size:
    """One number of ranks: that of `base`."""
    tp, gpus = base.parallel.tp_size, base.parallel.gpus
    impossible = _impossible(base)
    if impossible is not None:
        return Size(tp_size=tp, gpus=gpus, impossible=impossible)
    candidates = Candidates(base, wishes, keep, budget_of(base))
    at_once = most(candidates, ("asked", "slots", "fraction"))
    if wishes.running_requests is None:
        # the most is the goal: each level is a plan of its own
        return Size(tp_size=tp, gpus=gpus, plans=_plans_of(at_once), most=at_once)
    each = per_worker(base, wishes.running_requests)
    plans, complete = _plans(candidates, each)
    tried, refused = candidates.count.tried, candidates.count.refused  # before those of the failures
    return Size(
        tp_size=tp,
        gpus=gpus,
        plans=plans,
        tried=tried,
        refused=refused,
        grid=described(wishes, keep, unchecked(base)),
        complete=complete,
        failures=_failures(candidates, each),
        most=at_once if plans else (*at_once, nearest(candidates, each, at_once[-1])),
        longest_context=None if plans else longest(candidates, each),
    )


def _plans_of(at_once: tuple[Most, ...]) -> tuple[Plan, ...]:
    """A plan for each level that gains, sure before likely."""
    plans: list[Plan] = []
    for one in at_once:
        for plan in (one.sure_plan, one.plan):
            if plan is not None and not any(plan.config == other.config for other in plans):
                plans.append(plan)
    return tuple(plans)


# ── plans for a given number of requests ─────────────────────────────────────────────────────────────────────────────


def _plans(candidates: Candidates, each: int) -> tuple[tuple[Plan, ...], bool]:
    """Cheapest first, and whether every combination was gone through."""
    found: list[Plan] = []
    sure: list[frozenset[Kind]] = []
    likely: list[frozenset[Kind]] = []
    for kinds in combinations(candidates.wishes, candidates.keep):
        if any(reached <= kinds.all for reached in sure):
            continue
        best = _first(candidates, kinds, each, also_likely=not any(reached <= kinds.all for reached in likely))
        if best is None:
            continue
        found.append(best)
        (sure if best.certainty == "sure" else likely).append(kinds.all)
        if len(found) == MOST_PLANS:
            return tuple(found), False
    return tuple(found), True


def _first(candidates: Candidates, kinds: Kinds, each: int, *, also_likely: bool) -> Plan | None:
    """Of one combination the smallest step that surely reaches, else the smallest that likely does."""
    second: Plan | None = None
    for one, inner, found, need in candidates.of(kinds, each):
        if not reaches(found, need) or (second is not None and not could_be_sure(one, inner, need)):
            continue
        plan = candidates.predicted((*one.changes, *inner), need)
        if plan is None:
            continue
        if plan.certainty == "sure":
            return plan
        second = second or (plan if also_likely else None)
    return second


# ── why the plain ones fail ──────────────────────────────────────────────────────────────────────────────────────────


def _failures(candidates: Candidates, each: int) -> tuple[Failure, ...]:
    """Every single kind of change that does not do, at its best."""
    found = []
    for kinds in combinations(candidates.wishes, candidates.keep):
        if len(kinds.all) > 1:
            continue
        steps = list(candidates.of(kinds, each, whole=True))
        if any(reaches(figures, need) for _, _, figures, need in steps):
            continue
        if not steps:
            start = candidates.frame(each)
            if not kinds.all and isinstance(start, Refused):
                found.append(Failure(kind="none", tried="nothing changed", why=start.reason))
            continue
        one, inner, _, need = min(steps, key=lambda step: shortfall(step[2], step[3]))
        changes = tuple(change for change in (*one.changes, *inner) if change.kind in kinds.all)
        budget = budget_of(changed(candidates.base, *one.changes, *inner))
        found.append(
            Failure(
                kind=next(iter(kinds.all), "none"),
                tried=_tried(changes, len(steps)),
                why="not predicted" if budget is None else lacking(budget, need),
            )
        )
    return tuple(found)


def _impossible(base: RunConfig) -> str | None:
    """Why so many ranks cannot be, whatever else is set."""
    try:
        target = load_model(base.model)
        draft = base.speculative.draft_model_path
        problem = uneven(base, target, load_model(draft) if draft else None)
    except SpecbenchError as error:
        return error.clause
    if problem is not None:
        return f"{problem.reason} (sizes that work: {problem.allowed})"
    for refusal in check(base):
        if refusal.key.startswith(("parallel.", "gpu.", "speculative.algorithm", "speculative.draft_model_path")):
            return f"{refusal.key}: {refusal.reason}; allowed: {refusal.allowed}"
    try:
        unchecked(base)
    except SpecbenchError as error:
        return error.clause
    return None


def _tried(changes: tuple[Change, ...], count: int) -> str:
    """'max_mamba_cache_size 40'; of a ladder its best step."""
    if not changes:
        return "nothing changed beside what is asked"
    best = setting(changes)
    return best if count == 1 else f"{best} (the best of {count} steps)"
