"""Params files: YAML -> RunConfig or Campaign, with messages that name file, key, value and what is allowed.

A run file has the sections of `RunConfig`. A campaign file has `campaign`, a `base` and a `matrix` and/or `points`:

    campaign: story
    base: story/tp1-4.yaml              # a run file beside this one, or the sections themselves
    matrix:                             # the product of all lists
      memory.max_running_requests: [4, 8]
    points:                             # further single points; `params` replaces the base
      - {name: noradix, memory.disable_radix_cache: true}
      - {params: recordings/nospec_r8.yaml}

The non-obvious thing is YAML 1.1: `1e-3` is text, `on` is true, `0.5` as a version is a number, a date is a date, and a key
given twice is silently the last one. Each of these is caught here and named.
"""

from __future__ import annotations

import datetime
import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .config import SECTIONS, RunConfig
from .engines import check
from .errors import ConfigError
from .paths import resolve

Overrides = Sequence[str]
_CAMPAIGN_KEYS = ("campaign", "base", "matrix", "points")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A named list of runs, each valid by itself."""

    name: str
    runs: tuple[RunConfig, ...]
    source: Path


def load_run(path: str | Path, overrides: Overrides = ()) -> RunConfig:
    """The run of a params file, with `SECTION.KEY=VALUE` overrides. ConfigError (two lines) when anything is wrong."""
    file = resolve(path, kind="params file")
    data = _read(file)
    if "campaign" in data:
        raise ConfigError(
            f"{file.name}: this is a campaign (key 'campaign'), a single run was expected.\n"
            f"Run the whole campaign with 'specbench run {path}', or give one run file."
        )
    return _build(_override(data, overrides, file.name), file.name)


def load_sections(**sections: Any) -> RunConfig:
    """The run that a notebook's parameters cell describes; the names are the sections of a params file."""
    return _build(sections, "parameters")


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
            f"{file.name}: campaign: got {_shown(name)}.\nExpected a name of letters, digits and . _ + = -"
        )
    base = _sections_of(data.get("base", {}), file, "base")
    runs: list[RunConfig] = []
    for where, changes in _points(data, file):
        point = dict(changes)
        sections = _sections_of(point.pop("params"), file, where) if "params" in point else base
        own_name = point.pop("name", None)
        changed = _with(sections, point, f"{file.name}: {where}")
        if own_name is None and point:
            own_name = "-".join([str(sections.get("name", name)), *map(_label, point.items())])
        if own_name is not None:
            changed["name"] = own_name
        runs.append(_build(_override(changed, overrides, file.name), f"{file.name}: {where}"))
    if not runs:
        raise ConfigError(f"{file.name}: the campaign has no point.\nGive 'matrix', 'points' or both.")
    twice = [run.name for run in runs if sum(other.name == run.name for other in runs) > 1]
    if twice:
        raise ConfigError(
            f"{file.name}: two points are called {twice[0]!r}.\nGive each point a name of its own."
        )
    return Campaign(name=name, runs=tuple(runs), source=file)


def dump_run(config: RunConfig) -> str:
    """The params file that loads back equal."""
    return yaml.safe_dump(config.to_sections(), sort_keys=False, allow_unicode=True)


# ── campaign points ──────────────────────────────────────────────────────────────────────────────────────────────────


