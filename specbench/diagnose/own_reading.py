"""Reads an `OwnStart` from a log: the memory and the ways of the engine that give the pools which it printed.

In: the log, its pools and its arguments. Out: the start, or why nothing can be said on it: too little is logged, or it
is of a class for which nothing proves the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .. import speculative
from ..configuration.config import RunConfig
from ..engines.contract import PoolReport, RankPools, ServerLog
from ..engines.sglang.given import server_args, switched_on
from ..engines.sglang.offsets import measured_free
from ..engines.sglang.sizing import rule_for
from ..engines.sglang.sizing.contract import Rule
from ..engines.sglang.sizing.steps import solve
from ..errors import SpecbenchError
from ..specs import load_model, named_by
from ..units import GIB, MIB, Interval
from ..versions import at_least
from .own_figures import own_figures
from .own_start import LARGEST_PAGE, Auto, OwnStart, Way

_SINCE = "0.5.8"  # before it every slot has scratch of its own: no recorded start to prove that by
_RESERVE_GIB = 100 * MIB / GIB  # kept back for images from 0.5.18, if the model reads them: not known
_AUTO: tuple[Auto, ...] = ("no_buffer", "extra_buffer", None)
#: Arguments by which pools are sized in another way, or hold something besides; with what they are where they do not.
_OTHER_SIZING: Mapping[str, tuple[object, ...]] = {
    "enable_linear_replayssm": (False,),
    "enable_linear_replayssm_spec": (False,),
    "enable_gdn_replayssm_spec": (False,),
    "enable_int8_mamba_checkpoint": (False,),
    "enable_unified_memory": (False,),
    "enable_hierarchical_cache": (False,),
    "enable_hisparse": (False,),
    "speculative_adaptive": (False,),
    "disaggregation_mode": ("null",),
    "dcp_size": (1,),
    "attn_cp_size": (1,),
    "mm_feature_transport": ("default", "auto", "cpu"),
}
_POST_CAPTURE = "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"


def own_start(log: ServerLog, pools: PoolReport, config: RunConfig) -> OwnStart | str:
    """The start, or why nothing is predicted on its figures. `config`: its arguments, with the version known."""
    version = config.engine.sizing or config.engine.version
    try:
        return _start(log, pools, config, version, rule_for(version))
    except SpecbenchError as error:
        return error.first_line


def _start(log: ServerLog, pools: PoolReport, config: RunConfig, version: str, rule: Rule) -> OwnStart | str:
    why = _not_covered(log, config, rule)
    rank = pools.deciding_rank
    target = next((one for one in pools.ranks if one.rank == rank and one.role == "target"), None)
    if why or target is None:
        return why or "no pool of the rank with the least memory is logged"
    pre, post, fraction = pools.least(pools.pre), pools.least(pools.post), pools.requested.get("mem_fraction_static")
    if pre is None or post is None or not isinstance(fraction, float):
        return "free memory before loading, free memory when the pools are sized and the fraction are not all logged"
    context = config.memory.context_length or pools.context_len
    if target.state_slots is None or target.kv_tokens is None or target.available is None or context is None:
        return "state slots, KV tokens, what was free after them and the context length are not all logged"
    figures = {(one.name, one.role): one.value for one in own_figures(log, pools) if one.rank == rank}
    slot, kv = figures.get(("a state slot", "target")), figures.get(("a KV token", "target"))
    if slot is None or kv is None or slot.low <= 0 or kv.low <= 0 or target.kv_tokens <= 0:
        return "the sizes of a state slot and of a KV token are not both logged"
    width = _draft_tokens(config, figures.get(("draft tokens", "target")))
    beside = _beside(config, pools, target, rule, figures.get(("a KV token", "draft")))
    if isinstance(width, str) or isinstance(beside, str):
        return width if isinstance(width, str) else str(beside)
    bound = config.memory.max_total_tokens
    limited = bound is not None and target.kv_tokens + LARGEST_PAGE > bound
    if limited and not _charges_target_alone(config, rule):
        return "max_total_tokens bound the KV pool, so it is not known what a token is charged, draft included"
    free = measured_free(version, "", config.parallel.tp_size, "", pre, post)
    found = OwnStart(
        config=config,
        version=version,
        rule=rule,
        ways=(),
        pre=free.pre,
        fraction=fraction,
        slot=slot,
        row=figures.get(("scratch of a running request", "target")),
        kv=kv,
        draft_kv=beside[0],
        charged=kv if limited else None,
        draft_tokens=width,
        slots=target.state_slots,
        tokens=target.kv_tokens,
        requests=pools.running_requests or 0,
        context_len=context,
        left=beside[1],
        graphs_bytes=sum(one.graphs.bytes for one in pools.ranks if one.rank == rank and one.graphs is not None),
    )
    least = free.post.low / GIB - free.pre.high / GIB * (1 - fraction)
    most = free.post.high / GIB - free.pre.low / GIB * (1 - fraction)
    least -= _RESERVE_GIB if rule.multimodal_reserve else 0.0
    return _with_ways(found, least, most, pools.running_requests)


def _with_ways(start: OwnStart, least_gib: float, most_gib: float, ran: int | None) -> OwnStart | str:
    """`ran`: requests at once, as logged; None: they follow from the pools."""
    config, ways = start.config, dict[tuple[int, bool], Way]()
    for auto in _AUTO:
        way = _way(start, auto, least_gib, most_gib, ran)
        if way is not None:  # two names of one arithmetic are one way
            keeps = way.auto is not None and not config.memory.disable_radix_cache
            ways.setdefault((start.per_request(config, way), keeps), way)
    if not ways:
        return f"the rules of {start.rule.label} do not give the logged pools by these arguments, whatever the model"
    computed = {start.resolved_requests(way) for way in ways.values()}
    if ran is None and len(computed) > 1:
        return "how many requests ran at once is not logged, and depends on the model"
    return replace(start, ways=tuple(ways.values()), requests=max(0, *computed) if ran is None else ran)


def _not_covered(log: ServerLog, config: RunConfig, rule: Rule) -> str:
    """Why a class of starts is left out: nothing proves the arithmetic for it. Empty: it is covered."""
    parallel, args = config.parallel, {**(log.server_args or {}), **server_args(config)}
    if not at_least(rule.version, _SINCE):
        return f"before {_SINCE} every state slot has scratch of its own: not covered"
    if parallel.pp_size > 1 or parallel.dp_size > 1:
        return "pipeline stages and data parallelism are not covered"
    if any("SWA" in (pool.label or "") for pool in log.kv_pools):
        return "sliding-window layers have a pool of their own: not covered"
    if any(pool.k is None for pool in log.kv_pools):
        return "latent attention (one size of KV) is not covered"
    other = next((name for name, off in _OTHER_SIZING.items() if args.get(name) not in (None, *off)), None)
    if other is None and switched_on(config.engine.env, _POST_CAPTURE):
        other = _POST_CAPTURE
    return "" if other is None else f"pools sized with {other} are not covered"


def _charges_target_alone(config: RunConfig, rule: Rule) -> bool:
    """Whether a token is charged what the target's KV takes, whatever the draft."""
    charge = speculative.of(config.speculative).draft_kv
    return charge == "none" or (charge == "eagle" and rule.eagle_draft_kv == "outside")


