"""Predictions over a table of configurations, as arrays: `predict_grid(config, axes)` -> `Grid`.

In: a configuration and what varies, e.g. `{"memory.max_running_requests": range(1, 65), "parallel.tp_size": [1, 2]}`.
Out: the figures of `predict` for every point. The non-obvious thing is what makes it fast: it is `predict`'s own code
that runs, once for all points that differ in numbers only (`NUMERIC`, see `lanes`); what names a thing, a version or a
type or a number of ranks, is resolved once for each combination. So a few numbers with a million points take seconds,
and a thousand combinations less than one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from .. import lanes
from ..budget_types import FreeMemory
from ..configuration.config import RunConfig
from ..configuration.explain import problem_text, shown
from ..engines.sglang.sizing.contract import Refusal
from ..engines.sglang.sizing.span import Solved, ends
from ..errors import ConfigError, SpecbenchError
from ..gpus import GpuSpec
from ..specs import ModelSpec
from ..terms import Verdict
from ..units import Interval
from . import limits
from .case import Case
from .predict import predict, refused_argument, rest_bytes, solved
from .words import known_fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Figures = np.ma.MaskedArray[Any, Any]

#: Keys whose values are calculated with: any number of values costs next to nothing.
NUMERIC: frozenset[str] = frozenset(
    {
        "memory.max_running_requests",
        "memory.max_mamba_cache_size",
        "memory.max_total_tokens",
        "memory.mamba_full_memory_ratio",
        "memory.mem_fraction_static",
        "memory.context_length",
        "speculative.num_draft_tokens",
    }
)
#: Free memory of a rank, bytes, as `predict` takes it: both or none, and no key of a configuration.
FREE = ("pre_bytes", "post_bytes")

#: What a point has in figures. Counts and bytes are those of `predict`: per rank, at the likely free memory.
FIGURES: dict[str, str] = {
    "state_slots": "slots of recurrent state",
    "slots_per_request": "state slots that one running request needs",
    "running_requests": "requests that run at once; 0 when refused",
    "kv_tokens": "tokens in the KV pool",
    "context_len": "tokens of context, input and output together",
    "max_input_tokens": "an input must be shorter than this",
    "scratch_charged_bytes": "speculative scratch, as the engine charges it",
    "rest_bytes": "left for the pools: state, scratch and KV",
    "slack_bytes": "what is left outside when all pools stand",
}
VERDICTS: tuple[Verdict, ...] = ("serves", "capped", "refused")
#: Why a point is refused: the solver's reasons, and two that are not the solver's.
REFUSALS: tuple[str, ...] = (*get_args(Refusal), "arguments", "out_of_memory")
#: Whether a point serves what is asked: at every free memory that is possible (its two ends and the likely one looked
#: at), at the likely one, at the most alone, or at none of them.
CERTAINTIES = ("sure", "likely", "unlikely", "no")

_MOST_POINTS = 20_000_000
_MOST_COMBINATIONS = 20_000
_AT_ONCE = 32_768  # rows: their columns stay in a processor's cache
_UNKNOWN = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    """A word for every point, kept as its number."""

    codes: NDArray[np.int8]  # -1: none
    names: tuple[str, ...]

    def are(self, *words: str) -> NDArray[np.bool_]:
        """Where it is one of these."""
        import numpy as np

        return np.isin(self.codes, [self.names.index(word) for word in words])

    def at(self, index: Any) -> str | None:
        """Of one point."""
        code = int(self.codes[index])
        return None if code < 0 else self.names[code]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Every point of a table. Arrays have the shape of the axes; what is not predicted is masked, never 0."""

    config: RunConfig  # what does not vary
    axes: Mapping[tuple[str, ...], Sequence[tuple[Any, ...]]]  # keys that vary together -> their values
    shape: tuple[int, ...]
    figures: Mapping[str, Figures]  # by the names of FIGURES, int64
    verdict: Words  # at the likely free memory; none: not predicted
    verdict_low: Words  # with the least that may be free
    verdict_high: Words  # with the most
    refusal: Words  # of REFUSALS; none: not refused
    refused_key: Words  # the key whose value the engine refuses; none: no argument is refused
    known_fault: NDArray[np.bool_]  # a fault of the engine's version ends such a server at its first full batch
    not_predicted: Mapping[str, int]  # why, in words -> number of points

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, figure: str) -> Figures:
        return self.figures[figure]

    @property
    def certainty(self) -> Words:
        """How sure it is that a point serves what is asked: a word of CERTAINTIES."""
        import numpy as np

        low, likely, high = (one.are("serves") for one in (self.verdict_low, self.verdict, self.verdict_high))
        codes = np.select([low & likely & high, likely, low | high], [0, 1, 2], 3).astype(np.int8)
        return Words(codes=np.where(self.verdict.codes < 0, np.int8(-1), codes), names=CERTAINTIES)

    def values(self, key: str) -> list[Any]:
        """The values of a key that varies, in its axis' order."""
        return [row[keys.index(key)] for keys, rows in self.axes.items() if key in keys for row in rows]

    def axis_of(self, key: str) -> int:
        """The number of the axis along which a key varies. KeyError: it does not."""
        return next(number for number, keys in enumerate(self.axes) if key in keys) if self.varies(key) else _no(key)

    def varies(self, key: str) -> bool:
        return any(key in keys for keys in self.axes)

    def changes_at(self, index: Sequence[int]) -> dict[str, Any]:
        """What a point changes of the configuration. `index`: one number per axis."""
        picked = zip(self.axes.items(), index, strict=True)
        return {key: value for (keys, rows), at in picked for key, value in zip(keys, rows[at], strict=True)}

    def config_at(self, index: Sequence[int]) -> RunConfig:
        """The whole configuration of a point, for `predict` (free memory that varies is not part of it)."""
        changes = self.changes_at(index)
        return self.config.replace({key: value for key, value in changes.items() if key not in FREE})


