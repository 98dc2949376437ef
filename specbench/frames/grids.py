"""Frames of grids: one row per point of a table of predictions. Everything in them is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..budget.grid import predict_grid
from ..budget.grid_types import FIGURES, FREE, Grid, Words
from ..budget.predict import predict
from ..configuration.config import RunConfig
from ..errors import ConfigError
from ..units import GIB
from .columns import build_columns

#: Columns that say what a point asks for -> its key.
_KEYS = {
    "version": "engine.version",
    "gpu": "gpu.name",
    "tp_size": "parallel.tp_size",
    "algorithm": "speculative.algorithm",
    "num_draft_tokens": "speculative.num_draft_tokens",
    "asked_requests": "memory.max_running_requests",
    "context_length": "memory.context_length",
    "mem_fraction_static": "memory.mem_fraction_static",
    "mamba_full_memory_ratio": "memory.mamba_full_memory_ratio",
    "max_mamba_cache_size": "memory.max_mamba_cache_size",
}
#: Keys that are drawn along an axis, and keys that follow another: no part of a setting's name.
_UNNAMED = {*FREE, "memory.max_running_requests", "memory.context_length", "gpu.count", "speculative.draft_model_path"}
_WORDS = {"engine.version": "SGLang {}", "parallel.tp_size": "TP{}", "speculative.algorithm": "{}"}


def grid(found: Grid | Mapping[str, Grid]) -> pd.DataFrame:
    """One row per point, the last axis fastest. Several grids are told apart by their names (`setting`)."""
    grids = {"": found} if isinstance(found, Grid) else found
    parts = [_frame(name, one) for name, one in grids.items()]
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def what_fits(config: RunConfig, requests: Sequence[int] | None = None) -> pd.DataFrame:
    """A configuration on 1, 2, 4 and 8 cards, with its speculation and without, over the requests asked.

    The context is the model's own, so that the tokens alone bound it. `requests`: 1 to 32 when not given, or to twice
    as many as are asked.
    """
    asked = config.memory.max_running_requests or 0
    sizes = sorted({1, 2, 4, 8, config.parallel.tp_size})
    axes: dict[str | tuple[str, ...], Iterable[Any]] = {
        ("parallel.tp_size", "gpu.count"): [
            (tp, tp * config.parallel.pp_size * config.parallel.replicas) for tp in sizes
        ],
        "memory.context_length": [None],
        "memory.max_running_requests": requests or range(1, max(32, 2 * asked) + 1),
    }
    grids = {_said("speculative.algorithm", config.speculative.algorithm): predict_grid(config, axes)}
    if config.speculative.algorithm != "none":
        baseline = config.replace({"speculative": {}})
        grids[_said("speculative.algorithm", "none")] = predict_grid(baseline, axes)
    return grid(grids)


def knobs(config: RunConfig) -> dict[str, RunConfig]:
    """The configuration, and what lets it do with less memory, each change by itself; by its name."""
    found: dict[str, dict[str, Any]] = {"as it is": {}}
    asked, width = config.memory.max_running_requests or 0, config.speculative.num_draft_tokens or 0
    if asked > 1:
        found[f"{asked // 2} requests asked"] = {"memory.max_running_requests": asked // 2}
    if config.speculative.algorithm != "none":
        if width > 1 and config.speculative.num_steps is None:
            found[f"{width // 2} draft tokens"] = {"speculative.num_draft_tokens": width // 2}
        found["no speculation"] = {"speculative": {}}
    if config.memory.mamba_ssm_dtype != "bfloat16":
        found["state in bfloat16"] = {"memory.mamba_ssm_dtype": "bfloat16"}
    return {name: config.replace(changes) for name, changes in found.items()}


def gib_curve(settings: Mapping[str, RunConfig], more_gib: Iterable[float] | None = None) -> pd.DataFrame:
    """Each configuration with so many GiB more (or less) free on every card, before loading; columns of `grid`.

    From what the GPU table says is free; of an emulated card, the card that is emulated. `more_gib`: -16 to 32 when not
    given, as far as the weights fit; ConfigError (two lines) for one where they do not.
    """
    steps = None if more_gib is None else [round(one * GIB) for one in more_gib]
    return grid({name: _with_more(config, steps) for name, config in settings.items()})


def _with_more(config: RunConfig, steps: Sequence[int] | None) -> Grid:
    if config.gpu.emulate is not None:
        config = config.replace({"gpu.name": config.gpu.emulate, "gpu.emulate": None})
    free = predict(config).free
    if steps is None:
        steps = [gib * GIB for gib in range(-16, 33) if free.post.point + gib * GIB > 0]
    rows = [(free.pre.point + step, free.post.point + step) for step in steps]
    if min(row[1] for row in rows) <= 0:
        raise ConfigError(
            f"more_gib: {min(steps) / GIB:g} GiB: the weights would not fit, {free.post.point / GIB:.1f} GiB are free "
            "beside them.\nExpected steps that leave some of it."
        )
    return predict_grid(config, {FREE: rows})


def _frame(name: str, found: Grid) -> pd.DataFrame:
    shape = found.shape
    columns: dict[str, Any] = {"setting": _settings(name, found), "bound": ["point"] * found.size}
    for column, key in _KEYS.items():
        columns[column] = _of_key(found, key)
    columns["pre_bytes"] = _of_key(found, FREE[0])
    for figure in FIGURES:
        columns[figure] = _integers(found[figure])
    asked = pd.array(columns["asked_requests"], dtype="Int64")
    serves = found.verdict.are("serves").reshape(-1)
    each = pd.array(columns["kv_tokens"], dtype="Int64") // asked
    each[~serves] = pd.NA
    columns["tokens_per_request"] = each
    words = {"verdict": found.verdict, "certainty": found.certainty, "refusal": found.refusal}
    for column, word in words.items():
        columns[column] = _words(word)
    assert all(len(column) == int(np.prod(shape)) for column in columns.values())
    return build_columns("grid", columns)


def _settings(name: str, found: Grid) -> NDArray[np.object_]:
    """'TP2 · DFLASH' for every point: what varies, without what is drawn along an axis."""
    text = np.full(found.shape, name, dtype=object)
    for number, (keys, rows) in enumerate(found.axes.items()):
        named = [key for key in keys if key not in _UNNAMED]
        if not named:
            continue
        place = [1] * len(found.shape)
        place[number] = len(rows)
        labels = [" · ".join(_said(key, row[keys.index(key)]) for key in named) for row in rows]
        here = np.array(labels, dtype=object).reshape(place)
        text = text + np.where(text == "", "", " · ") + here
    return np.asarray(text, dtype=object).reshape(-1)


def _said(key: str, value: Any) -> str:
    if key in _WORDS:
        return "no speculation" if value == "none" else _WORDS[key].format(value)
    short = key.rpartition(".")[2]
    if isinstance(value, bool):
        return short if value else f"no {short}"
    return (
        f"{short} not given"
        if value is None
        else f"{short} {value:g}"
        if isinstance(value, float)
        else f"{short} {value}"
    )


def _of_key(found: Grid, key: str) -> list[Any] | NDArray[np.object_]:
    """The value of a key at every point."""
    if not found.varies(key):
        section, _, name = key.partition(".")
        value = None if key in FREE else getattr(getattr(found.config, section), name)
        return [value] * found.size
    place = [1] * len(found.shape)
    place[found.axis_of(key)] = -1
    values = np.empty(len(found.values(key)), dtype=object)
    values[:] = found.values(key)
    return np.broadcast_to(values.reshape(place), found.shape).reshape(-1)


def _integers(figures: Any) -> pd.arrays.IntegerArray:
    mask = np.ma.getmaskarray(figures).reshape(-1)
    return pd.arrays.IntegerArray(np.ma.getdata(figures).reshape(-1).astype(np.int64), mask)


def _words(words: Words) -> NDArray[np.object_]:
    names = np.array([*words.names, None], dtype=object)
    return names[words.codes.reshape(-1)]