def _draft_tokens(config: RunConfig, seen: Interval | None) -> int | str:
    """Tokens verified per step, 0 without speculation."""
    if speculative.canonical(config.speculative.algorithm) == "none":
        return 0
    given = config.speculative.num_draft_tokens
    if given is None and seen is None:
        return "the draft tokens are neither given nor told by the scratch"
    if given is not None and seen is not None and seen.point != given:
        return f"{given} draft tokens are given, the scratch is of {seen.point}"
    return given if given is not None else seen.point if seen is not None else 0


def _is_bf16(config: RunConfig, target: RankPools) -> bool:
    """Whether KV has two bytes an element: as asked, and nothing else logged."""
    asked, logged = config.memory.kv_cache_dtype, target.dtype
    own = config.engine.args.get("speculative_draft_kv_cache_dtype")
    return asked in ("auto", "bfloat16", "bf16") and own is None and (logged is None or "float16" in logged)


def _beside(
    config: RunConfig, pools: PoolReport, target: RankPools, rule: Rule, logged_kv: Interval | None
) -> tuple[Interval, Interval] | str:
    """A KV token of the draft, and what is free when all pools and the draft stand."""
    assert target.available is not None and target.kv_tokens is not None
    algorithm = speculative.of(config.speculative)
    free, zero = target.available.interval, Interval.exact(0)
    if algorithm.draft_kv == "none" or not algorithm.keeps_draft_kv:
        return zero, free
    mine = next((one for one in pools.ranks if one.rank == target.rank and one.role == "draft"), None)
    weights = mine.weights.interval if mine is not None and mine.weights is not None else None
    kv = logged_kv
    path = config.speculative.draft_model_path
    if (weights is None or kv is None) and path is not None and (known := named_by(path)) is not None:
        draft, tp = load_model(known), config.parallel.tp_size
        weights = weights or draft.weights_bytes(tp)
        if kv is None and not _is_bf16(config, target):
            return "the draft's KV is not in the log, and neither is its dtype"
        kv = kv or Interval.exact(sum(layer.bytes_per_token(tp, 2) for layer in draft.attention_layers))
    if kv is None or (weights is None and not rule.draft_loads_first):
        return f"the draft's weights and KV, which SGLang {rule.version} loads after the pools, are not in the log"
    taken = Interval(*(target.kv_tokens * size for size in (kv.low, kv.point, kv.high)))
    if not rule.draft_loads_first and weights is not None:
        taken = taken.plus(weights)
    return kv, free.minus(taken)


