"""The two bases of a prediction, as the memory that the solver starts from.

"config": free memory from the GPU table, less the weights that the config's shapes give. "measured": the figures of a
log or of a user. In: resolved settings. Out: `FreeMemory` and what it leaves for the pools. The non-obvious thing: on
the config basis `pre` and `post` share one unknown (what is free before loading), so the interval of the rest is
narrower than two independent intervals would make it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..budget_types import FreeMemory
from ..engines.sglang.demand import Rest, rest, rest_gib, stage_partition
from ..engines.sglang.offsets import known_offsets
from ..engines.sglang.resolve import Settings
from ..errors import ConfigError
from ..gpus import FreeBeforeLoad, known_gpus, load_gpu
from ..ranks import even_stages
from ..specs import ModelSpec
from ..terms import Basis
from ..units import GIB, Interval, format_gib

#: Free before loading with pipeline stages, beside as many tensor-parallel ranks: low, likely, high. On two H200s it
#: was 138.31 GiB with two stages, where two ranks had 138.21 (0.5.16) and 138.28 (0.5.12).
_STAGES_FREE_BYTES = (0, round(0.06 * GIB), round(0.15 * GIB))
_STAGES_FREE_WORDS = "up to 0.15 GiB more with pipeline stages (on two H200s 0.03 to 0.10)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the solver starts from."""

    basis: Basis
    free: FreeMemory
    rest: Rest
    weights: Interval | None  # bytes on a rank; None: not computable from the config
    draft_weights: Interval | None


def start(
    settings: Settings, *, pre_bytes: Interval | None, post_bytes: Interval | None, free: FreeMemory | None
) -> Start:
    """Measured when free memory is given, else from the configuration. ConfigError when neither is possible."""
    weights, draft = _weights(settings), _draft_weights(settings)
    if (pre_bytes is None) != (post_bytes is None):
        raise ConfigError(
            "free memory: only one of the two figures is given.\n"
            "Give both: free before the weights load (--pre-gib) and free when the pools are sized (--post-gib)."
        )
    if free is None and pre_bytes is not None and post_bytes is not None:
        free = FreeMemory(pre=pre_bytes, post=post_bytes, source="given: free before loading, free when sizing")
    if free is not None:
        if free.post.point > free.pre.point:
            raise ConfigError(
                "free memory: more is free after loading than before.\n"
                "Expected --post-gib below --pre-gib: free before the weights load, and free when the pools are sized."
            )
        found = rest(settings, free)
        return Start(basis="measured", free=free, rest=found, weights=weights, draft_weights=draft)
    return _from_config(settings, weights, draft)


def _from_config(settings: Settings, weights: Interval | None, draft: Interval | None) -> Start:
    config = settings.config
    if weights is None or draft is None:
        raise ConfigError(
            f"model: the weights of {settings.target.name} are not predicted ({_why_no_weights(settings)}).\n"
            "Give the free memory that a log shows: --pre-gib and --post-gib."
        )
    ranks = config.parallel.tp_size * config.parallel.pp_size
    known, emulation = settings.gpu.free_before_load(ranks, settings.version), settings.emulation
    offsets = known_offsets(settings.version, settings.algorithm, config.parallel.tp_size, config.gpu.name)
    counted = _loaded(settings, weights, draft)

    def at(logged: int, loaded: int, pre_offset: int, post_offset: int) -> tuple[int, int]:
        return logged + pre_offset, logged - loaded - offsets.beside - post_offset

    before = known.bytes if emulation is None else _emulated(settings, known.bytes, ranks)
    source = known.source
    if config.parallel.pp_size > 1:
        before = Interval(before.low, before.point + _STAGES_FREE_BYTES[1], before.high + _STAGES_FREE_BYTES[2])
        source = f"{source}, and {_STAGES_FREE_WORDS}"
    pre_point, post_point = at(before.point, counted.point, offsets.pre.point, offsets.post.point)
    # Least is left with little free, heavy weights, a high `pre` (the slack is a share of it), a low `post`.
    pre_low, post_low = at(before.low, counted.high, offsets.pre.high, offsets.post.high)
    pre_high, post_high = at(before.high, counted.low, offsets.pre.low, offsets.post.low)
    # By itself `pre` is least with little free and a low offset: not the `pre` with which least is left.
    pres = (before.low + offsets.pre.low, pre_point, before.high + offsets.pre.high)
    posts = (post_low, post_point, post_high)
    return Start(
        basis="config",
        free=FreeMemory(
            pre=Interval(min(pres), pre_point, max(pres)),
            post=Interval(min(posts), post_point, max(posts)),
            source=f"GPU table, {settings.gpu.name}{_counted(settings, ranks)}: {source}"
            + (f"; {emulation.banner}: {emulation.arithmetic}" if emulation else ""),
            rests_on=settings.gpu.rests_on(ranks, settings.version),
            communication=known.communication,
            communication_elsewhere=_elsewhere(settings, ranks, known),
        ),
        rest=Rest(
            low_gib=rest_gib(settings, pre_low, post_low),
            point_gib=rest_gib(settings, pre_point, post_point),
            high_gib=rest_gib(settings, pre_high, post_high),
        ),
        weights=weights,
        draft_weights=draft,
    )


