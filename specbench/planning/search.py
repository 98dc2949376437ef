"""The search: of every combination of kinds the smallest step that reaches, each plan predicted by `predict`.

In: a configuration, wishes, the GPUs that there are. Out: an `Answer`. A combination that only adds to one that surely
reaches is passed over; all others are gone through to the end, so that "none reaches" is a proof over the stated grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..budget.predict import predict
from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..engines import check
from ..engines.sglang.splitting import uneven
from ..errors import ConfigError, SpecbenchError
from ..specs import load_model
from ..units import format_gib
from .changes import TP_SIZES, Change, Kind, check_kinds, fractions, slots, without_graphs
from .costs import costs
from .grid import Kinds, combinations, described, inner_changes, outer_changes
from .screen import (
    Figures,
    Frame,
    Need,
    Refused,
    changed,
    could_be_sure,
    estimated_outside,
    figures,
    frame,
    per_worker,
    reaches,
    roomy,
    shortfall,
    unchecked,
)
from .types import MOST_REQUESTS, Answer, Certainty, Failure, Most, Plan, Size
from .wished import asking, on_ranks, with_wishes
from .wishes import LEAST_SLACK_BYTES, Wishes, check_gpus, of_mapping
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
    found = tuple(_Search(on_ranks(base, tp), wishes, kept).size() for tp in every)
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


@dataclass(slots=True)
class _Count:
    tried: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Search:
    """One number of ranks."""

    base: RunConfig
    wishes: Wishes
    keep: frozenset[str]
    count: _Count = field(default_factory=_Count)
    frames: dict[tuple[Any, ...], Frame | Refused] = field(default_factory=dict)
    reference: MemoryBudget | None = None  # as the settings are, on these ranks

    def size(self) -> Size:
        tp, gpus = self.base.parallel.tp_size, self.base.parallel.gpus
        impossible = _impossible(self.base)
        if impossible is not None:
            return Size(
                tp_size=tp,
                gpus=gpus,
                impossible=impossible,
                plans=(),
                tried=0,
                refused=0,
                grid="",
                complete=True,
                failures=(),
                most=(),
                longest_context=None,
            )
        self.reference = _budget(self.base)
        wanted = self.wishes.running_requests
        most = self.most(("asked", "slots", "fraction"))
        if wanted is None:
            # the most is the goal: each level is a plan of its own
            return self._of_most(most)
        each = per_worker(self.base, wanted)
        plans, complete = self.plans(each)
        count = _Count(self.count.tried, self.count.refused)
        failures = self.failures(each)
        longest = None
        if not plans:
            most = (*most, self.nearest(each, most[-1]))
            longest = self.longest(each)
        return Size(
            tp_size=tp,
            gpus=gpus,
            impossible=None,
            plans=plans,
            tried=count.tried,
            refused=count.refused,
            grid=described(self.wishes, self.keep, unchecked(self.base)),
            complete=complete,
            failures=failures,
            most=most,
            longest_context=longest,
        )

    # ── plans for a given number of requests ─────────────────────────────────────────────────────────────────────

    def plans(self, each: int) -> tuple[tuple[Plan, ...], bool]:
        """Cheapest first, and whether every combination was gone through."""
        found: list[Plan] = []
        sure: list[frozenset[Kind]] = []
        likely: list[frozenset[Kind]] = []
        for kinds in combinations(self.wishes, self.keep):
            if any(reached <= kinds.all for reached in sure):
                continue
            best = self._first(kinds, each, also_likely=not any(reached <= kinds.all for reached in likely))
            if best is None:
                continue
            found.append(best)
            (sure if best.certainty == "sure" else likely).append(kinds.all)
            if len(found) == MOST_PLANS:
                return tuple(found), False
        return tuple(found), True

    def _first(self, kinds: Kinds, each: int, *, also_likely: bool) -> Plan | None:
        """Of one combination the smallest step that surely reaches, else the smallest that likely does."""
        second: Plan | None = None
        for one, inner, found, need in self._candidates(kinds, each):
            if not reaches(found, need) or (second is not None and not could_be_sure(one, inner, need)):
                continue
            plan = self._predicted((*one.changes, *inner), need)
            if plan is None:
                continue
            if plan.certainty == "sure":
                return plan
            second = second or (plan if also_likely else None)
        return second

    def _candidates(
        self, kinds: Kinds, each: int, *, whole: bool = False
    ) -> Iterator[tuple[Frame, tuple[Change, ...], Figures, Need]]:
        """Every candidate of a combination. `whole`: with the slack also of those that fall short without it."""
        start = self._frame(each)
        if isinstance(start, Refused):
            # what the engine refuses as it is may be taken with a change: the frame without it tells what to change
            self.count.refused += not kinds.all
        need = self._need(each)
        reference = start if isinstance(start, Frame) else unchecked(self.base)
        for outer in outer_changes(kinds, reference, self.wishes):
            one = self._frame(each, *outer) if outer else start
            if isinstance(one, Refused):
                self.count.refused += bool(outer)
                continue
            for inner in inner_changes(kinds, one, each):
                self.count.tried += 1
                yield one, inner, figures(one, inner, None if whole else need), need

    def _frame(self, each: int, *outer: Change) -> Frame | Refused:
        """Resolved once: the same frame is met in several combinations."""
        key = (each, tuple((change.kind, change.value) for change in outer))
        if key not in self.frames:
            needed = asking(self.base, self.wishes, each, self._tokens(each))
            self.frames[key] = frame(self.base, *needed, *outer)
        return self.frames[key]

    def _need(self, each: int) -> Need:
        return self._wished(each, self._tokens(each))

    def _wished(self, each: int, tokens: int) -> Need:
        """A stated slack is the word; else what is estimated counts, and no less than the least."""
        stated = self.wishes.slack_bytes
        slack = LEAST_SLACK_BYTES if stated is None else stated
        return Need(requests=each, tokens=tokens, slack_bytes=slack, estimated=stated is None)

    def _tokens(self, each: int) -> int:
        """Of one worker. Without a wish one whole request: less serves to the letter, and nobody in practice."""
        if self.wishes.kv_tokens is not None:
            return -(-self.wishes.kv_tokens // self.base.parallel.dp_size)
        workload = self.base.workload
        longest = 0 if workload.load_only else max(workload.input_tokens) + workload.output_tokens
        return self.wishes.tokens(each, max(self.base.memory.context_length or 0, longest))

    def _predicted(self, changes: tuple[Change, ...], need: Need) -> Plan | None:
        """The candidate by `predict`; None where that does not show it to reach at the likely point."""
        config = changed(self.base, *changes)
        if config is None:
            return None
        budget = _budget(config)
        if budget is not None and budget.fault is not None and "graphs" not in self.keep:
            # Memory suffices and the server would still end at its first full batch: the way around it is in the plan.
            changes = (*changes, without_graphs(self.base))
            config = changed(self.base, *changes)
            budget = _budget(config)
        if config is None:
            return None
        certainty = None if budget is None else certain(budget, need)
        if budget is None or certainty is None:
            return None
        return Plan(
            tp_size=config.parallel.tp_size,
            changes=changes,
            config=config,
            budget=budget,
            certainty=certainty,
            costs=costs(budget, self.reference, changes),
        )

    # ── why the plain ones fail, and what is nearest ─────────────────────────────────────────────────────────────

    def failures(self, each: int) -> tuple[Failure, ...]:
        """Every single kind of change that does not do, at its best."""
        found = []
        for kinds in combinations(self.wishes, self.keep):
            if len(kinds.all) > 1:
                continue
            candidates = list(self._candidates(kinds, each, whole=True))
            if any(reaches(found, need) for _, _, found, need in candidates):
                continue
            if not candidates:
                refusal = self._refusal(kinds, each)
                found += [] if refusal is None else [refusal]
                continue
            one, inner, _, need = min(candidates, key=lambda found: shortfall(found[2], found[3]))
            changes = tuple(change for change in (*one.changes, *inner) if change.kind in kinds.all)
            budget = _budget(changed(self.base, *one.changes, *inner))
            found.append(
                Failure(
                    kind=next(iter(kinds.all), "none"),
                    tried=_tried(changes, len(candidates)),
                    why="not predicted" if budget is None else lacking(budget, need),
                )
            )
        return tuple(found)

    def _refusal(self, kinds: Kinds, each: int) -> Failure | None:
        if kinds.all:
            return None
        start = self._frame(each)
        return Failure(kind="none", tried="nothing changed", why=start.reason) if isinstance(start, Refused) else None

    def longest(self, each: int) -> int | None:
        """The most tokens that each of so many requests can have at once, over the grid; None: they do not run."""
        most = 0
        for one, inner in self._widest(each):
            need = self._wished(each, most + 1)
            found = figures(one, inner, need)
            most = found.tokens if reaches(found, need) else most
        return most // each or None

    def _widest(self, each: int, *, dearest_first: bool = False) -> Iterator[tuple[Frame, tuple[Change, ...]]]:
        """Candidates that hold the most: slots as they are or exactly as needed, and the largest fractions that leave
        enough outside the pools. With slots given, tokens rise with the fraction and the slack falls; where they are
        not, tokens may fall by a step, so the three largest fractions are yielded."""
        start = self._frame(each)
        reference = start if isinstance(start, Frame) else unchecked(self.base)
        every = combinations(self.wishes, self.keep)
        for kinds in reversed(every) if dearest_first else every:
            if kinds.inner not in ((), ("slots",)):
                continue
            for changes in outer_changes(kinds, reference, self.wishes):
                one = self._frame(each, *changes) if changes else start
                if isinstance(one, Refused):
                    continue
                for inner in inner_changes(kinds, one, each):
                    yield one, inner
                    if "fraction" not in self.keep:
                        yield from ((one, (*inner, step)) for step in self._largest_fractions(one, inner))

    def _largest_fractions(self, one: Frame, inner: tuple[Change, ...]) -> list[Change]:
        steps = sorted(fractions(one.resolved.fraction), key=lambda change: float(change.value))
        low, high, need = 0, len(steps), self._wished(1, 0)
        while low < high:
            middle = (low + high) // 2
            enough = roomy(figures(one, (*inner, steps[middle])), need)
            low, high = (middle + 1, high) if enough else (low, middle)
        return steps[max(0, low - 3) : low][::-1]

    # ── the most at once ─────────────────────────────────────────────────────────────────────────────────────────

    def most(self, levels: tuple[str, ...]) -> tuple[Most, ...]:
        """The most requests at once of each level; a level holds what the one before it does."""
        found: list[Most] = []
        for level in levels:
            at_least = max((one.requests for one in found), default=0)
            found.append(self._most_of(level, _largest(partial(self._reaches_at, level), at_least), 0))
        return tuple(found)

    def nearest(self, each: int, known: Most) -> Most:
        """The most at once with everything that the wishes allow, where `each` are too many. `known`: of less."""
        likely = _below(partial(self._reaches_at, "any"), min(each, MOST_REQUESTS + 1), known.requests)
        return self._most_of("any", likely, known.sure)

    def _most_of(self, level: str, likely: int, surely: int) -> Most:
        """`surely`: a number that is known to be reached surely."""
        plan = self._plan_at(level, likely, "likely")
        sure = likely
        if plan is None or plan.certainty != "sure":
            sure = _below(partial(self._surely_at, level), likely, min(surely, likely))
        return Most(
            level=level,
            requests=0 if plan is None else likely,
            sure=sure,
            plan=plan,
            sure_plan=self._plan_at(level, sure, "sure"),
        )

    def _plan_at(self, level: str, each: int, least: Certainty) -> Plan | None:
        """The first candidate of a level that reaches so many, sure before likely."""
        if not each:
            return None
        second = None
        for one, inner in self._level_candidates(level, each):
            need = self._need(each)
            found = figures(one, inner, need)
            if not reaches(found, need):
                continue
            if (second is not None or least == "sure") and not could_be_sure(one, inner, need):
                continue
            plan = self._predicted((*one.changes, *inner), need)
            if plan is not None and plan.certainty == "sure":
                return plan
            second = second or plan
        return second if least == "likely" else None

    def _reaches_at(self, level: str, each: int) -> bool:
        """Whether a candidate of a level reaches so many at the likely free memory."""
        need = self._need(each)
        # the dearest first: if any does, these do
        candidates = self._level_candidates(level, each, dearest_first=True)
        return any(reaches(figures(one, inner, need), need) for one, inner in candidates)

    def _surely_at(self, level: str, each: int) -> bool:
        return self._plan_at(level, each, "sure") is not None

    def _level_candidates(
        self, level: str, each: int, *, dearest_first: bool = False
    ) -> Iterator[tuple[Frame, tuple[Change, ...]]]:
        if level == "any":
            yield from self._widest(each, dearest_first=dearest_first)
            return
        start = self._frame(each)
        if isinstance(start, Refused):
            return
        steps: list[tuple[Change, ...]] = [()]
        if level in ("slots", "fraction") and "slots" not in self.keep:
            exact = slots(start.resolved.slots_per_request, each, workers=start.resolved.attention_dp)
            if start.resolved.target.state_layers and start.resolved.radix:
                steps.append((exact,))
        if level == "fraction" and "fraction" not in self.keep:
            steps += [(*step, change) for change in fractions(start.resolved.fraction) for step in steps[:2]]
        yield from ((start, inner) for inner in steps)

    def _of_most(self, most: tuple[Most, ...]) -> Size:
        """The most at once as the wish: a plan for each level that gains, sure before likely."""
        plans: list[Plan] = []
        for one in most:
            for plan in (one.sure_plan, one.plan):
                if plan is not None and not any(plan.config == other.config for other in plans):
                    plans.append(plan)
        return Size(
            tp_size=self.base.parallel.tp_size,
            gpus=self.base.parallel.gpus,
            impossible=None,
            plans=tuple(plans),
            tried=self.count.tried,
            refused=self.count.refused,
            grid="",
            complete=True,
            failures=(),
            most=most,
            longest_context=None,
        )


def certain(budget: MemoryBudget, need: Need) -> Certainty | None:
    """How surely a prediction is what is needed; None: not even at the likely point."""
    running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
    slack = budget.terms["slack"].bytes
    if budget.verdict == "refused" or running is None or tokens is None:
        return None
    if running.point < need.requests or tokens.point < need.tokens:
        return None
    taken = estimated_outside(budget) if need.estimated else None
    needed = max(need.slack_bytes, 0 if taken is None else taken.point)
    if slack is not None and slack.point < needed:
        return None
    sure = (
        "refused" not in budget.verdicts
        and running.low >= need.requests
        and tokens.low >= need.tokens
        and (slack is None or slack.low >= needed)
    )
    return "sure" if sure else "likely"


def lacking(budget: MemoryBudget, need: Need) -> str:
    """Why a prediction is not what is needed, with figures."""
    running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
    slack = budget.terms["slack"].bytes
    if budget.verdict == "refused":
        return f"refused: {budget.reason}"
    lacks = []
    if running is not None and running.point < need.requests:
        slots = budget.limits["state_slots"].value
        each = budget.limits["slots_per_request"].value
        held = "" if slots is None or each is None else f" ({slots.point:,} slots, {each.point} each)"
        lacks.append(f"{running.point:,} of {need.requests:,} requests{held}")
    if tokens is not None and tokens.point < need.tokens:
        lacks.append(f"{tokens.point:,} of {need.tokens:,} KV tokens")
    if slack is not None and slack.point < need.slack_bytes:
        lacks.append(f"{format_gib(slack.point)} outside the pools, {format_gib(need.slack_bytes)} are needed")
    taken = estimated_outside(budget)
    if slack is not None and need.estimated and taken is not None and slack.point < taken.point:
        need_words = f"graphs and a full prefill take about {format_gib(taken.point)}"
        lacks.append(f"{format_gib(slack.point)} outside the pools, {need_words}")
    return "; ".join(lacks) or "reaches at the likely free memory only"


def _budget(config: RunConfig | None) -> MemoryBudget | None:
    if config is None:
        return None
    try:
        return predict(config)
    except SpecbenchError:
        return None


def _impossible(base: RunConfig) -> str | None:
    """Why so many ranks cannot be, whatever else is set."""
    try:
        target = load_model(base.model)
        draft = base.speculative.draft_model_path
        problem = uneven(base, target, load_model(draft) if draft else None)
    except SpecbenchError as error:
        return str(error).splitlines()[0].rstrip(".")
    if problem is not None:
        return f"{problem.reason} (sizes that work: {problem.allowed})"
    for refusal in check(base):
        if refusal.key.startswith(("parallel.", "gpu.", "speculative.algorithm", "speculative.draft_model_path")):
            return f"{refusal.key}: {refusal.reason}; allowed: {refusal.allowed}"
    try:
        unchecked(base)
    except SpecbenchError as error:
        return str(error).splitlines()[0].rstrip(".")
    return None


def _tried(changes: tuple[Change, ...], count: int) -> str:
    """'max_mamba_cache_size 40'; of a ladder its best step."""
    if not changes:
        return "nothing changed beside what is asked"
    best = setting(changes)
    return best if count == 1 else f"{best} (the best of {count} steps)"


def _below(works: Callable[[int], bool], high: int, low: int = 0) -> int:
    """The largest number below `high` that works, by halving. `low`: one that does; 0: none."""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _largest(works: Callable[[int], bool], at_least: int) -> int:
    """The largest number that works, by doubling and halving: where a number of requests works, so do all below it."""
    low = at_least if at_least and works(at_least) else 0
    if low >= MOST_REQUESTS or not works(low + 1):
        return low
    low += 1
    high = low * 2
    while high <= MOST_REQUESTS and works(high):
        low, high = high, high * 2
    high = min(high, MOST_REQUESTS + 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low
