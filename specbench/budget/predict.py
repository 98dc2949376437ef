"""What should happen: `predict(config)` -> `MemoryBudget`. Pure arithmetic, no GPU, no engine.

In: a configuration, and measured free memory when there is some. Out: every term in bytes per rank and every limit as
a count of the server, each an interval with the formula behind it. The non-obvious thing: limits over an interval of
free memory are not the limits at its ends, since tokens fall whenever a slot is gained
(`engines/sglang/sizing/span.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ..budget_types import FreeMemory, LeftForPools, MemoryBudget, PredictedLimit, PredictedTerm
from ..configuration.config import RunConfig
from ..engines.sglang import checks
from ..engines.sglang.demand import Rest, demand, multimodal_reserve_gib, units
from ..engines.sglang.resolve import settings
from ..engines.sglang.sizing.contract import Demand, Rule
from ..engines.sglang.sizing.span import Span, span
from ..errors import SpecError
from ..gpus import GpuSpec
from ..lanes import whole
from ..parameters import parameters
from ..specs import ModelSpec
from ..terms import LIMITS, TERMS
from ..units import GIB, Interval
from .case import Case
from .freememory import start
from .limits import limits
from .outside import Outside, outside
from .resolved import resolved_arguments
from .terms import terms
from .words import admission_note, engine_error, known_fault, reason, split, warnings


def predict(
    config: RunConfig,
    model: ModelSpec | None = None,
    gpu: GpuSpec | None = None,
    *,
    pre_bytes: Interval | None = None,
    post_bytes: Interval | None = None,
    free: FreeMemory | None = None,
    passed_fraction: float | None = None,
    accepted: bool = False,
) -> MemoryBudget:
    """The budget of a rank, and what its server gets by it.

    `pre_bytes`, `post_bytes`: free before the weights load and when the pools are sized, smallest rank; or `free`,
    which `measured_free` makes of a log's figures. Without them everything comes from the configuration. With
    `gpu.emulate` the configuration alone gives the budget of the emulated card; measured memory is that of the real
    one, to which the fraction on the command line applies: `passed_fraction`, where a log shows it. `accepted`: the
    caller has checked that the engine takes the arguments. ConfigError or SpecError when the configuration cannot be
    sized.
    """
    case = solved(
        config, model, gpu, pre_bytes=pre_bytes, post_bytes=post_bytes, free=free, passed_fraction=passed_fraction
    )
    refusal = None if accepted else refused_argument(case)
    return _budget(case) if refusal is None else _refused_by_arguments(case, refusal)


def solved(
    config: RunConfig,
    model: ModelSpec | None = None,
    gpu: GpuSpec | None = None,
    *,
    pre_bytes: Interval | None = None,
    post_bytes: Interval | None = None,
    free: FreeMemory | None = None,
    passed_fraction: float | None = None,
    over: Callable[[Rule, Demand, float, float, float], Span] = span,
) -> Case:
    """The configuration with its pools, whether or not the engine takes its arguments. Errors as of `predict`.

    `over`: which amounts of free memory are solved.
    """
    resolved = settings(config, model, gpu)
    if free is not None or pre_bytes is not None:
        resolved = resolved.passed(passed_fraction)
    slot, cell = units(resolved)
    wanted = demand(resolved, slot, cell)
    begin = start(resolved, pre_bytes=pre_bytes, post_bytes=post_bytes, free=free)
    return Case(
        settings=resolved,
        slot=slot,
        cell=cell,
        demand=wanted,
        start=begin,
        span=over(resolved.rule, wanted, begin.rest.low_gib, begin.rest.point_gib, begin.rest.high_gib),
    )


def refused_argument(case: Case) -> checks.Refusal | None:
    """What the engine refuses before it loads anything; None: nothing."""
    found = checks.check(case.settings.config, case.settings.target)
    return next((refusal for refusal in found if not refusal.tolerated), None)


def _budget(case: Case) -> MemoryBudget:
    resolved, point = case.settings, case.span.point
    verdict = case.verdict(point)
    slack = case.slack()
    beside = outside(resolved, slack, point.pools.requests, point.pools.tokens)
    return MemoryBudget(
        name=resolved.config.name,
        engine=resolved.config.engine.name,
        version=resolved.config.engine.version,
        rule=resolved.rule.label,
        rule_words=resolved.rule.words,
        basis=case.start.basis,
        free=case.start.free,
        requested_running_requests=resolved.config.memory.max_running_requests,
        emulation=resolved.emulation,
        shared_card=case.settings.gpu.share_of is not None,
        split=split(case),
        resolved=resolved_arguments(case),
        left=_left(case),
        terms=terms(case, slack, beside),
        limits=limits(case),
        verdict=verdict,
        verdicts=tuple(dict.fromkeys((verdict, *(case.verdict(solved) for solved in case.span.all)))),
        reason=reason(case, verdict, slack),
        engine_error=engine_error(case, verdict),
        fault=known_fault(case, verdict),
        admission=admission_note(case),
        warnings=warnings(case) + (() if beside is None or beside.warning is None else (beside.warning,)),
        out_of_memory=None if beside is None else beside.warning,
        details=_details(case, beside),
    )


def _refused_by_arguments(case: Case, refusal: checks.Refusal) -> MemoryBudget:
    """The engine does not get as far as the pools: only what was loaded before is known, and that is nothing."""
    resolved = case.settings
    why = f"not predicted: the engine refuses {refusal.key} before it loads anything"
    rule = resolved.rule.label
    names = tuple(name for name in TERMS if name != "unexplained")
    return MemoryBudget(
        name=resolved.config.name,
        engine=resolved.config.engine.name,
        version=resolved.config.engine.version,
        rule=resolved.rule.label,
        rule_words=resolved.rule.words,
        basis=case.start.basis,
        free=case.start.free,
        requested_running_requests=resolved.config.memory.max_running_requests,
        emulation=resolved.emulation,
        shared_card=case.settings.gpu.share_of is not None,
        split=split(case),
        left=None,
        terms={name: PredictedTerm(term=name, bytes=None, formula=why, numbers="", rule=rule) for name in names},
        limits={name: PredictedLimit(limit=name, value=None, formula=why, numbers="", rule=rule) for name in LIMITS},
        verdict="refused",
        verdicts=("refused",),
        reason=f"{_given(refusal)}: {refusal.reason}; allowed: {refusal.allowed}.",
        engine_error=refusal.engine_error,
        warnings=warnings(case),
        details={},
    )


def _given(refusal: checks.Refusal) -> str:
    return f"{refusal.key} not given" if refusal.value is None else f"{refusal.key} = {refusal.value!r}"


def _left(case: Case) -> LeftForPools:
    resolved, free, rest = case.settings, case.start.free, case.start.rest
    kept_back = multimodal_reserve_gib(resolved)
    reserve = " - kept back for images" if kept_back else ""
    loaded = "weights and draft" if resolved.rule.draft_loads_first and resolved.draft is not None else "weights"
    return LeftForPools(
        bytes=_rest_bytes(rest),
        formula=(
            f"free when sizing - free before loading × (1 - fraction){reserve}; that is fraction × free before "
            f"loading, less what loading the {loaded} took; fraction: {resolved.fraction_source}"
        ),
        numbers=(
            f"{free.post.point / GIB:.4f} - {free.pre.point / GIB:.4f} × (1 - {resolved.fraction:g})"
            f"{f' - {kept_back:.4f}' if kept_back else ''} = {rest.point_gib:z.4f} GiB"
        ),
        rule=resolved.rule.label,
    )


def _rest_bytes(rest: Rest) -> Interval:
    return Interval(*(rest_bytes(value) for value in (rest.low_gib, rest.point_gib, rest.high_gib)))


def rest_bytes(rest_gib: float) -> int:
    """Left for the pools, bytes."""
    return whole(rest_gib * GIB)


def _parameters(case: Case) -> dict[str, int]:
    """Counts of the target's parameters; none where its family or config does not tell them."""
    try:
        counted = parameters(case.settings.target)
    except SpecError:
        return {}
    if counted is None:
        return {}
    found = {"parameters": counted.total} | {f"parameters_{part}": n for part, n in counted.by_part.items()}
    return found if counted.builtin_head is None else found | {"parameters_builtin_head": counted.builtin_head}


