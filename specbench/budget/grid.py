"""Predictions over a table of configurations, as arrays: `predict_grid(config, axes)` -> `Grid`.

In: a configuration and what varies, e.g. `{"memory.max_running_requests": range(1, 65), "parallel.tp_size": [1, 2]}`.
Out: the figures of `predict` for every point. The non-obvious thing is what makes it fast: it is `predict`'s own code
that runs, once for all points that differ in numbers only (`axes.NUMERIC`, see `lanes`); what names a thing, a version
or a type or a number of ranks, is resolved once for each combination. So a few numbers with a million points take
seconds, and a thousand combinations less than one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import lanes
from ..budget_types import FreeMemory
from ..configuration.config import RunConfig
from ..engines.sglang.sizing.span import Solved, ends
from ..errors import ConfigError, SpecbenchError
from ..gpus import GpuSpec
from ..specs import ModelSpec
from ..units import Interval
from . import limits
from .axes import Points, replaced, table_of
from .case import Case
from .grid_types import FIGURES, FREE, REFUSALS, VERDICTS, Grid, Words
from .predict import predict, refused_argument, rest_bytes, solved
from .words import known_fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 32_768  # rows: their columns stay in a processor's cache
_UNKNOWN = -(2**63)


def predict_grid(
    config: RunConfig,
    axes: Mapping[str | tuple[str, ...], Iterable[Any]],
    *,
    model: ModelSpec | None = None,
    gpu: GpuSpec | None = None,
    free: FreeMemory | None = None,
    passed_fraction: float | None = None,
) -> Grid:
    """`predict` for the product of all axes: `SECTION.KEY` -> values.

    Keys that vary together are one axis: `("parallel.tp_size", "gpu.count"): [(1, 1), (2, 2)]`; with all keys in one
    it is a table, a configuration per row. None is "not given", as in a params file. `pre_bytes` and `post_bytes` are
    keys too, whose values are free memory as measured. A point that cannot be sized (heads that do not divide over
    the ranks) is masked, and `not_predicted` says why; ConfigError (two lines) for an axis that is wrong, or when no
    point can be sized. Other arguments as of `predict`.
    """
    table = table_of(config, axes)
    shape = tuple(len(rows) for rows in table.values())
    points = Points(config, table, shape)
    sizing = _Sizing(model, gpu, free, passed_fraction)
    found = _Found(math.prod(shape))
    for changes, rows, columns in points.groups():
        base = replaced(config, changes)
        for begin in range(0, len(rows), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            block = {key: column[part] for key, column in columns.items()}
            _solve(base, {key: changes[key] for key in FREE if key in changes}, block, rows[part], sizing, found)
    _explain(found, points, sizing)
    return Grid(config=config, axes=table, shape=shape, **found.arrays(shape))


@dataclass(frozen=True, slots=True)
class _Sizing:
    """What `predict` is given beside the configuration."""

    model: ModelSpec | None
    gpu: GpuSpec | None
    free: FreeMemory | None
    passed_fraction: float | None

    def keywords(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"free": self.free, "passed_fraction": self.passed_fraction}
        if FREE[0] in columns:
            found |= {key: Interval.exact(columns[key]) for key in FREE} | {"free": None}
        return found


def _solve(
    config: RunConfig,
    free: Mapping[str, Any],
    columns: Mapping[str, NDArray[Any]],
    rows: NDArray[np.int64],
    sizing: _Sizing,
    found: _Found,
) -> None:
    """One block of rows, into `found`."""
    import numpy as np

    def code(given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            case = solved(
                _with(config, given), sizing.model, sizing.gpu, **sizing.keywords({**free, **given}), over=ends
            )
            refusal = refused_argument(case)
        except SpecbenchError as error:
            return {"not_predicted": error.first_line}
        return _of_case(case) if refusal is None else _REFUSED | {"refused_key": refusal.key}

    if not columns:  # nothing varies: one answer
        found.store(rows, code({}))
        return
    try:
        for part, answer in lanes.run(columns, np.arange(len(rows)), code):
            found.store(rows[part], answer)
    except OverflowError:
        raise ConfigError(
            f"axes: {', '.join(columns)}: a figure of some point is beyond 64 bits.\n"
            "Expected values that a server could have: 'predict' takes single ones of any size."
        ) from None


_REFUSED = {"verdict": "refused", "verdict_low": "refused", "verdict_high": "refused", "refusal": "arguments"}


def _with(config: RunConfig, columns: Mapping[str, Any]) -> RunConfig:
    """With figures of many points under its keys, which no validation looks at again."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in columns.items():
        if key not in FREE:
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=values) for name, values in sections.items()}
    )


