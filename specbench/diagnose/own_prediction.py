"""What changed arguments would give the start of an unknown model: the version's solver on the log's own figures.

In: `OwnStart`, and its arguments with a change. Out: slots, requests, tokens and what stays free, each over everything
that the rounding of the log leaves open, in every way of the engine that fits the log. What a token is charged is what
makes the logged tokens of the memory that state and scratch left: it is taken anew for every amount of memory, so that
the two do not drift apart.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..configuration.config import RunConfig
from ..engines.sglang.sizing.contract import Pools
from ..engines.sglang.sizing.span import span
from ..engines.sglang.sizing.steps import solve
from ..terms import Limit, Verdict
from ..units import GIB, Interval
from .own_start import OwnStart, Way

_INPUT_MARGIN = 6  # tokens of a request that no input has


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrediction:
    """Over the whole of what the log leaves open."""

    verdicts: frozenset[Verdict]
    limits: dict[Limit, Interval]  # of the starts that are not refused
    left: Interval  # bytes free when all pools stand

    @property
    def serves(self) -> bool:
        """Everywhere within the interval."""
        return self.verdicts == {"serves"}


def predicted(start: OwnStart, config: RunConfig) -> OwnPrediction | None:
    """The arguments `config` on the memory of this start; None: refused at every point of the interval."""
    outcomes = [outcome for way in start.ways for outcome in _of_way(start, way, config)]
    standing = [(pools, left, likely) for pools, left, likely in outcomes if pools.refusal is None]
    if not standing:
        return None
    asked = config.memory.max_running_requests
    point = next((one for one in standing if one[2]), standing[0])
    verdicts = {_verdict(pools, left, asked) for pools, left, _ in outcomes}

    def over(values: list[int], at: int) -> Interval:
        return Interval(min(*values, *floor, at), at, max(*values, at))

    # Where some of it is refused, anything below what stands is possible.
    floor = [0] if "refused" in verdicts else []
    page = _page(start, config) - 1  # the log does not tell the page
    tokens = over([pools.tokens or 0 for pools, _, _ in standing], point[0].tokens or 0)
    tokens = Interval(max(0, tokens.low - page), tokens.point, tokens.high)
    context = config.memory.context_length or start.context_len
    return OwnPrediction(
        verdicts=frozenset(verdicts),
        limits={
            "running_requests": over([pools.requests or 0 for pools, _, _ in standing], point[0].requests or 0),
            "state_slots": over([pools.slots for pools, _, _ in standing], point[0].slots),
            "kv_tokens": tokens,
            "max_input_tokens": Interval(
                *(max(0, min(context, value) - _INPUT_MARGIN) for value in (tokens.low, tokens.point, tokens.high))
            ),
        },
        left=Interval(
            min(left.low for _, left, _ in standing), point[1].point, max(left.high for _, left, _ in standing)
        ),
    )


def likely(start: OwnStart, config: RunConfig) -> Pools | None:
    """Pools at the likely point of the likeliest way: a screen, before everything is looked at. None: refused there."""
    way, size = start.ways[0], start.slot.point
    fraction = config.memory.mem_fraction_static
    more = 0.0 if fraction is None else (fraction - start.fraction) * start.pre.point
    middle = (way.least + way.most) / 2
    cell = _charged(start, way, size, middle, middle)[0]
    rest = (middle * size + more) / GIB
    pools = solve(start.rule, start.demand(config, way, size, cell), rest)
    return pools if pools.refusal is None else None


def _page(start: OwnStart, config: RunConfig) -> int:
    return 1 if config.memory.page_size not in (None, 1) else start.page


def _verdict(pools: Pools, left: Interval, asked: int | None) -> Verdict:
    if pools.refusal is not None or left.low < 0:
        return "refused"
    return "capped" if asked is not None and (pools.requests or 0) < asked else "serves"


def _of_way(start: OwnStart, way: Way, config: RunConfig) -> Iterator[tuple[Pools, Interval, bool]]:
    """Pools, what is left beside them, and whether it is the likely point."""
    fraction = config.memory.mem_fraction_static
    more = 0.0 if fraction is None else fraction - start.fraction
    given = [size * more for size in (start.pre.low, start.pre.high)]  # bytes that a larger fraction adds
    sizes = sorted({start.slot.low, start.slot.point, start.slot.high})
    # In slots, whatever the size of one: a slot is gained at the same place.
    least = min(way.least + min(given) / size for size in sizes)
    most = max(way.most + max(given) / size for size in sizes)
    for size in sizes:
        point = (way.least + way.most) / 2 + sum(given) / 2 / size
        wanted = start.demand(config, way, size, max(1, start.kv.point))
        solved = span(start.rule, wanted, least * size / GIB, point * size / GIB, most * size / GIB)
        ends = [size * end + added for end in (way.least, way.most) for added in given]
        for rest in (*(one.rest_gib for one in solved.all), *(end / GIB for end in ends)):
            before = sorted(min(max((rest * GIB - added) / size, way.least), way.most) for added in given)
            low, high = _charged(start, way, size, before[0], before[-1])
            for cell in sorted({low, (low + high) // 2, high}):
                pools = solve(start.rule, dataclasses.replace(wanted, cell_bytes=cell), rest)
                at = rest == solved.point.rest_gib and size == start.slot.point and cell == (low + high) // 2
                yield pools, _left(start, config, pools), at


def _charged(start: OwnStart, way: Way, slot: int, least: float, most: float) -> tuple[int, int]:
    """Bytes that the solver takes for a token, where so much memory (in slots) was there at the start."""
    if start.charged is not None:
        return start.charged.low, start.charged.high
    low = math.floor((least - way.used) * slot / (start.tokens + start.page))
    high = math.ceil((most - way.used) * slot / start.tokens)
    return max(1, low), max(1, low, high)


def _left(start: OwnStart, config: RunConfig, pools: Pools) -> Interval:
    """What stays beside the pools: what stayed in the log, less what more slots, scratch rows and tokens take."""
    if pools.tokens is None or pools.requests is None:
        return Interval.exact(0)
    tokens = Interval(
        start.kv.low + start.draft_kv.low, start.kv.point + start.draft_kv.point, start.kv.high + start.draft_kv.high
    )
    taken = [_times(pools.slots - start.slots, start.slot), _times(pools.tokens - start.tokens, tokens)]
    if start.draft_tokens:
        width = config.speculative.num_draft_tokens or start.draft_tokens
        # a row is at most its tokens' whole states, and at most in proportion to the logged one
        row = start.row or Interval(0, start.slot.point * start.draft_tokens, start.slot.high * start.draft_tokens)
        after = Interval(*(size * width // start.draft_tokens for size in (row.low, row.point, row.high)))
        rows, now = pools.requests + 1, start.requests + 1
        if width == start.draft_tokens:
            taken.append(_times(rows - now, row))
        else:
            taken.append(
                Interval(
                    rows * after.low - now * row.high,
                    rows * after.point - now * row.point,
                    rows * after.high - now * row.low,
                )
            )
    context = config.memory.context_length or start.context_len
    table = 4 * ((pools.requests + 1) * context - (start.requests + 1) * start.context_len)
    return start.left.minus(Interval.total(taken).shifted(table))


def _times(count: int, size: Interval) -> Interval:
    ends = sorted((count * size.low, count * size.high))
    return Interval(ends[0], count * size.point, ends[1])
