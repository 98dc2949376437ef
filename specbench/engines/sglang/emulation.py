"""The fraction by which a larger card gives the engine the budget of a smaller one (`gpu.emulate`).

In: both cards, the fraction as on the smaller one, and what is free now when that was measured. Out: `Emulation`. The
engine leaves `post - pre × (1 - f)` for its pools; `post` is `pre` less what loading takes, which is the same on both
cards, so equal pools need equal `f × pre`: the weights and what is read late cancel. The non-obvious thing: `pre` is as
the solver takes it, a little more than the log prints.
"""

from __future__ import annotations

from ...budget_types import Emulation
from ...configuration.config import RunConfig
from ...errors import ConfigError
from ...gpus import GpuSpec, known_gpus, load_gpu
from ...units import MIB, counted, format_gib
from .offsets import known_offsets
from .sizing.contract import Rule
from .sizing.fraction import card_defaults

#: 1e-8 of an H200 is 1.5 kB, far below a token.
_DIGITS = 8
#: What an idle card may show less as free and still be idle.
_IDLE_SLOP_BYTES = 64 * MIB
#: By so much NVML's figure of an idle card differs from one hour to the next, without a trace in what the engine finds.
_SAME_CARD_BYTES = 16 * MIB


def emulation(
    config: RunConfig,
    rule: Rule,
    version: str,
    *,
    host: GpuSpec,
    card: GpuSpec,
    asked: tuple[float, str],
    free_now_bytes: int | None = None,
) -> Emulation:
    """`asked`: the fraction as on `card`, and where it comes from. `free_now_bytes`: NVML's, of the fullest GPU."""
    if host.is_host or card.is_host:
        raise ConfigError(
            "gpu.emulate: a CPU has no memory of its own, so it stands for no card and no card stands for it.\n"
            "Leave gpu.emulate out."
        )
    if host.name == card.name:
        raise ConfigError(
            f"gpu.emulate: {card.name} is the card of gpu.name itself, so there is nothing to emulate.\n"
            "Leave gpu.emulate out, or name a smaller card."
        )
    ranks = config.parallel.tp_size * config.parallel.pp_size
    algorithm, tp = config.speculative.algorithm, config.parallel.tp_size
    # A measured offset belongs to the figure that its own card logs: the smaller card does not get the larger one's.
    own, real_own = (known_offsets(version, algorithm, tp, gpu.name).pre.point for gpu in (card, host))
    small = card.free_before_load(ranks, version).bytes.point + own
    logged, source = _host_free(host, ranks, version, free_now_bytes)
    real = logged + real_own
    if small > real and card.total_bytes <= host.total_bytes:
        raise ConfigError(
            f"gpu.emulate: {card.name} has {format_gib(small)} free before loading, of gpu.name, {host.name}, only "
            f"{format_gib(real)} are left ({source}).\n"
            "End what else holds its memory, or emulate a smaller card."
        )
    if small > real:
        raise ConfigError(
            f"gpu.emulate: {card.name} has more memory ({card.total_mib:,} MiB) than gpu.name, {host.name} "
            f"({host.total_mib:,} MiB).\n"
            f"A card can stand for a smaller one only: gpu.name: {card.name} without gpu.emulate predicts it."
        )
    fraction, fraction_source = asked
    passed = round(fraction * small / real, _DIGITS)
    if not 0.0 < passed < 1.0:
        raise ConfigError(
            f"gpu.emulate: a fraction of {fraction:.10g} ({fraction_source}) of {card.name} would be passed as "
            f"{passed:g}, rounded to {_DIGITS} digits; the engine expects one between 0 and 1.\n"
            "Set memory.mem_fraction_static to what a server on that card is given, e.g. 0.75."
        )
    return Emulation(
        card=card.words,
        host=host.words,
        ranks=ranks,
        asked=fraction,
        asked_source=fraction_source,
        passed=passed,
        card_free_bytes=small,
        host_free_bytes=real,
        host_source=source,
        not_emulated=_not_emulated(config, rule, host, card, room_bytes=real - small),
    )


def in_use(host: GpuSpec, free_now_bytes: int) -> int:
    """Bytes that others hold on an otherwise idle card; 0 when it is idle, or when nothing is known of this card."""
    missing = 0 if host.idle_free_bytes is None else host.idle_free_bytes - free_now_bytes
    return missing if missing > _IDLE_SLOP_BYTES else 0


def _host_free(host: GpuSpec, ranks: int, version: str, now: int | None) -> tuple[int, str]:
    """Free before loading as the engine will log it: the table's, moved by what this very card has more or less."""
    known = host.free_before_load(ranks, version)
    table = f"GPU table, {host.name}: {known.source}"
    if now is None or in_use(host, now):
        return known.bytes.point, table
    if host.idle_free_bytes is not None:
        moved = now - host.idle_free_bytes
        if abs(moved) <= _SAME_CARD_BYTES:
            return known.bytes.point, f"{table}; {format_gib(now)} free by NVML now, as on that card"
        words = f"{format_gib(now)} free by NVML now, {moved / MIB:+z.0f} MiB against the GPU table's card; {table}"
        return known.bytes.point + moved, words
    own, words = _own(host, ranks, version)
    return now - own, f"{format_gib(now)} free by NVML now, less {format_gib(own)} that {words}"


def _own(host: GpuSpec, ranks: int, version: str) -> tuple[int, str]:
    """By how much NVML shows more as free than the engine logs before it loads: its context, and what the distributed
    init takes. Of a card that was measured, the one that takes most. ConfigError when none was."""
    cards = [(name, load_gpu(name).taken_before_load(ranks, version)) for name in known_gpus()]
    measured = [(*taken, name) for name, taken in cards if taken is not None]
    if not measured:
        gpus = "1 GPU" if ranks == 1 else f"1 to {ranks} GPUs"
        raise ConfigError(
            f"gpu.emulate: what the engine's processes take of {host.name} before they load is not known: no card of "
            f"data/gpus.yaml has both idle_free_mib and free_gib for {gpus}.\n"
            f"Add them to the row of {host.name}, or leave gpu.emulate out."
        )
    own, number, name = max(measured)
    gpus = counted(number, "GPU")
    return own, f"the engine's processes take, as measured with {gpus} on {load_gpu(name).words}"


def _not_emulated(config: RunConfig, rule: Rule, host: GpuSpec, card: GpuSpec, room_bytes: int) -> tuple[str, ...]:
    """`room_bytes`: what of `host` is free before loading beyond what is of `card`; totals differ by something else."""
    more = format_gib(room_bytes)
    room = f"room outside the budget: {host.words} has {more} more for graphs and activations"
    found = [
        f"{room}, so that {card.words} can run out of memory where this does not",
        f"speed: every time is that of {host.words}",
    ]
    tp = config.parallel.tp_size
    names = ("chunked_prefill_size", "cuda_graph_max_bs")
    given = (config.memory.chunked_prefill_size, config.memory.cuda_graph_max_bs)
    defaults = zip(
        names, given, card_defaults(card.total_mib, tp, rule), card_defaults(host.total_mib, tp, rule), strict=True
    )
    for name, stated, small, large in defaults:
        if stated is None and small != large:
            found.append(f"the default of {name}: {large:,} by the size of {host.words}, {small:,} on {card.words}")
    return tuple(found)
