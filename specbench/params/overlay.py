"""Keys laid over sections: `SECTION.KEY` of `--set`, of a campaign's points and of its `set`. None is ever lost.

In: nested mappings and dotted keys. Out: a copy with the keys set. ConfigError (two lines) for a key that is in no
section, and where a section as a whole would drop a key that was given by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ..configuration.config import SECTIONS, RunConfig
from ..configuration.explain import listed, near_miss, shown
from ..configuration.yamltext import parse_value
from ..engines import key_of_flag
from ..errors import ConfigError

Overrides = Sequence[str]
#: Key -> the same with its section, to answer a key that was given without one.
_HOMES: dict[str, str] = {
    key: f"{section}.{key}"
    for section, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    for key in field.annotation.model_fields
    if key not in SECTIONS
}


def overridden(data: Mapping[str, Any], overrides: Overrides, where: str) -> dict[str, Any]:
    """With the `SECTION.KEY=VALUE` of `--set`; a value is YAML."""
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
    return laid_over(data, changes, f"{where}: --set")


def laid_over(
    data: Mapping[str, Any], changes: Mapping[str, Any], where: str, *, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A copy of nested mappings with dotted keys set. `also`: further words that are allowed there, for messages."""
    result: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for dotted, value in changes.items():
        section, dot, key = str(dotted).partition(".")
        if section not in SECTIONS:
            raise ConfigError(
                f"{where}: {dotted!r}: no section {section!r}{meant(str(dotted), also)}.\n"
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


def refuse_loss(common: Mapping[str, Any], point: Mapping[str, Any], where: str) -> None:
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


def meant(word: str, also: tuple[str, ...] = ()) -> str:
    """A hint for a word that is no section: a section, or the key or the server flag of that name in its section."""
    first = word.partition(".")[0]
    if first in _HOMES:
        return f" (did you mean {_HOMES[first]!r}?)"
    if "." not in word and (key := key_of_flag(word)) is not None:
        return f" (did you mean {key!r}?)"
    return near_miss(first, (*SECTIONS, *also)) or near_miss(_HOMES.get(first.replace("-", "_"), word), _HOMES.values())
