"""What the figures of a number of ranks rest on, before any change: the free memory of the card, and the fraction."""

from __future__ import annotations

from dataclasses import dataclass

from ..configuration.config import RunConfig
from ..engines.sglang.resolve import settings
from ..errors import SpecbenchError
from ..gpus import RestsOn
from . import wished
from .types import Answer, Size

FRACTION = "mem_fraction_static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Underlying:
    """Of the settings as they are, on so many ranks."""

    free: RestsOn  # the free memory before loading, of the GPU table
    fraction: float
    fraction_source: str  # 'given', 'default of sglang 0.5.16'


def underlying(answer: Answer, size: Size) -> Underlying | None:
    """None: so many ranks are not possible."""
    if size.impossible is not None:
        return None
    try:
        with_wishes = wished.with_wishes(answer.given, answer.wishes)
    except SpecbenchError:  # where the draft of a wished algorithm was told beside the configuration
        with_wishes = answer.given
    return on_ranks(with_wishes, size.tp_size)


def on_ranks(config: RunConfig, tp_size: int) -> Underlying | None:
    """None: so many ranks are not possible."""
    try:
        resolved = settings(wished.on_ranks(config, tp_size))
    except SpecbenchError:
        return None
    parallel = resolved.config.parallel
    return Underlying(
        free=resolved.gpu.rests_on(parallel.tp_size * parallel.pp_size, resolved.version),
        fraction=resolved.fraction,
        fraction_source=resolved.fraction_source,
    )