def _points(data: Mapping[str, Any], file: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    matrix = data.get("matrix") or {}
    if not isinstance(matrix, dict) or not all(
        isinstance(values, list) and values for values in matrix.values()
    ):
        raise ConfigError(
            f"{file.name}: matrix: got {_shown(matrix)}.\n"
            "Expected SECTION.KEY: [value, value, …], e.g. memory.max_running_requests: [4, 8]."
        )
    if matrix:
        for values in itertools.product(*matrix.values()):
            point = dict(zip(matrix, values, strict=True))
            yield "matrix " + ", ".join(f"{key}={value}" for key, value in point.items()), point
    points = data.get("points") or []
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ConfigError(
            f"{file.name}: points: got {_shown(points)}.\nExpected a list of {{SECTION.KEY: value}}."
        )
    for number, point in enumerate(points, start=1):
        yield f"point {number}", point


def _sections_of(base: Any, file: Path, where: str) -> dict[str, Any]:
    if isinstance(base, str):
        beside = file.parent / base
        other = beside if beside.exists() else resolve(base, kind=f"{file.name}: {where}")
        return _read(other)
    if isinstance(base, dict):
        return base
    raise ConfigError(f"{file.name}: {where}: got {_shown(base)}.\nExpected a run file, or its sections.")


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
            changes[key.strip()] = yaml.load(value, _Loader)
        except yaml.YAMLError as error:
            raise ConfigError(
                f"--set {text!r}: the value is no YAML ({_one_line(error)}).\nQuote it."
            ) from None
    return _with(data, changes, f"{where}: --set")


def _with(data: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A copy of nested mappings with dotted keys set."""
    result: dict[str, Any] = {
        key: dict(value) if isinstance(value, dict) else value for key, value in data.items()
    }
    for dotted, value in changes.items():
        section, dot, key = dotted.partition(".")
        if section not in SECTIONS:
            raise ConfigError(
                f"{where}: {dotted!r}: no section {section!r}{_near(section, SECTIONS)}.\nSections: {_list(SECTIONS)}."
            )
        if not dot:
            result[section] = value
            continue
        holder = result.setdefault(section, {})
        if not isinstance(holder, dict):
            raise ConfigError(
                f"{where}: {dotted!r}: {section} has no keys, it is {_shown(holder)}.\nSet {section}=VALUE."
            )
        key, dot, inner = key.partition(".")
        if dot:  # engine.args.some_flag
            holder[key] = {**(holder.get(key) or {}), inner: value}
        else:
            holder[key] = value
    return result


# ── reading and building ─────────────────────────────────────────────────────────────────────────────────────────────


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice (YAML would silently keep the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _read(file: Path) -> dict[str, Any]:
    if file.is_dir():
        raise ConfigError(f"{file}: this is a folder.\nExpected a params file, e.g. params/demo.yaml.")
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError:
        raise ConfigError(
            f"{file}: not a text file.\nExpected YAML in UTF-8, e.g. params/demo.yaml."
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{file.name}: not valid YAML: {_one_line(error)}.\nCheck indentation, colons and quotes there."
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file.name}: got {_shown(data)}.\nExpected the sections {_list(SECTIONS)}.")
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(
                f"{file.name}: key {key!r}: YAML read it as {_kind(key)}.\nQuote it, or use one of {_list(SECTIONS)}."
            )
    return data


def _build(data: Mapping[str, Any], where: str) -> RunConfig:
    _reject_unknown(data, SECTIONS, where, "")
    # A section that is present but empty ("memory:") is an empty section, not a wrong one.
    filled = {
        key: {} if value is None and key not in ("name", "model") else value for key, value in data.items()
    }
    try:
        config = RunConfig.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(_explain(error.errors(include_url=False)[0], filled, where)) from None
    if not config.engine.allow_refused:
        for refusal in check(config):
            raise ConfigError(
                f"{where}: {refusal.key}: {_shown(refusal.value)}: SGLang {config.engine.version} refuses this: "
                f"{_one_line(refusal.reason)}.\nAllowed: {refusal.allowed}. (engine.allow_refused: true runs it all the same.)"
            )
    return config


def _reject_unknown(data: Mapping[str, Any], allowed: Sequence[str], where: str, section: str) -> None:
    for key in data:
        if key not in allowed:
            dotted = f"{section}.{key}" if section else str(key)
            raise ConfigError(
                f"{where}: {dotted}: no such key{_near(str(key), allowed)}.\nAllowed here: {_list(allowed)}."
            )


def _explain(problem: ErrorDetails, data: Mapping[str, Any], where: str) -> str:
    """One pydantic problem in our two lines."""
    location = [str(part) for part in problem["loc"] if not _is_branch(part)]
    # Positions in lists and the branch names of unions are pydantic's; a reader thinks in keys.
    model, keys = _walk(problem["loc"])
    dotted = ".".join(keys) or ".".join(location)
    value = problem.get("input")
    if problem["type"] == "extra_forbidden":
        allowed = tuple(model.model_fields)
        return f"{where}: {dotted}: no such key{_near(keys[-1], allowed)}.\nAllowed here: {_list(allowed)}."
    description = _description(keys)
    if problem["type"] == "missing":
        return f"{where}: {dotted}: missing.\nExpected: {description or 'a value'}."
    expected = _expected(problem)
    hint = _trap(value, problem["type"], keys)
    return f"{where}: {dotted}: got {_shown(value)}; expected {expected}.\n{hint or (dotted + ': ' + (description or expected))}."


def _walk(location: tuple[int | str, ...]) -> tuple[type[BaseModel], list[str]]:
    model: type[BaseModel] = RunConfig
    keys: list[str] = []
    for part in location:
        if not isinstance(part, str):
            continue
        field = model.model_fields.get(part)
        if field is None:
            if not keys or not _is_branch(part):
                keys.append(part)
            continue
        keys.append(part)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model, keys


def _is_branch(part: int | str) -> bool:
    """Names that pydantic adds for the members of a union or a validator."""
    return isinstance(part, int) or bool(
        re.search(r"[\[(]|^(float|int|str|bool|tuple|list)$|literal|function-", str(part))
    )


def _description(keys: Sequence[str]) -> str | None:
    model: type[BaseModel] = RunConfig
    text: str | None = None
    for key in keys:
        field = model.model_fields.get(key)
        if field is None:
            return text
        text = field.description
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
            text = text or "the keys " + _list(tuple(model.model_fields))
    return text


def _expected(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "literal_error":
            return f"one of {context.get('expected')}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            sign = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}[
                problem["type"]
            ]
            bound = next(iter(context.values()))
            return f"a number {sign} {bound}"
        case "int_type" | "int_from_float":
            return "a whole number"
        case "float_type":
            return "a number"
        case "bool_type":
            return "true or false"
        case "string_type" | "string_too_short":
            return "text"
        case "string_pattern_mismatch":
            return "a name of letters, digits and . _ + = - (no spaces, no slashes, at most 121 characters)"
        case "tuple_type" | "list_type":
            return "a list, e.g. [1, 4, 8]"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a mapping (key: value)"
        case _:
            return problem["msg"][:1].lower() + problem["msg"][1:]


def _trap(value: Any, kind: str, keys: Sequence[str]) -> str | None:
    """What YAML made of the text, when that explains the mistake."""
    numeric = kind.startswith(("int", "float"))
    if isinstance(value, str) and numeric:
        if re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
            return f"YAML reads {value} as text: write it with a point and a sign, e.g. {_yaml_float(value)}"
        if re.fullmatch(r"\s*[+-]?[\d.]+\s*", value):
            return "It is text, not a number: remove the quotes"
    if isinstance(value, bool):
        return (
            f"YAML reads on, off, yes and no as true and false: quote {keys[-1]}'s value if you meant a word"
        )
    if isinstance(value, (datetime.date, datetime.datetime)):
        return f"YAML reads {value} as a date: put it in quotes"
    if isinstance(value, (int, float)) and kind.startswith("string"):
        return f'YAML reads it as a number: put it in quotes, "{value}"'
    return None


def _yaml_float(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    sign = exponent if exponent[0] in "+-" else "+" + exponent
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}"


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _near(word: str, allowed: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        str: "text",
        dict: "a mapping",
        list: "a list",
    }
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '…'} ({_kind(value)})"


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split()).rstrip(".")
