"""From the free memory that the log prints to the free memory that the solver read. Data: `data/offsets.yaml`.

In: printed figures with their rounding, and what ran. Out: intervals, no wider than a piece of the driver's where the
offsets are known from several runs. The non-obvious thing: a fitted offset also absorbs the rounding of the figures it
was fitted to, so it is that narrow only for logs that print the same figures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...budget_types import FreeMemory
from ...configuration import yamltext
from ...paths import DATA
from ...speculative import canonical
from ...units import GIB, MIB, Interval, Quantity, counted, format_gib, gib_text_to_quantity
from ...versions import version_key

#: The driver hands out memory in such pieces: what another start of the same configuration had free differs by up to
#: half of one.
_GRANULE_BYTES = 2 * MIB
#: Rounding of a figure with two decimals: what a fitted offset may have absorbed.
_ROUNDING_BYTES = gib_text_to_quantity("0.00").resolution_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Bytes to add to the printed `pre` and to take from the printed `post`."""

    pre: Interval
    post: Interval
    beside: int  # what loading takes beyond the weights that the config's shapes give, for a start from the shapes
    source: str


def measured_free(version: str, algorithm: str, tp: int, gpu: str, pre: Quantity, post: Quantity) -> FreeMemory:
    """The solver's free memory behind a log's figures (smallest rank). A point where the offsets are known."""
    row = _row(version, algorithm, tp, gpu, pre, post)
    if row is not None and row["exact"] and _same_figures(row, pre, post):
        return FreeMemory(
            pre=_within_a_granule(pre.bytes + _bytes(row["pre"])),
            post=_within_a_granule(post.bytes - _bytes(row["post"])),
            source=f"logged {format_gib(pre.bytes)} and {format_gib(post.bytes)}, known offsets: {_rests(row)}",
        )
    offsets = known_offsets(version, algorithm, tp, gpu, pre=pre, post=post)
    return FreeMemory(
        pre=_spread(pre.bytes, pre.resolution_bytes, offsets.pre, +1),
        post=_spread(post.bytes, post.resolution_bytes, offsets.post, -1),
        source=f"logged {format_gib(pre.bytes)} and {format_gib(post.bytes)}, offsets: {offsets.source}",
    )


def known_offsets(
    version: str, algorithm: str, tp: int, gpu: str, *, pre: Quantity | None = None, post: Quantity | None = None
) -> Offsets:
    """The offsets as intervals. `pre`, `post`: printed figures, to prefer the row that was fitted to them."""
    row = _row(version, algorithm, tp, gpu, pre, post)
    unknown = _table()["unknown"]
    generic = unknown["one_gpu" if tp == 1 else "several"]
    wide_pre, wide_post = _interval(generic["pre"]), _interval(generic["post"])
    if row is None:
        return Offsets(pre=wide_pre, post=wide_post, beside=_bytes(generic["beside"]), source=unknown["source"])
    at_pre, at_post, beside = _bytes(row["pre"]), _bytes(row["post"]), _bytes(row["beside"])
    if row["exact"] and (pre is None or post is None or _same_load(row, pre, post)):
        return Offsets(pre=_rounded(at_pre), post=_rounded(at_post), beside=beside, source=_rests(row))
    return Offsets(pre=_around(wide_pre, at_pre), post=_around(wide_post, at_post), beside=beside, source=_rests(row))


def _row(
    version: str, algorithm: str, tp: int, gpu: str, pre: Quantity | None, post: Quantity | None
) -> Mapping[str, Any] | None:
    """The fitting row; the one with the same figures first."""
    fitting = [
        row
        for row in _table()["rows"]
        if row["tp"] == tp
        and row["gpu"] == gpu
        and canonical(algorithm) in row["algorithms"]
        and version_key(version) in map(version_key, row["versions"])
    ]
    if pre is not None and post is not None:
        fitting.sort(key=lambda row: not _same_figures(row, pre, post))
    return fitting[0] if fitting else None


def _same_figures(row: Mapping[str, Any], pre: Quantity, post: Quantity) -> bool:
    logged = row["logged"]
    return (gib_text_to_quantity(logged["pre"]), gib_text_to_quantity(logged["post"])) == (pre, post)


def _same_load(row: Mapping[str, Any], pre: Quantity, post: Quantity) -> bool:
    """Whether as much was loaded as in the starts that the row was fitted to: what is read late differs by model."""
    fitted, rounded = row["logged"], pre.resolution_bytes + post.resolution_bytes
    as_fitted = gib_text_to_quantity(fitted["pre"]).bytes - gib_text_to_quantity(fitted["post"]).bytes
    return abs(pre.bytes - post.bytes - as_fitted) <= 2 * rounded


def _rests(row: Mapping[str, Any]) -> str:
    return f"{counted(row['runs'], 'run')} at {counted(row['fractions'], 'fraction')} ({row['source']})"


def _spread(figure: int, rounding: int, offset: Interval, sign: int) -> Interval:
    low, high = (offset.low, offset.high) if sign > 0 else (offset.high, offset.low)
    return Interval(figure + sign * low - rounding, figure + sign * offset.point, figure + sign * high + rounding)


def _within_a_granule(size: int) -> Interval:
    return Interval(size - _GRANULE_BYTES // 2, size, size + _GRANULE_BYTES // 2)


def _rounded(offset: int) -> Interval:
    return Interval(offset - _ROUNDING_BYTES, offset, offset + _ROUNDING_BYTES)


def _around(wide: Interval, point: int) -> Interval:
    return Interval(min(wide.low, point), point, max(wide.high, point))


def _bytes(offset_gib: float) -> int:
    return round(offset_gib * GIB)


def _interval(row: Mapping[str, float]) -> Interval:
    return Interval(_bytes(row["low"]), _bytes(row["point"]), _bytes(row["high"]))


@functools.cache
def _table() -> Mapping[str, Any]:
    return dict(yamltext.written((DATA / "offsets.yaml").read_text(encoding="utf-8")))