def _of_case(case: Case) -> dict[str, Any]:
    """What `predict` says of it."""
    point, low, high = case.span.all
    pools, verdict = point.pools, case.verdict(point)
    stateful = case.slot.layers > 0
    return {
        "verdict": verdict,
        "verdict_low": case.verdict(low),
        "verdict_high": case.verdict(high),
        "refusal": pools.refusal or ("out_of_memory" if verdict == "refused" else None),
        "known_fault": known_fault(case, verdict) is not None,
        "state_slots": limits.state_slots(pools) if stateful else None,
        "slots_per_request": case.settings.slots_per_request if stateful else None,
        "running_requests": limits.running_requests(pools),
        "kv_tokens": limits.kv_tokens(pools),
        "context_len": case.demand.context_len,
        "max_input_tokens": limits.max_input_tokens(case.demand)(pools),
        "scratch_charged_bytes": pools.scratch_charged_bytes,
        "rest_bytes": rest_bytes(point.rest_gib),
        "slack_bytes": _slack(case, point),
    }


def _slack(case: Case, point: Solved) -> int | None:
    draft = case.start.draft_weights
    if point.pools.refusal is not None or draft is None or case.settings.gpu.is_host:
        return None
    return case.slack_bytes(point, case.start.free.pre.point, draft.point)


class _Found:
    """What is known of every row so far."""

    def __init__(self, total: int) -> None:
        import numpy as np

        self.figures = {name: np.full(total, _UNKNOWN, np.int64) for name in FIGURES}
        names = ("verdict", "verdict_low", "verdict_high", "refusal", "refused_key")
        self.codes = {name: np.full(total, -1, np.int8) for name in names}
        self.known_fault = np.zeros(total, np.bool_)
        self.without: list[tuple[NDArray[np.int64], str]] = []  # rows that could not be sized, and why
        self.keys: list[str] = []
        self.not_predicted: dict[str, int] = {}

    def store(self, rows: NDArray[np.int64], answer: Mapping[str, Any]) -> None:
        if "not_predicted" in answer:
            self.without.append((rows, answer["not_predicted"]))
            return
        for name, value in answer.items():
            if name == "known_fault":
                self.known_fault[rows] = value
            elif value is None:
                continue
            elif name in self.codes:
                if name == "refused_key" and value not in self.keys:
                    self.keys.append(value)
                self.codes[name][rows] = self._names(name).index(value)
            else:
                self.figures[name][rows] = value

    def _names(self, name: str) -> Sequence[str]:
        return VERDICTS if name.startswith("verdict") else REFUSALS if name == "refusal" else self.keys

    def arrays(self, shape: tuple[int, ...]) -> dict[str, Any]:
        import numpy as np

        words = {
            name: Words(codes=codes.reshape(shape), names=tuple(self._names(name)))
            for name, codes in self.codes.items()
        }
        figures = {
            name: np.ma.masked_equal(values.reshape(shape), _UNKNOWN, copy=False)
            for name, values in self.figures.items()
        }
        return {
            **words,
            "figures": figures,
            "known_fault": self.known_fault.reshape(shape),
            "not_predicted": self.not_predicted,
        }


def _explain(found: _Found, points: Points, sizing: _Sizing) -> None:
    """Why points could not be sized; a figure that the words lack (`lanes` cannot tell it) is that of the first point.
    The error itself when there is no other point."""
    total = sum(len(rows) for rows, _ in found.without)
    for rows, why in found.without:
        nothing_else = total == math.prod(points.shape)
        if nothing_else or "…" in why:
            changes = points.at(int(rows[0]))
            try:
                predict(replaced(points.config, changes), sizing.model, sizing.gpu, **sizing.keywords(changes))
            except SpecbenchError as error:
                if nothing_else:
                    raise
                why = error.first_line
        found.not_predicted[why] = found.not_predicted.get(why, 0) + len(rows)
