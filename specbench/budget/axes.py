"""The axes of a table of configurations: checked, and their points grouped by what has to be resolved by itself.

In: a configuration and what varies. Out: `table_of` (keys -> rows of values) and `Points`, whose groups differ in
numbers only: their arrays of numbers are what `lanes` calculates with. ConfigError (two lines) for a key, a value or a
size that cannot be.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..configuration.config import RunConfig
from ..configuration.explain import problem_text, shown
from ..errors import ConfigError
from .grid_types import FREE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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

_MOST_POINTS = 20_000_000
_MOST_COMBINATIONS = 20_000


def table_of(
    config: RunConfig, axes: Mapping[str | tuple[str, ...], Iterable[Any]]
) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Keys that vary together -> their values, row by row; checked: keys, values, and how many there are."""
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
            replaced(config, {key: values[int(error.errors()[0]["loc"][0])]})
            raise
    else:
        for value in _distinct(values):
            replaced(config, {key: value})


@functools.cache
def _type_of(key: str) -> TypeAdapter[Any]:
    section, _, name = key.partition(".")
    held = RunConfig.model_fields[section].annotation
    assert isinstance(held, type) and issubclass(held, BaseModel)
    field = held.model_fields[name]
    one: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return TypeAdapter(list[one], config=ConfigDict(strict=True, allow_inf_nan=False))


def replaced(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
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


def _is_number(key: str) -> bool:
    """Whether a key's values are calculated with."""
    return key in NUMERIC or key in FREE


def _numbers(keys: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, NDArray[Any]]:
    """The columns of an axis that are calculated with; 0 stands where none is given, and is not read there."""
    import numpy as np

    columns = {}
    for number, key in enumerate(keys):
        given = [row[number] for row in rows]
        if _is_number(key):
            kind = np.float64 if any(isinstance(value, float) for value in given) else np.int64
            columns[key] = np.array([0 if value is None else value for value in given], kind)
    return columns


def _cases(keys: tuple[str, ...], rows: list[tuple[Any, ...]]) -> tuple[list[int], NDArray[np.int64]]:
    """Of an axis what has to be resolved by itself: the first row of each case, and the case of each row."""
    import numpy as np

    code_of_row = np.zeros(len(rows), np.int64)
    for number, key in enumerate(keys):
        given = [row[number] for row in rows]
        if _is_number(key):
            code_of_row = code_of_row * 2 + np.array([value is None for value in given], np.int64)
        else:
            number_of = {mark: place for place, mark in enumerate(dict.fromkeys(map(_mark, given)))}
            code_of_key = np.array([number_of[_mark(value)] for value in given], np.int64)
            code_of_row = np.unique(code_of_row * len(number_of) + code_of_key, return_inverse=True)[1]
    _, firsts, code_of_row = np.unique(code_of_row, return_index=True, return_inverse=True)
    return firsts.tolist(), code_of_row.reshape(-1)


def _resolved(keys: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """What of a row is not calculated with."""
    pairs = zip(keys, row, strict=True)
    return {key: value for key, value in pairs if value is None or not _is_number(key)}


class Points:
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
            firsts, code_of_row = _cases(keys, rows)
            cases.append([_resolved(keys, rows[first]) for first in firsts])
            codes.append(code_of_row[at])
            columns.update({key: (column, at) for key, column in _numbers(keys, rows).items()})
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