def _details(case: Case, beside: Outside | None) -> dict[str, Interval]:
    point = case.span.point.pools
    exact = {
        "slot_bytes": case.demand.slot_bytes,
        "slot_conv_bytes": case.slot.conv_bytes,
        "slot_ssm_bytes": case.slot.ssm_bytes,
        "cell_bytes": case.cell.target_bytes,
        "draft_cell_bytes": case.cell.draft_bytes,
        "charged_cell_bytes": case.demand.cell_bytes,
        "draft_tokens": case.demand.draft_tokens,
        "scratch_per_request_bytes": case.demand.slot_bytes * case.demand.scratch_tokens,
        "scratch_charged_bytes": point.scratch_charged_bytes,
    }
    if point.allocated:
        allocation = case.allocation(point)
        exact["padding_bytes"] = allocation.padding_bytes
        exact["request_table_bytes"] = allocation.request_table_bytes
        extras = {"side_state_bytes": allocation.side_state_bytes, "ring_bytes": allocation.ring_bytes}
        if case.cell.window_bytes:
            extras |= {"window_cell_bytes": case.cell.window_bytes, "window_tokens": point.window_tokens}
        exact.update({name: value for name, value in extras.items() if value})
    found = {name: Interval.exact(value) for name, value in (exact | _parameters(case)).items()}
    found["rest_bytes"] = _rest_bytes(case.start.rest)
    if beside is not None:
        found["estimated_graphs_bytes"] = beside.graphs.bytes
        found["estimated_activations_bytes"] = beside.activations.bytes
        found["estimated_left_outside_bytes"] = beside.left
    return found