def _no(key: str) -> int:
    raise KeyError(key)


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
    table = _axes(config, axes)
    shape = tuple(len(rows) for rows in table.values())
    points = _Points(config, table, shape)
    sizing = _Sizing(model, gpu, free, passed_fraction)
    found = _Found(math.prod(shape))
    for changes, rows, columns in points.groups():
        base = _replaced(config, changes)
        for begin in range(0, len(rows), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            block = {key: column[part] for key, column in columns.items()}
            _solve(base, {key: changes[key] for key in FREE if key in changes}, block, rows[part], sizing, found)
    _explain(found, points, sizing)
    return Grid(config=config, axes=table, shape=shape, **found.arrays(shape))


# ── axes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _axes(
    config: RunConfig, axes: Mapping[str | tuple[str, ...], Iterable[Any]]
) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Checked: keys, values, and how many there are."""
    table: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for given, values in axes.items():
        keys = (given,) if isinstance(given, str) else given
        if not isinstance(keys, tuple) or not keys or not all(isinstance(key, str) for key in keys):
            raise ConfigError(f"axes: {shown(given)}: no key.\nExpected SECTION.KEY, or a tuple of such.")
        name = ", ".join(keys)
        listed = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(listed, (str, bytes, Mapping)) or not isinstance(listed, Iterable):
            raise ConfigError(f"axes: {name}: got {shown(values)}.\nExpected a list of values, e.g. [4, 8].")
        listed = _all_of(name, listed)
        rows = [(value,) for value in listed] if isinstance(given, str) else [_row(name, keys, one) for one in listed]
        if not rows:
            raise ConfigError(f"axes: {name}: no value.\nGive at least one, or leave the axis out.")
        table[keys] = rows
    together = [key for keys in table for key in keys]
    twice = next((key for key in together if together.count(key) > 1), None)
    if twice is not None:
        raise ConfigError(f"axes: {twice}: in two axes, and it can have one value only.\nKeep one of them.")
    if sum(key in together for key in FREE) == 1:
        raise ConfigError("axes: only one of pre_bytes and post_bytes varies.\nGive both, as one axis: (pre, post).")
    count = math.prod(len(rows) for rows in table.values())
    if count > _MOST_POINTS:
        raise ConfigError(f"axes: {count:,} points.\nExpected at most {_MOST_POINTS:,}: shorten an axis.")
    for keys, rows in table.items():
        for number, key in enumerate(keys):
            _check(config, key, [row[number] for row in rows])
    return table


def _all_of(name: str, values: Iterable[Any]) -> list[Any]:
    """Of a range no more than are counted: it may be longer than memory, or without end."""
    too_many = isinstance(values, range) and bool(values[_MOST_POINTS:])
    found = [] if too_many else list(itertools.islice(values, _MOST_POINTS + 1))
    if too_many or len(found) > _MOST_POINTS:
        raise ConfigError(f"axes: {name}: too many values.\nExpected at most {_MOST_POINTS:,}: shorten the axis.")
    return found


def _row(name: str, keys: tuple[str, ...], row: Any) -> tuple[Any, ...]:
    if isinstance(row, (tuple, list)) and len(row) == len(keys):
        return tuple(row)
    raise ConfigError(f"axes: {name}: got {shown(row)}.\nExpected {len(keys)} values for each point, one per key.")


def _check(config: RunConfig, key: str, values: list[Any]) -> None:
    """By the type of the key, all at once: a million values are not a million configurations."""
    if key in FREE:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**60:
                raise ConfigError(f"axes: {key}: got {shown(value)}.\nExpected bytes of free memory, a whole number.")
    elif key in NUMERIC:
        try:
            _type_of(key).validate_python(values)
        except ValidationError as error:
            _replaced(config, {key: values[int(error.errors()[0]["loc"][0])]})
            raise
    else:
        for value in _distinct(values):
            _replaced(config, {key: value})


@functools.cache
def _type_of(key: str) -> TypeAdapter[Any]:
    section, _, name = key.partition(".")
    held = RunConfig.model_fields[section].annotation
    assert isinstance(held, type) and issubclass(held, BaseModel)
    field = held.model_fields[name]
    one: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return TypeAdapter(list[one], config=ConfigDict(strict=True, allow_inf_nan=False))


def _replaced(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """With the keys changed. ConfigError in two lines for a value that is none."""
    try:
        return config.replace({key: value for key, value in changes.items() if key not in FREE})
    except ValidationError as error:
        raise ConfigError(problem_text(error.errors(include_url=False)[0], RunConfig, "axes")) from None


def _distinct(values: list[Any]) -> list[Any]:
    """Without repetition, in order; 1, 1.0 and True are three."""
    return list({_mark(value): value for value in values}.values())


def _mark(value: Any) -> tuple[Any, Any]:
    """What tells values apart: 1, 1.0 and True are three."""
    return type(value), value if isinstance(value, (str, int, float)) else repr(value)


def _resolved(keys: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """What of a row is not calculated with."""
    pairs = zip(keys, row, strict=True)
    return {key: value for key, value in pairs if value is None or not (key in NUMERIC or key in FREE)}


class _Points:
    """The points of a table, grouped by what has to be resolved by itself."""

    def __init__(
        self, config: RunConfig, table: Mapping[tuple[str, ...], list[tuple[Any, ...]]], shape: tuple[int, ...]
    ) -> None:
        self.config, self.table, self.shape = config, table, shape

    def groups(self) -> Iterator[tuple[dict[str, Any], NDArray[np.int64], dict[str, NDArray[Any]]]]:
        """(what is the same for all, the rows, the columns of what is calculated with), one by one.

        None among numbers is a case of its own: it is not calculated with.
        """
        import numpy as np

        cases: list[list[dict[str, Any]]] = []  # of every axis, what has to be resolved
        codes, columns = [], {}
        places = np.indices(self.shape, dtype=np.int32, sparse=True) if self.shape else []
        for (keys, rows), at in zip(self.table.items(), places, strict=True):
            code_of_row = np.zeros(len(rows), np.int64)
            for number, key in enumerate(keys):
                given = [row[number] for row in rows]
                if key in NUMERIC or key in FREE:
                    kind = np.float64 if any(isinstance(value, float) for value in given) else np.int64
                    columns[key] = (np.array([0 if value is None else value for value in given], kind), at)
                    code_of_row = code_of_row * 2 + np.array([value is None for value in given], np.int64)
                else:
                    number_of = {mark: place for place, mark in enumerate(dict.fromkeys(map(_mark, given)))}
                    code_of_key = np.array([number_of[_mark(value)] for value in given], np.int64)
                    code_of_row = np.unique(code_of_row * len(number_of) + code_of_key, return_inverse=True)[1]
            _, firsts, code_of_row = np.unique(code_of_row, return_index=True, return_inverse=True)
            cases.append([_resolved(keys, rows[first]) for first in firsts.tolist()])
            codes.append(code_of_row.reshape(-1)[at])
        sizes = tuple(len(mine) for mine in cases)
        if math.prod(sizes) > _MOST_COMBINATIONS:
            raise ConfigError(
                f"axes: {math.prod(sizes):,} combinations of what is no number to calculate with.\n"
                f"Expected at most {_MOST_COMBINATIONS:,}; free are {', '.join(sorted(NUMERIC))}."
            )
        total = math.prod(self.shape)
        code = np.zeros(self.shape, np.int64)
        for size, mine_at in zip(sizes, codes, strict=True):
            code = code * size + mine_at
        order = np.argsort(code.reshape(total), kind="stable")
        sorted_codes = code.reshape(total)[order]
        bounds = [0, *(np.flatnonzero(np.diff(sorted_codes)) + 1).tolist(), total]
        for begin, end in itertools.pairwise(bounds):
            rows_here = order[begin:end]
            picked = np.unravel_index(int(sorted_codes[begin]), sizes) if sizes else ()
            changes = {k: v for mine, at in zip(cases, picked, strict=True) for k, v in mine[int(at)].items()}
            yield (
                changes,
                rows_here,
                {
                    key: filled[np.broadcast_to(at, self.shape).reshape(total)[rows_here]]
                    for key, (filled, at) in columns.items()
                    if key not in changes
                },
            )

    def at(self, row: int) -> dict[str, Any]:
        """What a point changes."""
        import numpy as np

        index = np.unravel_index(row, self.shape) if self.shape else ()
        picked = zip(self.table.items(), index, strict=True)
        return {key: value for (keys, rows), at in picked for key, value in zip(keys, rows[int(at)], strict=True)}


# ── solving ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
            return {"not_predicted": str(error).splitlines()[0]}
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


def _explain(found: _Found, points: _Points, sizing: _Sizing) -> None:
    """Why points could not be sized; a figure that the words lack (`lanes` cannot tell it) is that of the first point.
    The error itself when there is no other point."""
    total = sum(len(rows) for rows, _ in found.without)
    for rows, why in found.without:
        nothing_else = total == math.prod(points.shape)
        if nothing_else or "…" in why:
            changes = points.at(int(rows[0]))
            try:
                predict(_replaced(points.config, changes), sizing.model, sizing.gpu, **sizing.keywords(changes))
            except SpecbenchError as error:
                if nothing_else:
                    raise
                why = str(error).splitlines()[0]
        found.not_predicted[why] = found.not_predicted.get(why, 0) + len(rows)