def _counted(settings: Settings, ranks: int) -> str:
    """', 4 GPUs'; a host is no GPU, and one for all ranks."""
    return "" if settings.gpu.is_host else f", {ranks} GPU{'s' if ranks > 1 else ''}"


def _elsewhere(settings: Settings, ranks: int, known: FreeBeforeLoad) -> str:
    """'not measured on 2 × RTX PRO 6000; on 2 × H200 it was 1.07 GiB per card (0.5.16)', and of several GPUs
    what that card's free memory rests on instead. Empty where it was measured."""
    if known.communication is not None:
        return ""
    if settings.gpu.is_host:
        return "not measured on a host"
    found = [f"not measured on {ranks} × {settings.gpu.words}"]
    for card in map(load_gpu, known_gpus()):
        measured = card.measured_communication(ranks, settings.version)
        if measured is not None:
            number, row, taken = measured
            versions = f" ({', '.join(sorted(row.versions))})" if row.versions else ""
            each = " per card" if number > 1 else ""
            found.append(f"on {number} × {card.words} it was {format_gib(taken.bytes.point)}{each}{versions}")
    return "; ".join(found) + (f". The free memory before loading is {known.source}" if ranks > 1 else "")


def loading_beside(settings: Settings, logged_pre: int, logged_post: int) -> int | None:
    """What loading took beyond the weights that the config's shapes give, by printed figures; None: no such weights."""
    weights, draft = _weights(settings), _draft_weights(settings)
    if weights is None or draft is None:
        return None
    return logged_pre - logged_post - _loaded(settings, weights, draft).point


def _loaded(settings: Settings, weights: Interval, draft: Interval) -> Interval:
    """Weights on a rank when the pools are sized: up to 0.5.13 the draft comes after them."""
    return weights.plus(draft) if settings.rule.draft_loads_first else weights


def _emulated(settings: Settings, card: Interval, ranks: int) -> Interval:
    """Of an emulated card the budget is what was chosen; unsure is only how much the real card has free.

    To the result the real card's offsets are added, as to any figure that it logs. The budget has the emulated card's,
    so their difference is in it already.
    """
    name, tp = settings.config.gpu.name, settings.config.parallel.tp_size
    host = load_gpu(name).free_before_load(ranks, settings.version).bytes
    own, real = (known_offsets(settings.version, settings.algorithm, tp, one) for one in (settings.gpu.name, name))
    point = card.point + own.pre.point - real.pre.point
    share = card.point / host.point
    return Interval(
        point - round((host.point - host.low) * share),
        point,
        point + round((host.high - host.point) * share),
    )


def _weights(settings: Settings) -> Interval | None:
    return _weights_of(settings, settings.target)


def _draft_weights(settings: Settings) -> Interval | None:
    """Zero without a draft model; None when the draft's config does not tell."""
    if settings.draft is None:
        return Interval.exact(0)
    return _weights_of(settings, settings.draft)


def _weights_of(settings: Settings, model: ModelSpec) -> Interval | None:
    parallel = settings.config.parallel
    stages: tuple[int, ...] = ()
    if parallel.pp_size > 1 and model is settings.target:
        stages = stage_partition(settings) or even_stages(len(model.layers), parallel.pp_size)
    fp4 = load_gpu(settings.config.gpu.name).is_blackwell  # the card that is there, whatever it emulates
    return model.weights_bytes(parallel.tp_size, attention_tp=settings.attention_tp, stages=stages, fp4=fp4)


def _why_no_weights(settings: Settings) -> str:
    draft = settings.draft.why_no_weights if settings.draft is not None else ""
    why = settings.target.why_no_weights or draft
    return why or "data-parallel attention splits them in a way that is not modelled for this family"