def _way(
    start: OwnStart,
    auto: Auto,
    least_gib: float,
    most_gib: float,
    ran: int | None,
) -> Way | None:
    """The memory, in slots, with which the solver gives the logged slots; None: none within what is logged."""
    size, blank = start.slot.point, Way(auto=auto, least=0.0, most=0.0, used=0.0)
    if ran is not None and start.resolved_requests(blank) != ran:
        return None
    wanted = start.demand(start.config, blank, size, start.kv.point)
    least, most = least_gib * GIB / start.slot.high, most_gib * GIB / start.slot.low

    def slots(rest: float) -> int:
        return solve(start.rule, wanted, rest * size / GIB).slots

    if slots(most) < start.slots or slots(least) > start.slots:
        return None
    least, most = _step(slots, start.slots, least, most)[1], _step(slots, start.slots + 1, least, most)[0]
    middle = (least + most) / 2
    solved = solve(start.rule, wanted, middle * size / GIB)
    if solved.slots != start.slots:
        return None
    used = middle - solved.left_gib * GIB / size
    if start.charged is None:  # a token is charged what the target's takes at least
        least = max(least, used + start.tokens * start.kv.low / start.slot.high)
        if _charges_target_alone(start.config, start.rule):
            most = min(most, used + (start.tokens + LARGEST_PAGE) * start.kv.high / start.slot.low)
    return Way(auto=auto, least=least, most=most, used=used) if least <= most else None


def _step(slots: Callable[[float], int], count: int, least: float, most: float) -> tuple[float, float]:
    """Within the bounds: the most memory with fewer than `count` slots, and the least with as many."""
    if slots(least) >= count:
        return least, least
    if slots(most) < count:
        return most, most
    below, above = least, most
    for _ in range(60):
        middle = (below + above) / 2
        if slots(middle) >= count:
            above = middle
        else:
            below = middle
    return below, above
