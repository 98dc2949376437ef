"""Params files: YAML -> RunConfig or Campaign, with messages that name file, key, value and what is allowed.

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

The non-obvious thing is YAML 1.1: `1e-3` is text, `on` is true, `0.5` as a version is a number, a date is a date, and a
key given twice is silently the last one. Each of these is caught here and named.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from .configuration.config import SECTIONS, RunConfig
from .configuration.explain import listed, near_miss, one_line, problem_text, shown
from .configuration.secret_names import refuse_secrets
from .configuration.yamltext import parse_value, read_mapping
from .engines import check, key_of_flag, reject_keyed
from .errors import ConfigError
from .gpus import gpu_by_usual_name
from .paths import exists, resolve

Overrides = Sequence[str]
#: Key -> the same with its section, to answer a key that was given without one.
_HOMES: dict[str, str] = {
    key: f"{section}.{key}"
    for section, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    for key in field.annotation.model_fields
    if key not in SECTIONS
}
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


def load_run(path: str | Path, overrides: Overrides = ()) -> RunConfig:
    """The run of a params file, with `SECTION.KEY=VALUE` overrides. ConfigError (two lines) when anything is wrong."""
    file = resolve(path, kind="params file")
    return _build(_override(_read_run(file, path), overrides, file.name), file.name)


def load_sections(params: str | Path | None = None, **sections: Any) -> RunConfig:
    """The run that a notebook's parameters cell describes; the names are the sections of a params file.

    With a model the sections are the whole configuration: what is None is left to the defaults, as in a params file
    that lacks it. Without one, `params` (a run file) is the base, and the keys of the given sections are laid over it.
    """
    given = {name: value for name, value in sections.items() if value is not None}
    if params is None or "model" in given:
        return _build(given, "parameters")
    file = resolve(params, kind="params file")
    over: dict[str, Any] = {}
    for name, value in given.items():
        over |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return _build(
        _with(_read_run(file, params), over, "parameters"), f"parameters over {file.name}" if over else file.name
    )


def build_run(sections: Mapping[str, Any], overrides: Overrides = (), where: str = "options") -> RunConfig:
    """The run of sections that come from no file, with overrides; checked and told apart as one of a file."""
    return _build(_override(sections, overrides, where), where)


def load_campaign(path: str | Path, overrides: Overrides = ()) -> Campaign:
    """The campaign of a params file (overrides apply to every point); a single run is a campaign of one."""
    file = resolve(path, kind="params file")
    data = _read(file)
    if "campaign" not in data:
        run = _build(_override(data, overrides, file.name), file.name)
        return Campaign(name=run.name, runs=(run,), source=file)
    _reject_unknown(data, _CAMPAIGN_KEYS, file.name, "")
    name = data["campaign"]
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,80}", name):
        raise ConfigError(
            f"{file.name}: campaign: got {shown(name)}.\nExpected a name of letters, digits and . _ + = -"
        )
    about = _given(data, "about", "")
    if not isinstance(about, str):
        raise ConfigError(f"{file.name}: about: got {shown(about)}.\nExpected text: what the campaign is to show.")
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
        _refuse_loss(common, point, f"{at}: {where}")
        sections = _with(sections, common, f"{file.name}: set")
        changed = _with(sections, point, f"{at}: {where}", also=("params",))
        if own_name is None and point:
            own_name = "-".join([str(sections.get("name", name)), *map(_label, point.items())])
        if own_name is not None:
            changed["name"] = own_name
        runs.append(_build(_override(changed, overrides, file.name), f"{at}: {where}"))
    if not runs:
        raise ConfigError(f"{file.name}: the campaign has no point.\nGive 'matrix', 'points' or both.")
    twice = [run.name for run in runs if sum(other.name == run.name for other in runs) > 1]
    if twice:
        raise ConfigError(f"{file.name}: two points are called {twice[0]!r}.\nGive each point a name of its own.")
    return Campaign(name=name, runs=tuple(runs), source=file, about=about.strip())


def dump_run(config: RunConfig) -> str:
    """The params file that loads back equal."""
    return yaml.safe_dump(config.to_sections(), sort_keys=False, allow_unicode=True)


def _set(data: Mapping[str, Any], file: Path) -> dict[str, Any]:
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
    other = _read(source)
    if "campaign" not in other or other.get("like") is not None:
        found = "a single run" if "campaign" not in other else f"itself like {shown(other['like'])}"
        raise ConfigError(
            f"{file.name}: like: {source.name} is {found}.\n"
            "Expected a campaign file with points or a matrix of its own."
        )
    _reject_unknown(other, _CAMPAIGN_KEYS, source.name, "")
    return source, other


# ── campaign points ──────────────────────────────────────────────────────────────────────────────────────────────────


def _points(data: Mapping[str, Any], file: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
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
        return _read(_file_beside(base, file, where))
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


# ── overrides ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _override(data: Mapping[str, Any], overrides: Overrides, where: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {text!r}: no '='.\nExpected SECTION.KEY=VALUE, e.g. memory.max_running_requests=8."
            )
        try:
            changes[key.strip()] = parse_value(value)
        except ValueError as error:
            raise ConfigError(f"--set {text!r}: the value is no YAML ({error}).\nQuote it.") from None
    return _with(data, changes, f"{where}: --set")


def _with(
    data: Mapping[str, Any], changes: Mapping[str, Any], where: str, *, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A copy of nested mappings with dotted keys set. `also`: further words that are allowed there, for messages."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for dotted, value in changes.items():
        section, dot, key = str(dotted).partition(".")
        if section not in SECTIONS:
            raise ConfigError(
                f"{where}: {dotted!r}: no section {section!r}{_meant(str(dotted), also)}.\n"
                f"Sections: {listed(SECTIONS)}.{f' Beside SECTION.KEY: name, {listed(also)}.' if also else ''}"
            )
        if whole := _whole(str(dotted), changes):
            raise ConfigError(
                f"{where}: {dotted!r} is given, and {whole!r} as a whole: one of them would be lost.\n"
                f"Give single keys of {whole} only, or all of them in one mapping."
            )
        if not dot:
            if value is None and section not in ("name", "model"):
                raise ConfigError(
                    f"{where}: {section}: got {shown(value)}; expected a mapping (key: value).\n"
                    f"Leave it out to change nothing, or write {section}: {{}} for the defaults of all its keys."
                )
            result[section] = value
            continue
        holder = result.setdefault(section, {})
        if not isinstance(holder, dict):
            raise ConfigError(
                f"{where}: {dotted!r}: {section} has no keys, it is {shown(holder)}.\nSet {section}=VALUE."
            )
        key, dot, inner = key.partition(".")
        if dot:  # engine.args.some_flag
            held = holder.get(key) or {}
            if not isinstance(held, dict):
                raise ConfigError(
                    f"{where}: {dotted!r}: {section}.{key} has no keys, it is {shown(held)}.\n"
                    f"Set {section}.{key}=VALUE."
                )
            holder[key] = {**held, inner: value}
        else:
            holder[key] = value
    return result


def _refuse_loss(common: Mapping[str, Any], point: Mapping[str, Any], where: str) -> None:
    """A point may give another value for a key that all points were given, but not drop keys by a whole section."""
    for dotted, value in common.items():
        whole = dotted if isinstance(value, dict) and dotted in point else _whole(str(dotted), point)
        if whole:
            raise ConfigError(
                f"{where}: {whole!r} is given as a whole, and {dotted!r} in 'set': that would be lost.\n"
                f"Give single keys of {whole} in the point, e.g. {whole}.KEY: value."
            )


def _whole(dotted: str, changes: Mapping[str, Any]) -> str | None:
    """The mapping that a key is part of, when that is given too: parallel of parallel.tp_size."""
    parts = dotted.split(".")
    holders = (".".join(parts[:length]) for length in range(1, len(parts)))
    return next((holder for holder in holders if holder in changes), None)


def _meant(word: str, also: tuple[str, ...] = ()) -> str:
    """A hint for a word that is no section: a section, or the key or the server flag of that name in its section."""
    first = word.partition(".")[0]
    if first in _HOMES:
        return f" (did you mean {_HOMES[first]!r}?)"
    if "." not in word and (key := key_of_flag(word)) is not None:
        return f" (did you mean {key!r}?)"
    return near_miss(first, (*SECTIONS, *also)) or near_miss(_HOMES.get(first.replace("-", "_"), word), _HOMES.values())


# ── reading and building ─────────────────────────────────────────────────────────────────────────────────────────────


def _read(file: Path) -> dict[str, Any]:
    return read_mapping(file, expected=f"the sections {listed(SECTIONS)}")


def _read_run(file: Path, path: str | Path) -> dict[str, Any]:
    data = _read(file)
    if "campaign" in data:
        raise ConfigError(
            f"{file.name}: this is a campaign (key 'campaign'), a single run was expected.\n"
            f"Run the whole campaign with 'specbench run {path}', or give one run file."
        )
    return data


def _build(data: Mapping[str, Any], where: str) -> RunConfig:
    _reject_unknown(data, SECTIONS, where, "")
    # A section that is present but empty ("memory:") is an empty section, not a wrong one.
    filled = {key: {} if value is None and key not in ("name", "model") else value for key, value in data.items()}
    filled |= {"gpu": _cards(filled["gpu"])} if isinstance(filled.get("gpu"), dict) else {}
    try:
        config = RunConfig.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(problem_text(error.errors(include_url=False)[0], RunConfig, where)) from None
    reject_keyed(config.engine, where)
    refuse_secrets(config.engine, where)
    if not config.engine.allow_refused:
        for refusal in check(config):
            raise ConfigError(
                f"{where}: {refusal.key}: got {shown(refusal.value)}: SGLang {config.engine.version} refuses this: "
                f"{one_line(refusal.reason)}.\n"
                f"Allowed: {refusal.allowed}. ({refusal.if_allowed}.)"
            )
    return config


def _cards(section: dict[str, Any]) -> dict[str, Any]:
    """Cards by their usual names, as everywhere else: '5090', which YAML reads as a number, is rtx-5090."""

    def row(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return gpu_by_usual_name(value) if isinstance(value, str) else value

    return {key: row(value) if key in ("name", "emulate") else value for key, value in section.items()}


def _reject_unknown(data: Mapping[str, Any], allowed: Sequence[str], where: str, section: str) -> None:
    for key in data:
        if key not in allowed:
            dotted = f"{section}.{key}" if section else str(key)
            hint = near_miss(str(key), allowed) or (_meant(str(key)) if allowed is SECTIONS else "")
            raise ConfigError(f"{where}: {dotted}: no such key{hint}.\nAllowed here: {listed(allowed)}.")
