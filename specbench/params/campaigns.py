"""Campaigns: a params file with a base and what varies -> a run per point.

A run file has the sections of `RunConfig`. A campaign file has `campaign`, a `base` and a `matrix` and/or `points`:

    campaign: story
    about: One sentence on what is shown.   # on the front page
    base: story/tp1-4.yaml              # a run file beside this one, or the sections themselves
    set: {parallel.tp_size: 2}          # laid over every point's base, before what the point says
    matrix:                             # the product of all lists
      memory.max_running_requests: [4, 8]
    points:                             # further single points; `params` replaces the base
      - {name: noradix, memory.disable_radix_cache: true}
      - {params: recordings/nospec_r8.yaml}

or the same as another campaign, with what is said here laid over its `set`:

    campaign: story-tp4
    like: story.yaml
    set: {parallel.tp_size: 4}
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..configuration.config import RunConfig
from ..configuration.explain import shown
from ..errors import ConfigError
from ..paths import exists, resolve
from .overlay import Overrides, laid_over, overridden, refuse_loss
from .sections import build, read, reject_unknown

_MOST_POINTS = 1_000  # a campaign starts a server for each
_CAMPAIGN_KEYS = ("campaign", "about", "like", "base", "set", "matrix", "points")
#: What a campaign that is like another has of it.
_LIKE_KEYS = ("base", "matrix", "points")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A named list of runs, each valid by itself."""

    name: str
    runs: tuple[RunConfig, ...]
    source: Path
    about: str = ""  # what a reader of the report should know; paragraphs are separated by empty lines


def load_campaign(path: str | Path, overrides: Overrides = ()) -> Campaign:
    """The campaign of a params file (overrides apply to every point); a single run is a campaign of one."""
    file = resolve(path, kind="params file")
    data = read(file)
    if "campaign" not in data:
        run = build(overridden(data, overrides, file.name), file.name)
        return Campaign(name=run.name, runs=(run,), source=file)
    reject_unknown(data, _CAMPAIGN_KEYS, file.name)
    name, about = _name_and_about(data, file)
    common = _set(data, file)
    source, stated = file, data  # where base and points stand
    if data.get("like") is not None:
        source, stated = _other(data, file)
        common = {**_set(stated, source), **common}
    at = file.name if source is file else f"{file.name}: {source.name}"
    base = _sections_of(_given(stated, "base", {}), source, "base")
    runs: list[RunConfig] = []
    for where, changes in _points(stated, source):
        point = dict(changes)
        sections = _sections_of(point.pop("params"), source, where) if "params" in point else base
        own_name = point.pop("name", None)
        refuse_loss(common, point, f"{at}: {where}")
        sections = laid_over(sections, common, f"{file.name}: set")
        changed = laid_over(sections, point, f"{at}: {where}", also=("params",))
        if own_name is None and point:
            own_name = "-".join([str(sections.get("name", name)), *map(_label, point.items())])
        if own_name is not None:
            changed["name"] = own_name
        runs.append(build(overridden(changed, overrides, file.name), f"{at}: {where}"))
    if not runs:
        raise ConfigError(f"{file.name}: the campaign has no point.\nGive 'matrix', 'points' or both.")
    twice = next((called for called, count in Counter(run.name for run in runs).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"{file.name}: two points are called {twice!r}.\nGive each point a name of its own.")
    return Campaign(name=name, runs=tuple(runs), source=file, about=about.strip())


def _name_and_about(data: Mapping[str, Any], file: Path) -> tuple[str, str]:
    name = data["campaign"]
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,80}", name):
        raise ConfigError(
            f"{file.name}: campaign: got {shown(name)}.\nExpected a name of letters, digits and . _ + = -"
        )
    about = _given(data, "about", "")
    if not isinstance(about, str):
        raise ConfigError(f"{file.name}: about: got {shown(about)}.\nExpected text: what the campaign is to show.")
    return name, about


def _set(data: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What is laid over every point's base."""
    common = _given(data, "set", {})
    if not isinstance(common, dict):
        raise ConfigError(
            f"{file.name}: set: got {shown(common)}.\n"
            "Expected SECTION.KEY: value, laid over the base of every point, e.g. parallel.tp_size: 2."
        )
    if "name" in common:
        raise ConfigError(
            f"{file.name}: set: name: got {shown(common['name'])}: it would name every point alike.\n"
            "Give a point a name of its own: points: [{name: …}]; a base its name in its file."
        )
    return common


def _other(data: Mapping[str, Any], file: Path) -> tuple[Path, dict[str, Any]]:
    """The campaign that this one is like: its file, and what that says."""
    like = data["like"]
    for key in _LIKE_KEYS:
        if data.get(key) is not None:
            raise ConfigError(
                f"{file.name}: {key}: given beside 'like', which takes it from {shown(like)}.\n"
                "Give 'set' for what differs, or leave 'like' out."
            )
    if not isinstance(like, str):
        raise ConfigError(f"{file.name}: like: got {shown(like)}.\nExpected a campaign file, e.g. one beside this one.")
    source = _file_beside(like, file, "like")
    other = read(source)
    if "campaign" not in other or other.get("like") is not None:
        found = "a single run" if "campaign" not in other else f"itself like {shown(other['like'])}"
        raise ConfigError(
            f"{file.name}: like: {source.name} is {found}.\n"
            "Expected a campaign file with points or a matrix of its own."
        )
    reject_unknown(other, _CAMPAIGN_KEYS, source.name)
    return source, other


def _points(data: Mapping[str, Any], file: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """(where it stands, what it changes) of every point: those of the matrix, then the single ones."""
    matrix = _given(data, "matrix", {})
    if not isinstance(matrix, dict) or not all(isinstance(values, list) and values for values in matrix.values()):
        raise ConfigError(
            f"{file.name}: matrix: got {shown(matrix)}.\n"
            "Expected SECTION.KEY: [value, value, …], e.g. memory.max_running_requests: [4, 8]."
        )
    count = math.prod(len(values) for values in matrix.values())
    if count > _MOST_POINTS:
        raise ConfigError(
            f"{file.name}: matrix: {count:,} points.\n"
            f"Expected at most {_MOST_POINTS:,}: shorten a list, or use 'points'."
        )
    if matrix:
        for values in itertools.product(*matrix.values()):
            point = dict(zip(matrix, values, strict=True))
            yield "matrix " + ", ".join(f"{key}={value}" for key, value in point.items()), point
    points = _given(data, "points", [])
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ConfigError(f"{file.name}: points: got {shown(points)}.\nExpected a list of {{SECTION.KEY: value}}.")
    for number, point in enumerate(points, start=1):
        yield f"point {number}", point


def _sections_of(base: Any, file: Path, where: str) -> dict[str, Any]:
    if isinstance(base, str):
        return read(_file_beside(base, file, where))
    if isinstance(base, dict):
        return base
    raise ConfigError(f"{file.name}: {where}: got {shown(base)}.\nExpected a run file, or its sections.")


def _file_beside(name: str, file: Path, where: str) -> Path:
    beside = file.parent / name
    return beside if exists(beside) else resolve(name, kind=f"{file.name}: {where}")


def _given(data: Mapping[str, Any], key: str, absent: Any) -> Any:
    """What a campaign file says under a key; only null is the same as no such key."""
    value = data.get(key)
    return absent if value is None else value


def _label(change: tuple[str, Any]) -> str:
    key, value = change
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9._+=-]", "_", f"{key.rpartition('.')[2]}={text}")
